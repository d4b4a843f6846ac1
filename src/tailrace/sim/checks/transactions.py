"""What transactional producers were told, what readers were given, and what must hold of both at any moment.

- A transaction is committed only if its producer has asked for that; and in all partitions, or in none.
- What a producer was told, committed or aborted, is so in every partition.
- An id and epoch are given to one producer. Once a later epoch was given away, nothing of an earlier one is taken;
  and nobody is fenced before that.
- last_stable_offset <= high_watermark; it is what the log says, and never falls within a leader epoch.
- A reader at read_committed is given all that is committed, in order, and nothing else.
- An input record has one effect.

In the end no transaction is open, every input record has had its effect, and the history that the clients have recorded
is free of anomalies (`tailrace.verify`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.client.lanes import ProducerIdentity
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, PartitionIndex, TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.checks.transaction_logs import TransactionLog, Written
from tailrace.sim.checks.transaction_state import TransactionStateChecks
from tailrace.sim.cluster import Node
from tailrace.verify import Recorder, verify
from tailrace.wire.records import BatchHeader, Record

_ANOMALIES_TOLD = 3


class Transaction:
    """As its producer sees it."""

    def __init__(self, producer: str, number: int, identity: ProducerIdentity) -> None:
        self.producer = producer
        self.number = number
        self.identity = identity
        self.is_asked_to_commit = False
        self.told: bool | None = None  # Whether it was committed, once the producer knows.
        self.decisions: dict[TopicPartition, bool] = {}  # Whether its marker there says so.

    def __repr__(self) -> str:
        return f"{self.producer}:{self.number}"

    def ask_to_commit(self) -> None:
        self.is_asked_to_commit = True

    def note_told(self, *, is_committed: bool) -> None:
        self.told = is_committed
        self._judge()

    def note_decision(self, partition: TopicPartition, *, is_commit: bool) -> None:
        demand(
            self.is_asked_to_commit or not is_commit,
            "only what its producer has asked to commit is committed",
            transaction=self,
            partition=partition,
        )
        self.decisions[partition] = is_commit
        self._judge()

    def _judge(self) -> None:
        demand(
            len(set(self.decisions.values())) < 2,
            "a transaction is committed in all its partitions or in none",
            transaction=self,
            decisions=self.decisions,
        )
        for partition, is_commit in self.decisions.items():
            demand(
                self.told is None or self.told == is_commit,
                "a transaction has ended as its producer was told",
                transaction=self,
                partition=partition,
                told=self.told,
                marker=is_commit,
            )


class _Stable:
    """The last stable offset of a leader, as it was last seen."""

    __slots__ = ("high_watermark", "last_stable_offset", "leader_epoch", "life")

    def __init__(self, life: int, leader_epoch: int, high_watermark: int, last_stable_offset: int) -> None:
        self.life = life
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset


class TransactionChecks:
    def __init__(self, replicas: ReplicaChecks, state: TransactionStateChecks) -> None:
        self.lines: list[str] = []
        self.recorder = Recorder(self.lines.append)
        self.logs: dict[TopicPartition, TransactionLog] = {}
        self.read_count = 0
        self._state = state
        self._transactions: dict[tuple[str, int], Transaction] = {}
        self._by_identity: dict[ProducerIdentity, Transaction] = {}
        self._owners: dict[ProducerIdentity, str] = {}
        self._latest: dict[int, ProducerIdentity] = {}  # by producer id: the last epoch that someone was given
        self._stable: dict[tuple[str, TopicPartition], _Stable] = {}
        self._effects: dict[tuple[str, int], tuple[TopicPartition, int]] = {}
        replicas.on_committed = self._on_committed

    # ---- what is in the logs

    def _on_committed(self, key: tuple[str, int], header: BatchHeader, batch: bytes) -> None:
        if key[0] == TRANSACTION_STATE_TOPIC:
            self._state.add(header, batch, self.logs)
            return
        partition = TopicPartition(key[0], PartitionIndex(key[1]))
        log = self.logs.get(partition)
        if log is None:
            log = self.logs[partition] = TransactionLog(partition, self._on_ended)
        log.add(header, batch)

    def _on_ended(self, partition: TopicPartition, written: Written) -> None:
        transaction = self._transaction_of(partition, written)
        if transaction is not None:
            transaction.note_decision(partition, is_commit=written.is_commit)

    def _transaction_of(self, partition: TopicPartition, written: Written) -> Transaction | None:
        """Its values name it; offsets of groups do not, but with version 2 every transaction has its own epoch."""
        if partition.topic == CONSUMER_OFFSETS_TOPIC:
            return self._by_identity.get(ProducerIdentity(written.producer_id, written.producer_epoch))
        producer, _number, transaction, _rest = written.value.split(b":", 3)
        return self._transactions[producer.decode(), int(transaction)]

    def look(self, node: Node) -> None:
        """After each turn of a node."""
        if node.broker is None or not node.is_ready:
            return
        for partition, log in self.logs.items():
            replica = node.broker.replicas.partitions.get(partition)
            if replica is None or not replica.is_leader or replica.log.is_offline:
                continue
            now = _Stable(node.lives, replica.leader_epoch, replica.high_watermark, replica.last_stable_offset)
            before = self._stable.get((node.name, partition))
            if before is not None and (before.last_stable_offset, before.high_watermark, before.leader_epoch) == (
                now.last_stable_offset,
                now.high_watermark,
                now.leader_epoch,
            ):
                continue
            self._stable[node.name, partition] = now
            _judge_rise(node, log, before, now)
            self.judge_stable(node, log, now)

    def judge_stable(self, node: Node, log: TransactionLog, now: _Stable) -> None:
        expected = log.last_stable_offset(now.high_watermark)
        # What a clean stop has stored of transactions holds for the log end, and the high watermark may be below it: as
        # in Kafka a marker between the two counts then. That is harmless where it is committed.
        demand(
            now.last_stable_offset in (expected, log.decided_offset(now.high_watermark)),
            "the last stable offset is what the log says",
            partition=log.partition,
            node=node.name,
            high_watermark=now.high_watermark,
            last_stable_offset=now.last_stable_offset,
            expected=expected,
        )

    # ---- what producers are told

    def note_identity(self, producer: str, identity: ProducerIdentity) -> None:
        """The producer was given this id and epoch."""
        owner = self._owners.setdefault(identity, producer)
        demand(owner == producer, "an epoch is given to one producer", identity=identity, producers=(owner, producer))
        latest = self._latest.get(identity.producer_id)
        if latest is None or identity.producer_epoch > latest.producer_epoch:
            self._latest[identity.producer_id] = identity

    def begin(self, producer: str, number: int, identity: ProducerIdentity, *, is_epoch_its_own: bool) -> Transaction:
        self.note_identity(producer, identity)
        transaction = self._transactions[producer, number] = Transaction(producer, number, identity)
        if is_epoch_its_own:
            self._by_identity[identity] = transaction
        return transaction

    def is_fenced(self, identity: ProducerIdentity) -> bool:
        """Whether somebody else has a later epoch by now."""
        latest = self._latest[identity.producer_id]
        return latest.producer_epoch > identity.producer_epoch and self._owners[latest] != self._owners[identity]

    def judge_taken(self, transaction: Transaction, what: str, *, was_fenced: bool) -> None:
        """Something of a producer was acknowledged, which it had sent when it was fenced already, or not."""
        demand(
            not was_fenced,
            "nothing of a fenced producer is taken",
            transaction=transaction,
            what=what,
            identity=transaction.identity,
            latest=self._latest[transaction.identity.producer_id],
        )

    def is_superseded(self, transactional_id: str, identity: ProducerIdentity) -> bool:
        return self._state.is_superseded(transactional_id, *identity)

    # ---- what readers are given

    def judge_read(
        self,
        who: str,
        partition: TopicPartition,
        between: tuple[int, int],
        records: Sequence[Record],
        *,
        at_read_committed: bool,
    ) -> None:
        self.read_count += len(records)
        log = self.logs.get(partition)
        if log is not None:
            offsets = [record.offset for record in records]
            log.judge_read(who, *between, offsets, at_read_committed=at_read_committed)

    def note_effect(self, source: tuple[str, int], partition: TopicPartition, offset: int) -> None:
        """A committed output record says of which input record it is the effect."""
        known = self._effects.setdefault(source, (partition, offset))
        demand(
            known == (partition, offset),
            "an input record has one effect",
            input=source,
            at=(known, (partition, offset)),
        )

    # ---- in the end

    def open_transactions(self) -> list[str]:
        return [
            f"{partition} since offset {written.first_offset}: {written.value[:40]!r} of producer {written.producer_id}"
            for partition, log in self.logs.items()
            for written in log.open.values()
        ]

    def without_effect(self, partitions: Iterable[TopicPartition]) -> list[str]:
        found = []
        for partition in partitions:
            log = self.logs.get(partition)
            offsets = log.visible_offsets() if log is not None else ()
            name = f"{partition.topic}-{partition.partition}"
            missing = [offset for offset in offsets if (name, offset) not in self._effects]
            if missing:
                found.append(f"{name} from {missing[0]}: {len(missing)} records")
        return found

    def judge_history(self) -> None:
        report = verify(self.lines)
        told = [f"{each.kind}: {each.sentence}" for each in report.anomalies[:_ANOMALIES_TOLD]]
        demand(report.is_clean, "the recorded history has no anomaly", anomalies=told)

    def story(self) -> str:
        told = [transaction.told for transaction in self._transactions.values()]
        return f", {told.count(True)} committed, {told.count(False)} aborted, {len(self._effects)} effects"


def _judge_rise(node: Node, log: TransactionLog, before: _Stable | None, now: _Stable) -> None:
    if before is not None and (before.life, before.leader_epoch) == (now.life, now.leader_epoch):
        demand(
            before.last_stable_offset <= now.last_stable_offset,
            "within a leader epoch the last stable offset never falls",
            partition=log.partition,
            node=node.name,
            offsets=(before.last_stable_offset, now.last_stable_offset),
        )
