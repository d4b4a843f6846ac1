"""What must hold of the replicas of all partitions, looked at after every turn of a node and in full now and then.

- At most one broker leads a partition in one leader epoch.
- log_start_offset <= high_watermark <= log_end_offset.
- Within a leader epoch the high watermark of a leader never falls.
- A record is acknowledged (acks=all) only once it is committed: below the high watermark of a leader.
- What is committed is in the log of every live member of the ISR that is of the current incarnation.
- Committed batches never change or go, and stand at one offset (see `history`).
- No log is cut below its high watermark, unless the leader epoch is marked as unclean, and none starts later than it
  began: nobody deletes records in a run.

The last two are not demanded of a replica on a damaged disk, until all that is committed is in its files again.

A turn costs a few comparisons for each replica: only what has changed since the last turn of its node is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tailrace.broker.broker import Broker
from tailrace.controller.image import MetadataImage, PartitionImage
from tailrace.log.files.segment import LOG_SUFFIX
from tailrace.model.errors import KafkaError
from tailrace.model.ids import REMOTE_LOG_METADATA_TOPIC, TopicPartition, Uuid
from tailrace.replica.partition import Partition
from tailrace.sim.checks.history import History, ViolationError, demand
from tailrace.sim.cluster import Node, SimCluster
from tailrace.sim.trace import Trace
from tailrace.wire.records import BatchHeader

_READ_BYTES = 1 << 20
_GROWTH_LINE_SECONDS = 1.0
_RECOVERING = 1  # what the metadata say of a leader epoch that began with an unclean election

Key = tuple[str, int]


class ReplicaState(NamedTuple):
    """A replica as its broker shows it."""

    is_leader: bool
    leader_epoch: int
    isr: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int

    def __str__(self) -> str:
        role = "leader  " if self.is_leader else "follower"
        isr = ",".join(map(str, self.isr))
        ends = f"end={self.log_end_offset} hw={self.high_watermark}"
        return f"{role} epoch={self.leader_epoch} {ends} isr={isr}"


class _Seen:
    """What was last seen of one replica in the present life of its node."""

    __slots__ = ("compared_to", "last_line", "life", "partition", "state")

    def __init__(self, life: int) -> None:
        self.life = life
        self.partition: Partition | None = None  # Another one if the replica was moved away, and back here.
        self.state: ReplicaState | None = None
        self.compared_to = 0  # Committed batches before this offset were compared in this life.
        self.last_line = -_GROWTH_LINE_SECONDS


class ReplicaChecks:
    def __init__(self, cluster: SimCluster, trace: Trace) -> None:
        # The newest metadata that any node has shown: it is committed.
        self.image: MetadataImage | None = None
        self.histories: dict[tuple[Uuid, int], History] = {}
        self.committed_ends: dict[tuple[Uuid, int], int] = {}  # the largest high watermark of a leader
        # Told of each batch of a partition, once, when it is committed.
        self.on_committed: Callable[[Key, BatchHeader, bytes], None] = lambda _key, _header, _batch: None
        self._cluster = cluster
        self._trace = trace
        self._leaders: dict[tuple[Uuid, int, int], str] = {}
        self._seen: dict[tuple[str, Key], _Seen] = {}
        for node in cluster.nodes:
            node.witness = self._note_confirmed

    def look(self, node: Node) -> None:
        """After a turn of a node."""
        broker = node.broker
        if broker is None or getattr(broker, "quorum", None) is None:
            return
        image = broker.image
        if self.image is None or image.next_offset > self.image.next_offset:
            is_news = self.image is None or image.topics is not self.image.topics
            self.image = image
            if is_news:
                self.check_members()
        if not node.is_broker or not node.is_ready:
            return
        for key, partition in broker.replicas.partitions.items():
            state = state_of(partition)
            seen = self._seen.get((node.name, key))
            if seen is None or seen.life != node.lives:
                seen = self._seen[node.name, key] = _Seen(node.lives)
            if seen.state != state:
                self._judge(node, key, partition, seen, state)

    def _judge(self, node: Node, key: Key, partition: Partition, seen: _Seen, state: ReplicaState) -> None:
        before, seen.state = seen.state, state
        self._note(node, key, seen, before, state)
        demand(
            state.log_start_offset <= state.high_watermark <= state.log_end_offset,
            "log_start_offset <= high_watermark <= log_end_offset",
            node=node.name,
            partition=key,
            state=state,
        )
        identity = (partition.topic_id, key[1])
        if state.is_leader:
            self._judge_leader(node, key, identity, before, state)
        self._judge_extent(node, key, before if seen.partition is partition else None, state)
        seen.partition = partition
        is_shorter = before is not None and state.log_end_offset < before.log_end_offset
        is_risen = before is None or state[:2] != before[:2] or state.high_watermark != before.high_watermark
        if is_shorter or (state.is_leader and is_risen):
            self._check_members_of(key)
        if before is None or state.high_watermark != before.high_watermark:
            if node.is_damaged:
                # An older batch may be bad here, and another node may still know its content.
                seen.compared_to = max(seen.compared_to, self._history_of(key, partition).end_offset)
            self._compare(node, key, partition, seen)

    def _judge_extent(self, node: Node, key: Key, before: ReplicaState | None, state: ReplicaState) -> None:
        if node.is_damaged:
            return
        may_start_later = key[0] == REMOTE_LOG_METADATA_TOPIC  # It is cut: what is known stands once more behind that.
        demand(
            state.log_start_offset == 0 or may_start_later,
            "no log starts later than it began",
            partition=key,
            node=node.name,
            now=state,
        )
        if before is not None and state.log_end_offset < before.high_watermark:
            demand(
                self._is_unclean(key, state.leader_epoch),
                "no log is cut below its high watermark",
                partition=key,
                node=node.name,
                before=before,
                now=state,
            )

    def _is_unclean(self, key: Key, leader_epoch: int) -> bool:
        state = self._partition_image(key)
        return state is not None and state.leader_epoch >= leader_epoch and state.leader_recovery_state == _RECOVERING

    def _judge_leader(
        self, node: Node, key: Key, identity: tuple[Uuid, int], before: ReplicaState | None, state: ReplicaState
    ) -> None:
        leader = self._leaders.setdefault((*identity, state.leader_epoch), node.name)
        demand(
            leader == node.name,
            "at most one leader per partition and epoch",
            partition=key,
            epoch=state.leader_epoch,
            leaders=(leader, node.name),
        )
        if before is not None and before.is_leader and before.leader_epoch == state.leader_epoch:
            demand(
                before.high_watermark <= state.high_watermark,
                "within a leader epoch the high watermark never falls",
                partition=key,
                node=node.name,
                before=before,
                now=state,
            )
        self.committed_ends[identity] = max(self.committed_ends.get(identity, 0), state.high_watermark)

    def _note_confirmed(self, node: Node) -> None:
        """Of a node that is dying: what it has confirmed, and perhaps told, in this turn."""
        if node.broker is not None and node.is_broker and node.is_ready:
            for key, partition in node.broker.replicas.partitions.items():
                if partition.is_leader:
                    identity = (partition.topic_id, key[1])
                    self.committed_ends[identity] = max(self.committed_ends.get(identity, 0), partition.high_watermark)

    def judge_acked(self, partition: TopicPartition, offset: int) -> None:
        """A client was told that its record, written with acks=all, is there."""
        topic = self.image.topics.get(partition.topic) if self.image is not None else None
        if topic is not None:
            committed_end = self.committed_ends.get((topic.id, partition.partition), 0)
            demand(
                offset < committed_end,
                "an acked record is committed",
                partition=partition,
                offset=offset,
                committed_end=committed_end,
            )

    def leaders_of(self, identity: tuple[Uuid, int]) -> frozenset[str]:
        """The nodes that have led a partition, in whatever epoch."""
        return frozenset(name for (*led, _epoch), name in self._leaders.items() if tuple(led) == identity)

    # ---- the in-sync replicas

    def check_members(self) -> None:
        """The check of all partitions."""
        if self.image is not None:
            for topic in self.image.topics.values():
                for index in topic.partitions:
                    self._check_members_of((topic.name, index))

    def _check_members_of(self, key: Key) -> None:
        topic = self.image.topics.get(key[0]) if self.image is not None else None
        state = self._partition_image(key)
        if topic is None or state is None:
            return
        committed_end = self.committed_ends.get((topic.id, key[1]), 0)
        for node in self._cluster.brokers:
            partition = self.member(node, key) if node.node_id in state.isr else None
            demand(
                partition is None or partition.log.is_offline or partition.log.log_end_offset >= committed_end,
                "what is committed is in the log of every live ISR member",
                partition=key,
                isr=state.isr,
                member=node.name,
                log_end=partition and partition.log.log_end_offset,
                committed_end=committed_end,
            )

    def _partition_image(self, key: Key) -> PartitionImage | None:
        topic = self.image.topics.get(key[0]) if self.image is not None else None
        return topic.partitions.get(key[1]) if topic is not None else None

    def member(self, node: Node, key: Key) -> Partition | None:
        """The replica on a node that is up, if the controller knows the node's present incarnation."""
        broker = node.broker
        if broker is None or not node.is_ready or self.image is None:
            return None
        registration = self.image.brokers.get(node.node_id)
        if registration is None or registration.epoch != broker_epoch(broker):
            return None
        return broker.replicas.partitions.get(key)

    # ---- committed batches

    def _compare(self, node: Node, key: Key, partition: Partition, seen: _Seen) -> None:
        history = self._history_of(key, partition)
        end = partition.high_watermark
        offset = max(seen.compared_to, partition.log.log_start_offset)
        with node.disk.observed():
            while offset < end:
                piece = partition.log.read(offset, _READ_BYTES, end_offset=end)
                if piece is None:
                    break
                next_offset = history.compare(node.name, piece.read(), offset, end, is_damaged=node.is_damaged)
                if next_offset < 0:
                    break
                seen.compared_to = offset = next_offset

    def _history_of(self, key: Key, partition: Partition) -> History:
        identity = (partition.topic_id, key[1])
        history = self.histories.get(identity)
        if history is None:
            history = self.histories[identity] = History(f"{key[0]}-{key[1]}", partial(self.on_committed, key))
        return history

    def find_missing(self, node: Node) -> str | None:
        """What a damaged disk lacks of all that is committed in the partitions of its node, by the bytes of its files:
        a broker that is asked may notice, and do something."""
        broker = node.broker
        if broker is None or not node.is_ready or self.image is None:
            return f"{node.name} is not ready"
        if broker.image.next_offset < self.image.next_offset:
            return f"the metadata of {node.name} end at {broker.image.next_offset} of {self.image.next_offset}"
        for topic in self.image.topics.values():
            for index, state in topic.partitions.items():
                partition = broker.replicas.partitions.get((topic.name, index))
                if node.node_id in state.replicas and partition is None:
                    return f"{node.name} has no {topic.name}-{index}"
                if partition is not None and (problem := self._find_missing_in(node, partition)):
                    return f"{partition.log.folder} of {node.name}: {problem}"
        return None

    def _find_missing_in(self, node: Node, partition: Partition) -> str | None:
        history = self._history_of(partition.log.topic_partition, partition)
        offset = 0
        with node.disk.observed():
            files = [name for name in node.disk.list(partition.log.folder) if name.endswith(LOG_SUFFIX)]
            try:
                for name in files:
                    data = node.disk.read(f"{partition.log.folder}/{name}")
                    offset = max(offset, history.compare(node.name, data, offset, history.end_offset))
            except (ViolationError, KafkaError, OSError) as error:
                return str(error)
        return None if offset >= history.end_offset else f"it ends at {offset} of {history.end_offset}"

    def compare_all(self) -> None:
        """All that is committed on each live replica, from the beginning, as it is on the disk."""
        for node in self._cluster.brokers:
            broker = node.broker
            if broker is None or not node.is_ready or node.is_sabotaged:
                continue
            for key, partition in broker.replicas.partitions.items():
                seen = _Seen(node.lives)
                self._compare(node, key, partition, seen)
                demand(
                    seen.compared_to >= partition.high_watermark,
                    "what is committed can be read",
                    node=node.name,
                    partition=key,
                    read_to=seen.compared_to,
                    high_watermark=partition.high_watermark,
                )

    def _note(self, node: Node, key: Key, seen: _Seen, before: ReplicaState | None, state: ReplicaState) -> None:
        now = self._cluster.world.loop.now
        is_turn = before is None or before[:3] != state[:3]
        if is_turn or now - seen.last_line > _GROWTH_LINE_SECONDS:
            seen.last_line = now
            self._trace.note(node.name, f"{f'{key[0]}-{key[1]}':<12} {state}")


def state_of(partition: Partition) -> ReplicaState:
    log = partition.log
    return ReplicaState(
        partition.is_leader,
        partition.leader_epoch,
        partition.isr,
        partition.log_start_offset,
        partition.high_watermark,
        log.log_end_offset,
    )


def broker_epoch(broker: Broker) -> int:
    return broker.replicas.broker_epoch
