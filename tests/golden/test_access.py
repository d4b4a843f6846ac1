"""Who is told what, as Apache Kafka 4.3.0 does it: every API, asked by somebody with no right, each single right, some
denied, prefixes and wildcards. `access/kafka.json` is what a Kafka broker with the StandardAuthorizer answered.
"""

import json

from tests.golden.access.asking import RECORDED, ask_all
from tests.unit.broker.access.secured_world import secured

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


async def test_rights_are_kafkas() -> None:
    kafka = json.loads(RECORDED.read_text())
    async with secured(SETTINGS) as world:
        ours = json.loads(json.dumps(await ask_all(world.root, await world.connect_as("alice"))))
    assert ours.keys() == kafka.keys()
    assert {label: (answer, kafka[label]) for label, answer in ours.items() if answer != kafka[label]} == {}
