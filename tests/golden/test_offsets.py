"""Offsets and groups as Apache Kafka 4.3.0 tells them: the same requests get the same answers. `groups/offsets.json` is
what a single Kafka broker answered to the questions of `groups.offsets`.
"""

import json
from pathlib import Path

from tests.golden.groups.offsets import ask_all
from tests.unit.broker.world import running

KAFKA = json.loads((Path(__file__).parent / "groups" / "offsets.json").read_text())
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}


async def test_answers_are_kafkas() -> None:
    async with running(SETTINGS) as world:
        ours = await ask_all(await world.connect(), "-12345678")
    assert ours.keys() == KAFKA.keys()
    assert {label: answer for label, answer in ours.items() if answer != KAFKA[label]} == {}
