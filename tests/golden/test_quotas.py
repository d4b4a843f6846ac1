"""Quotas of clients as Apache Kafka 4.3.0 keeps them: the same requests get the same codes in the same places, and the
same is told of them afterwards. `quotas/kafka.json` is what a single Kafka broker answered to `quotas.questions`.
"""

import json
from pathlib import Path

from tests.golden.quotas.questions import ask_all
from tests.unit.broker.world import running

KAFKA = json.loads((Path(__file__).parent / "quotas" / "kafka.json").read_text())


async def test_answers_are_kafkas() -> None:
    async with running() as world:
        ours = await ask_all(await world.connect())
    assert ours.keys() == KAFKA.keys()
    assert {label: (answer, KAFKA[label]) for label, answer in ours.items() if answer != KAFKA[label]} == {}
