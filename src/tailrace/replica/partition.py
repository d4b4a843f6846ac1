"""One partition of which this broker has a replica: the rules between a request and the log.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

- Only the leader appends and is read by clients; a request that names another leader epoch is refused.
- The high watermark is what every in-sync replica has; here, with a single replica, what this log has written - or,
  once `flush.messages` records are unsynced, what the device has. Consumers never see anything above it.
- An append is done when the log has written it. Its acknowledgement may have to wait for the high watermark; the append
  itself never waits and is never undone.
- A failing disk takes this log offline and leaves the others alone: KAFKA_STORAGE_ERROR until it recovers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.log.log import AppendResult, Log
from tailrace.log.plain import PlainBatch, PlainRules
from tailrace.log.validation import CheckedBatch, Origin
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NO_EPOCH, LeaderEpoch, NodeId, Offset, TopicPartition, Uuid
from tailrace.model.ports import FileSlice
from tailrace.model.settings import LONG_MAX
from tailrace.replica.flusher import Flusher
from tailrace.replica.waiters import OffsetWaiters, ReadWaiters

ACKS_ALL = -1
READ_COMMITTED = 1


class Partition:
    __slots__ = (
        "_flusher",
        "flush_messages",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "node_id",
        "plain_rules",
        "produces",
        "readers",
        "replicas",
        "takes_plain",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, log: Log, *, topic_id: Uuid, node_id: NodeId, flusher: Flusher) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.leader_id = NodeId(-1)
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = Offset(0)
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()
        self.high_watermark: int = log.log_end_offset
        self.flush_messages = log.config.flush_messages
        self.produces = OffsetWaiters()
        self.readers = ReadWaiters()
        self._flusher = flusher
        self._settle_plain()

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} leader={self.leader_id} epoch={self.leader_epoch}>"

    # ---- leadership

    def follow_image(
        self, *, leader_id: NodeId, leader_epoch: LeaderEpoch, replicas: tuple[NodeId, ...], isr: tuple[NodeId, ...]
    ) -> None:
        """What the committed metadata says of this partition."""
        was_leader = self.is_leader
        is_new_epoch = leader_epoch != self.leader_epoch
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.replicas, self.isr = replicas, isr
        if self.is_leader and is_new_epoch:
            self.leader_epoch_start_offset = Offset(self.log.log_end_offset)
            self.log.epochs.assign(leader_epoch, self.log.log_end_offset)
        if was_leader and (is_new_epoch or not self.is_leader):
            self.produces.fail(self._not_leader())
            self.readers.tell()
        self._settle_plain()
        self._raise_high_watermark()

    def _settle_plain(self) -> None:
        """Batches may go the short way if nothing but the write stands between them and their acknowledgement."""
        config = self.log.config
        self.plain_rules = PlainRules(config)
        self.takes_plain = (
            self.plain_rules.applies
            and self.is_leader
            and len(self.isr) == 1
            and self.min_insync_replicas == 1
            and config.flush_messages == LONG_MAX
        )

    @property
    def min_insync_replicas(self) -> int:
        """A topic with fewer replicas than the setting asks for can be written to all the same, as in Kafka."""
        return min(self.log.config.min_insync_replicas, max(1, len(self.replicas)))

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises unless this broker leads and the client knows the same epoch (KIP-320)."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            is_older = current_leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition} has leader epoch {self.leader_epoch}, the request says {current_leader_epoch}",
            )
        if self.leader_id != self.node_id:
            raise self._not_leader()

    def _not_leader(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self.node_id} does not lead {self.topic_partition}: broker {self.leader_id} does",
        )

    # ---- appending

    def check_may_append(self, required_acks: int) -> None:
        """Raises unless this broker leads and enough replicas are in sync."""
        if self.leader_id != self.node_id:
            raise self._not_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, "
                f"fewer than min.insync.replicas={self.min_insync_replicas}",
            )

    def append(
        self,
        batches: memoryview,
        *,
        required_acks: int,
        origin: Origin = Origin.CLIENT,
        checked: CheckedBatch | None = None,
    ) -> AppendResult:
        """Written to the log when it returns. `must_wait` tells whether the acknowledgement has to wait."""
        self.check_may_append(required_acks)
        log = self.log
        try:
            result = log.append_as_leader(batches, leader_epoch=self.leader_epoch, origin=origin, checked=checked)
        except StorageError as error:
            raise storage_failure(log, error) from error
        self._flusher.note_written(self, len(batches))
        if log.unflushed_messages >= self.flush_messages:
            self._flusher.request(self)
        elif len(self.isr) == 1:
            self.high_watermark = log.log_end_offset
            if self.readers:
                self.readers.tell()
        return result

    def append_plain(self, batches: Sequence[PlainBatch]) -> int:
        """Many batches in one write; for those alone that `takes_plain` lets through, which need no waiting. Gives the
        offset of the first."""
        log = self.log
        try:
            first_offset = log.append_plain(batches, leader_epoch=self.leader_epoch)
        except StorageError as error:
            raise storage_failure(log, error) from error
        self._flusher.note_written(self, sum([batch[1] for batch in batches]))
        self.high_watermark = log.log_end_offset
        if self.readers:
            self.readers.tell()
        return first_offset

    def must_wait(self, result: AppendResult, required_acks: int) -> bool:
        """Whether an acknowledgement of this append has to wait for the high watermark: with acks=all, where records
        are synced before they are acknowledged, and for a duplicate, whose original must not be confirmed before it
        is safe."""
        if self.high_watermark >= result.next_offset:
            return False
        return required_acks == ACKS_ALL or result.duplicate or self.log.unflushed_messages >= self.flush_messages

    def on_synced(self) -> None:
        if self.log.is_offline:
            self.produces.fail(storage_failure(self.log))
        self._raise_high_watermark()

    def _raise_high_watermark(self) -> None:
        """The one place, besides an undisturbed append, where it moves. It never goes back."""
        if not self.is_leader or len(self.isr) != 1:
            return
        log = self.log
        durable_end = log.log_end_offset if log.unflushed_messages < self.flush_messages else log.recovery_point
        if durable_end > self.high_watermark:
            self.high_watermark = durable_end
            self.produces.release(durable_end)
            if self.readers:
                self.readers.tell()

    def wait_for_high_watermark(self, offset: int, tell: Callable[[KafkaError | None], None]) -> None:
        """Tells once, unless `produces.discard` comes first; at once if there is nothing to wait for, or no hope."""
        if self.high_watermark >= offset:
            tell(None)
        elif not self.is_leader:
            tell(self._not_leader())
        elif self.log.is_offline:
            tell(storage_failure(self.log))
        else:
            self.produces.wait_until(offset, tell)

    def reconfigure(self) -> None:
        """The log has a new configuration."""
        self.flush_messages = self.log.config.flush_messages
        self._settle_plain()
        self._raise_high_watermark()

    def close(self) -> None:
        """The partition is deleted, or the broker stops."""
        self.leader_id = NodeId(-1)
        self.takes_plain = False
        self._flusher.forget(self)
        self.produces.fail(self._not_leader())
        self.readers.tell()

    # ---- reading

    @property
    def last_stable_offset(self) -> int:
        """Everything below belongs to no open transaction."""
        return self.high_watermark

    def readable_end(self, isolation_level: int) -> int:
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def read(self, offset: int, max_bytes: int, *, isolation_level: int, at_least_one_batch: bool) -> FileSlice | None:
        """For a consumer; the caller has checked the leader."""
        log = self.log
        if log.is_offline:
            raise storage_failure(log)
        try:
            return log.read(
                offset, max_bytes, end_offset=self.readable_end(isolation_level), at_least_one_batch=at_least_one_batch
            )
        except StorageError as error:
            raise storage_failure(log, error) from error

    def find_divergence(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) of the largest epoch that reader and log have in common, if the reader has gone past it:
        it followed a history that was cut off (KIP-595)."""
        epoch, end_offset = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.log_end_offset)
        if end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} knows nothing of leader epoch {last_fetched_epoch}: its log starts later",
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def delete_records(self, offset: int) -> int:
        """Moves the log start; -1 means the high watermark. Returns the new low watermark."""
        self.check_leader()
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is above its high watermark {self.high_watermark}",
            )
        if "delete" not in self.log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.topic_partition} cannot be deleted: its cleanup.policy does not include delete",
            )
        try:
            self.log.advance_start(wanted)
        except StorageError as error:
            raise storage_failure(self.log, error) from error
        return self.log.log_start_offset


def storage_failure(log: Log, cause: StorageError | None = None) -> KafkaError:
    reason = str(cause) if cause is not None else log.offline_reason
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk of {log.topic_partition} failed: {reason}")
