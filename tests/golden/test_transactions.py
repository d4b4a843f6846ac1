"""Transactions as Apache Kafka 4.3.0 serves them: the same requests get the same answers and leave the same records.
`transactions/kafka.json` is what a single Kafka broker answered to the questions of `transactions.questions`.
"""

import json
from pathlib import Path

from tests.golden.transactions.questions import ask_all
from tests.unit.broker.world import running

KAFKA = json.loads((Path(__file__).parent / "transactions" / "kafka.json").read_text())
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


async def test_answers_are_kafkas() -> None:
    async with running(SETTINGS) as world:
        ours = await ask_all(await world.connect(), "-12345678")
    assert ours.keys() == KAFKA.keys()
    assert {label: (answer, KAFKA[label]) for label, answer in ours.items() if answer != KAFKA[label]} == {}
