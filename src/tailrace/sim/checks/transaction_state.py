"""What must hold of transaction coordinators.

- What a machine knows is what its log says.
- A transactional id goes from state to state as the table says, with the partitions that it has, and its epoch never
  goes back. A decision is never taken back.
- When a transaction is complete, all its markers are committed.

In the end nothing is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from tailrace.broker.coordinators.shard import Shard
from tailrace.coordinator.op import Told
from tailrace.coordinator.placement import coordinator_partition
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.transaction import VERSION_WITH_EPOCH_BUMP, Transaction, TransactionState
from tailrace.model.ids import NO_PRODUCER_EPOCH, TRANSACTION_STATE_TOPIC, PartitionIndex, TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.checks.shards import led_shards, replay_log
from tailrace.sim.checks.transaction_logs import TransactionLog
from tailrace.sim.cluster import Node, SimCluster
from tailrace.wire.records import BatchHeader, iterate_records

_MAX_DECOMPRESSED_BYTES = 1 << 24

_AT_REST = (TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
_NEXT_STATES = {
    TransactionState.EMPTY: _AT_REST,
    TransactionState.ONGOING: (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    ),
    TransactionState.PREPARE_COMMIT: (TransactionState.COMPLETE_COMMIT,),
    TransactionState.PREPARE_ABORT: (TransactionState.COMPLETE_ABORT,),
    TransactionState.COMPLETE_COMMIT: _AT_REST,
    TransactionState.COMPLETE_ABORT: _AT_REST,
}


class TransactionStateChecks:
    def __init__(self, cluster: SimCluster, replicas: ReplicaChecks) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self.compared_count = 0
        self._next_decision: asyncio.Future[Sequence[int]] | None = None
        self._committed = TransactionMachine(lambda: None, _owe_nothing)  # what all partitions have committed

    def replay_all(self) -> None:
        for node, shard in self._shards():
            if node.may_complain or shard.has_unwritten:
                continue
            with node.disk.observed():
                machine = TransactionMachine(lambda: None, _owe_nothing)
                replay_log(shard, machine)
                replayed = _durable(machine)
            self.compared_count += 1
            live = _durable(_machine_of(shard))
            demand(
                live == replayed,
                "the replay of a transaction coordinator's log gives the live state",
                node=node.name,
                partition=shard.index,
                differences=[
                    f"live {live.get(name)}, replayed {replayed.get(name)}"
                    for name in sorted({*live, *replayed})
                    if live.get(name) != replayed.get(name)
                ],
            )

    def is_superseded(self, transactional_id: str, producer_id: int, producer_epoch: int) -> bool:
        """Whether the log has another producer, or a later epoch, than this one was told. What a decision hands out
        counts from the decision on."""
        known = self._committed.state.transactions.get(transactional_id)
        if known is None:
            return False
        if known.state.is_prepared:
            known = known.completed(now_ms=0)
        return known.producer_id != producer_id or known.producer_epoch > producer_epoch

    async def wait_decision(self) -> Sequence[int]:
        """Until the next one is committed: who coordinates it, and who leads the partitions that it has written to."""
        if self._next_decision is None:
            self._next_decision = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._next_decision)

    def _note_decision(self, transaction: Transaction) -> None:
        image, waiting = self._replicas.image, self._next_decision
        if waiting is not None and image is not None:
            topic = image.topics[TRANSACTION_STATE_TOPIC]
            index = coordinator_partition(transaction.transactional_id, len(topic.partitions))
            brokers = {topic.partitions[PartitionIndex(index)].leader}
            brokers |= {image.topics[name].partitions[each].leader for name, each in transaction.partitions}
            if found := sorted(broker for broker in brokers if broker >= 0):
                self._next_decision = None
                waiting.set_result(found)

    def add(self, header: BatchHeader, batch: bytes, logs: Mapping[TopicPartition, TransactionLog]) -> None:
        """What was committed to the log of a coordinator; `logs` are those of all other partitions."""
        committed = self._committed.state.transactions
        for record in iterate_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES):
            before = dict(committed)
            assert record.key is not None, "coordinators write no others"
            self._committed.replay_stored(record.key, record.value)
            for transactional_id, old in before.items():
                new = committed[transactional_id]
                if new is not old:
                    self._judge_transition(old, new, header.base_offset)
                    if new.state.is_prepared:
                        self._note_decision(new)
                    if new.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
                        _judge_complete(old, new, logs)

    def _judge_transition(self, old: Transaction, new: Transaction, offset: int) -> None:
        keeps_partitions = new.state.is_at_rest or new.partitions >= old.partitions
        demand(
            new.state in _NEXT_STATES[old.state] and keeps_partitions,
            "transactions go from state to state as the table says",
            old=old,
            new=new,
            offset=offset,
        )
        demand(
            new.producer_id != old.producer_id or new.producer_epoch >= old.producer_epoch,
            "the epoch of a transactional id never goes back",
            old=old,
            new=new,
            offset=offset,
        )

    def under_way(self) -> list[str]:
        """Transactions that are open, or whose markers are not all written; and partitions without a coordinator."""
        topic = self._replicas.image.topics.get(TRANSACTION_STATE_TOPIC) if self._replicas.image is not None else None
        missing = set(topic.partitions) if topic is not None else set()
        found = []
        for _node, shard in self._shards():
            missing.discard(shard.index)
            found += [
                f"{transaction.transactional_id}: {transaction.state.title}"
                for transaction in _machine_of(shard).state.transactions.values()
                if not transaction.state.is_at_rest
            ]
        return [*found, *(f"nobody coordinates partition {index}" for index in sorted(missing))]

    def _shards(self) -> Iterator[tuple[Node, Shard]]:
        return led_shards(self._cluster, self._replicas.image, TRANSACTION_STATE_TOPIC)


def _machine_of(shard: Shard) -> TransactionMachine:
    machine = shard.machine
    assert isinstance(machine, TransactionMachine)
    return machine


def _durable(machine: TransactionMachine) -> dict[str, Transaction]:
    return {
        transactional_id: transaction._replace(last_producer_epoch=NO_PRODUCER_EPOCH)
        for transactional_id, transaction in machine.state.transactions.items()
    }


def _judge_complete(old: Transaction, new: Transaction, logs: Mapping[TopicPartition, TransactionLog]) -> None:
    for partition in old.partitions:
        written = logs[partition].open.get(old.producer_id) if partition in logs else None
        # Without a new epoch for each transaction, what is open has the epoch of its marker.
        newest = old.producer_epoch - (old.client_version >= VERSION_WITH_EPOCH_BUMP)
        demand(
            written is None or written.producer_epoch > newest,
            "a transaction is complete once all its markers are committed",
            transaction=new,
            partition=partition,
            open_since=written and written.first_offset,
        )


def _owe_nothing(_transactional_id: str) -> Told:
    raise AssertionError("a replay decides nothing")
