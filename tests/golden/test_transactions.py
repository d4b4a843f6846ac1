"""Transactions as Apache Kafka 4.3.0 serves them: the same requests get the same answers and leave the same records.
`transactions/kafka.json` is what a single Kafka broker answered to the questions of `transactions.questions`, and
`transactions/kafka_table.json` the table of states and requests of `transactions.table`, markers held back.
"""

import json
from functools import partial
from pathlib import Path

from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.transaction import LAST_EPOCH
from tests.golden.transactions import table
from tests.golden.transactions.questions import ask_all
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import running

RECORDED = Path(__file__).parent / "transactions"
KAFKA = json.loads((RECORDED / "kafka.json").read_text())
KAFKA_TABLE = json.loads((RECORDED / "kafka_table.json").read_text())
# Where Kafka listens to a zombie (docs/decisions/0017): it may abort the transaction of its successor, and is told that
# it has ended the one that a successor of version 1 did, whose epoch was not raised by its end. And where it fences a
# producer that was given a new id, and lost the answer twice.
BY_DESIGN = {
    "the last epoch, named: init v5, once more": "NONE, a new id with epoch 0; Empty 0",
    **{f"Ongoing by version {version}: init v5, older": "PRODUCER_FENCED; Ongoing 1" for version in (1, 2)},
    **{
        f"{state} by version 1: {ending} v5, older": f"PRODUCER_FENCED; {state} 1"
        for state in ("CompleteCommit", "CompleteAbort")
        for ending in ("commit", "abort")
    },
    **{
        f"CompleteAbort of version {version} by a new instance while transaction.version is 1: {ending} v5, older": (
            "PRODUCER_FENCED; CompleteAbort 2"
        )
        for version in (1, 2)
        for ending in ("commit", "abort")
    },
}
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


@simulated
async def test_every_state_answers_as_kafkas() -> None:
    # The questions tell the time of today, which the simulated clock does not know.
    settings = {**SETTINGS, **table.SETTINGS, "log.message.timestamp.after.max.ms": str(2**63 - 1)}
    async with running_cluster("broker,controller", settings=settings) as world:
        ours = table.Table(await world.connect(1), "-12345678")
        await ours.asking.prepare()
        far = world.add("broker").node_id
        await world.start(far)
        await ours.prepare(far=far, stop_far=lambda: world.kill(far))
        await table.fill_last_epoch(ours, partial(_use_up, world))
        await table.fill_all(ours)
        await world.kill(1)  # It could not hand over in time: the other one is not there, and nobody notices.
    assert ours.rows.keys() == KAFKA_TABLE.keys()
    assert {cell: answers[0] for cell, answers in _differences(ours.rows).items()} == BY_DESIGN


async def _use_up(world: ClusterWorld, names: list[str]) -> None:
    """At once: what Kafka was led to by thirty thousand requests."""
    (shard,) = world.running[0].coordination.transactions.active_shards()
    assert isinstance(shard.machine, TransactionMachine)
    transactions = shard.machine.state.transactions
    for name in names:
        key = f"{name}-12345678"
        transactions[key] = transactions[key]._replace(producer_epoch=LAST_EPOCH)


def _differences(rows: dict[str, dict[str, str]]) -> dict[str, tuple[str, str]]:
    return {
        f"{name}, {who}": (ours, KAFKA_TABLE[name][who])
        for name, row in rows.items()
        for who, ours in row.items()
        if ours != KAFKA_TABLE[name][who]
    }
