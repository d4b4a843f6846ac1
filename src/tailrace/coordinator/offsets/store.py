"""Committed offsets of the groups of one partition of __consumer_offsets: group, topic, partition.

An offset is kept as the bytes of its stored value, and read when somebody asks: a million of them take the room and the
time of their bytes, not of as many objects. Only replay changes the store.

Offsets of a transaction that is still open lie beside the others, by their producer, until its marker comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import intern
from typing import NamedTuple, TypeVar

from tailrace.coordinator.op import StoredRecord
from tailrace.model.errors import ProtocolError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.model.settings import LONG_MAX
from tailrace.wire.apis.stored_records import OffsetCommitKey, OffsetCommitValue
from tailrace.wire.compile import decode
from tailrace.wire.record_envelopes import UnknownRecordTypeError, encode_coordinator_value

T = TypeVar("T")

NO_PRODUCER = -1
# Of what is written now; only version 1 has a time of expiry.
OFFSET_VALUE_VERSION = 4
# Offsets that are forgotten in one step.
_FREED_PER_STEP = 1_000
_Topics = dict[str, dict[int, bytes]]


class _Pending(NamedTuple):
    # Counts what was ever pending, so that of several the last one stays, in whatever order their markers come.
    number: int
    # Empty if the partition was committed anew since: then this one does not count, whatever its marker says.
    value: bytes


_PendingTopics = dict[str, dict[int, _Pending]]


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int  # -1 if the client did not tell it.
    metadata: str
    commit_timestamp_ms: int
    # From commits that asked for a retention time of their own; -1 for the others.
    expire_timestamp_ms: int = -1
    # Zero where it is not known: commits of old versions.
    topic_id: Uuid = ZERO_UUID


_UNREADABLE = CommittedOffset(-1, -1, "", commit_timestamp_ms=LONG_MAX)


class OffsetStore:
    __slots__ = ("_committed", "_count", "_open", "_pending", "_pending_count")

    def __init__(self) -> None:
        # No empty maps: a group that is in it has an offset.
        self._committed: dict[str, _Topics] = {}
        self._count = 0
        # Offsets of open transactions, by producer and group.
        self._pending: dict[int, dict[str, _PendingTopics]] = {}
        self._pending_count = 0
        # Producers with such offsets, by group; no empty sets.
        self._open: dict[str, set[int]] = {}

    def __len__(self) -> int:
        """Committed offsets."""
        return self._count

    # ---- reading

    @property
    def groups(self) -> Mapping[str, Mapping[str, Mapping[int, bytes]]]:
        """Committed offsets by group, topic and partition, to be read by `read_offset`."""
        return self._committed

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, bytes]]:
        return self._committed.get(group_id) or {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._committed.get(group_id)
        partitions = topics.get(topic) if topics is not None else None
        value = partitions.get(partition) if partitions is not None else None
        return None if value is None else read_offset(value)

    def has_group(self, group_id: str) -> bool:
        """It has offsets, committed or pending."""
        return group_id in self._committed or group_id in self._open

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """A transaction that has not ended has committed an offset of the partition."""
        return any(
            partition in self._pending[producer_id][group_id].get(topic, ())
            for producer_id in self._open.get(group_id, ())
        )

    def pending(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Topics and partitions that open transactions have committed; one may come twice."""
        for producer_id in self._open.get(group_id, ()):
            for topic, partitions in self._pending[producer_id][group_id].items():
                for partition in partitions:
                    yield topic, partition

    def pending_values(self, group_id: str, topic: str, partition: int) -> list[bytes]:
        """The values of open transactions, without those that were overtaken."""
        found = (
            self._pending[producer_id][group_id].get(topic, {}).get(partition)
            for producer_id in self._open.get(group_id, ())
        )
        return [pending.value for pending in found if pending is not None and pending.value]

    def group_ids(self) -> list[str]:
        """The ids of all groups with offsets, committed or pending."""
        return [*self._committed, *(group_id for group_id in self._open if group_id not in self._committed)]

    # ---- replay

    def replay_raw(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """A record of an offset, type 0 or 1, as it is stored. Raises UnknownRecordTypeError if the key cannot be read;
        a value is looked at when somebody asks for it."""
        try:
            group_end = 4 + (key[2] << 8 | key[3])
            group_id = str(key[4:group_end], "utf-8")
            topic_start = group_end + 2
            topic_end = topic_start + (key[group_end] << 8 | key[group_end + 1])
            topic = str(key[topic_start:topic_end], "utf-8")
            partition = key[topic_end] << 24 | key[topic_end + 1] << 16 | key[topic_end + 2] << 8 | key[topic_end + 3]
        except (IndexError, UnicodeDecodeError):
            raise UnknownRecordTypeError("a stored offset has a key that cannot be read") from None
        self.replay_value(group_id, topic, partition, value, producer_id)

    def replay_value(self, group_id: str, topic: str, partition: int, value: bytes | None, producer_id: int) -> None:
        """As `replay_raw`, of a record whose key is known."""
        if value is None:
            self._remove(group_id, topic, partition)
        elif producer_id == NO_PRODUCER:
            self._put(group_id, topic, partition, bytes(value))
            if self._open:
                self._overtake(group_id, topic, partition, self._pending_count)
        else:
            self._put_pending(producer_id, group_id, topic, partition, bytes(value))

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER) -> None:
        stored = None if value is None else encode_coordinator_value(value, _version(value))
        self.replay_value(key.group, key.topic, key.partition, stored, producer_id)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            self._close(group_id, producer_id)
            if not is_commit:
                continue
            for topic, partitions in topics.items():
                for partition, pending in partitions.items():
                    if pending.value:
                        self._put(group_id, topic, partition, pending.value)
                        self._overtake(group_id, topic, partition, pending.number)

    def forget(self) -> Iterator[None]:
        """Everything, in steps."""
        self._pending.clear()
        self._open.clear()
        freed = 0
        while self._committed:
            _, topics = self._committed.popitem()
            while topics:
                freed += len(topics.popitem()[1])
                if freed >= _FREED_PER_STEP:
                    freed = 0
                    yield

    def _put(self, group_id: str, topic: str, partition: int, value: bytes) -> None:
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            # Many groups read the same topics.
            partitions = topics[intern(topic)] = {}
        if partition not in partitions:
            self._count += 1
        partitions[partition] = value

    def _overtake(self, group_id: str, topic: str, partition: int, number: int) -> None:
        """What became pending before `number` was written before what has just been committed."""
        for producer_id in self._open.get(group_id, ()):
            partitions = self._pending[producer_id][group_id].get(topic, {})
            if partition in partitions and partitions[partition].number < number:
                partitions[partition] = partitions[partition]._replace(value=b"")

    def _put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, value: bytes) -> None:
        groups = self._pending.setdefault(producer_id, {})
        pending = _Pending(self._pending_count, value)
        groups.setdefault(group_id, {}).setdefault(intern(topic), {})[partition] = pending
        self._pending_count += 1
        self._open.setdefault(group_id, set()).add(producer_id)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._committed.get(group_id)
        if topics is not None and _remove_from(topics, topic, partition):
            self._count -= 1
            if not topics:
                del self._committed[group_id]
        for producer_id in tuple(self._open.get(group_id, ())):
            groups = self._pending[producer_id]
            _remove_from(groups[group_id], topic, partition)

    def _close(self, group_id: str, producer_id: int) -> None:
        producers = self._open[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._open[group_id]


def read_offset(value: bytes) -> CommittedOffset:
    """The value of a stored offset, in any of its versions. One that cannot be read is told as none, and kept: a newer
    version may have written it."""
    try:
        stored = decode(OffsetCommitValue, value[0] << 8 | value[1], value, 2)
    except (ProtocolError, IndexError):
        return _UNREADABLE
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        Uuid(stored.topic_id),
    )


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> StoredRecord:
    """Without a value it is a tombstone."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return StoredRecord(key, value, None if value is None else _version(value))


def _version(value: OffsetCommitValue) -> int:
    """As Kafka chooses it."""
    return 1 if value.expire_timestamp >= 0 else OFFSET_VALUE_VERSION


def _remove_from(topics: dict[str, dict[int, T]], topic: str, partition: int) -> bool:
    partitions = topics.get(topic)
    if partitions is None or partitions.pop(partition, None) is None:
        return False
    if not partitions:
        del topics[topic]
    return True
