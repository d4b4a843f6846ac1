"""One partition of which this broker has a replica: the rules between a request and the log.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

- Only the leader appends for clients; a request that names another leader epoch is refused. A follower appends what its
  leader sends, cuts off what the leader does not have, and may be read up to the high watermark that it was told.
- The high watermark is what every in-sync replica has (replica.isr); with a single replica what this log has written -
  or, once `flush.messages` records are unsynced, what the device has. It does not rise while fewer than
  min.insync.replicas are in sync: whoever left last stays eligible to lead, and must have all that was confirmed
  (KIP-966). Within a leader epoch it never falls. Consumers never see anything above it.
- A follower counts for what it fetches with this leader epoch and in its newest incarnation, and for nothing else.
- One change of the in-sync set is proposed at a time. The metadata alone settles it: an image with a higher partition
  epoch ends the proposal.
- An append is done when the log has written it. Its acknowledgement may have to wait for the high watermark; the append
  itself never waits and is never undone but by following another leader.
- A failing disk takes this log offline and leaves the others alone: KAFKA_STORAGE_ERROR until it recovers. So does a
  broken invariant (`log.log_files`): the controller is told, and another replica leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.controller.image import PartitionImage
from tailrace.log.files.aborted import AbortedTransaction
from tailrace.log.log import AppendResult, Log
from tailrace.log.plain_batches import PlainBatch, PlainRules
from tailrace.log.validation import CheckedBatch, Origin
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError, not_leader
from tailrace.model.ids import NO_EPOCH, NodeId, TopicPartition, Uuid
from tailrace.model.metrics.traffic import Traffic
from tailrace.model.ports import FileSlice, RemotePart
from tailrace.model.settings import LONG_MAX
from tailrace.replica.flusher import Flusher
from tailrace.replica.isr import (
    NEVER_MS,
    Alone,
    FollowerState,
    Proposal,
    Surroundings,
    decide_high_watermark,
    decide_isr_expand,
    decide_isr_shrink,
)
from tailrace.replica.leading import mirrors
from tailrace.replica.leading.mirrors import MirrorRole
from tailrace.replica.repair.failures import storage_failure
from tailrace.replica.waiters import OffsetWaiters, ReadWaiters

ACKS_ALL = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

# Told of an exception that is our bug, after it was logged, and of the partition that it is about, if any.
OnBug = Callable[[BaseException, "Partition | None"], None]

_log = events.logger("partition")


class Partition:
    __slots__ = (
        "_is_alone",
        "_surroundings",
        "cut_to",
        "flush_messages",
        "flusher",
        "followers",
        "high_watermark",
        "is_under_min_isr",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "leader_recovery_state",
        "log",
        "mirror",
        "must_open",
        "node_id",
        "partition_epoch",
        "plain_rules",
        "produces",
        "proposal",
        "readers",
        "replica_readers",
        "replicas",
        "takes_plain",
        "tier",
        "topic_id",
        "topic_partition",
        "traffic",
        "wake_fetcher",
    )

    def __init__(
        self,
        log: Log,
        *,
        topic_id: Uuid,
        node_id: NodeId,
        flusher: Flusher,
        high_watermark: int | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        """`high_watermark` is the one that was stored; None means that this is the only replica, whose log is all there
        is to know."""
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.tier: RemotePart | None = None  # Where its topic has remote storage.
        self.node_id = node_id
        self.leader_id, self.leader_epoch, self.partition_epoch = NodeId(-1), NO_EPOCH, -1
        self.leader_epoch_start_offset = self.leader_recovery_state = 0
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()  # As committed.
        self.traffic = Traffic()
        self.proposal: Proposal | None = None
        self.mirror: MirrorRole | None = None
        self.cut_to: mirrors.Cut | None = None
        self.must_open = False  # It leads what was a mirror, and has yet to write what ends that.
        self.followers: dict[NodeId, FollowerState] = {}  # All other replicas while this one leads, else none.
        known = log.log_end_offset if high_watermark is None else high_watermark
        self.high_watermark: int = max(log.log_start_offset, min(known, log.log_end_offset))
        self.flush_messages = log.config.flush_messages
        self.produces = OffsetWaiters()
        self.readers = ReadWaiters()  # Consumers, told when the high watermark rises.
        self.replica_readers = ReadWaiters()  # Followers, told of every append.
        self.flusher = flusher
        self.wake_fetcher: Callable[[], None] | None = None  # Wakes whoever fetches for this replica.
        self._surroundings: Surroundings = surroundings or Alone()
        self._settle()

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} leader={self.leader_id} epoch={self.leader_epoch}>"

    @property
    def log_start_offset(self) -> int:
        """Of the whole, of which the log here may be the end alone."""
        return (self.tier or self.log).log_start_offset

    # ---- leadership

    def ends_leading(self, state: PartitionImage) -> bool:
        """Whether it leads, and by this newer state does not, or in another epoch."""
        return self.is_leader and (state.leader, state.leader_epoch) != (self.leader_id, self.leader_epoch)

    def follow_image(
        self, state: PartitionImage, *, mirror: MirrorRole | None = None, is_one_of_many: bool = False
    ) -> None:
        """What the committed metadata says of this partition. A line for each of many would tell nobody anything."""
        assert state.leader_epoch >= self.leader_epoch, f"leader epoch {state.leader_epoch} after {self!r}"
        assert state.partition_epoch >= self.partition_epoch, f"{state.partition_epoch} after {self.partition_epoch}"
        was_leader, was_mirror = self.is_leader, self.is_mirror
        is_new_epoch = state.leader_epoch != self.leader_epoch
        is_news = state.partition_epoch > self.partition_epoch
        self.proposal = None if is_news else self.proposal
        self.leader_id, self.leader_epoch, self.mirror = state.leader, state.leader_epoch, mirror
        self.partition_epoch = state.partition_epoch
        left = [node_id for node_id in self.isr if node_id not in state.isr]
        if was_leader and not is_new_epoch:
            self.traffic.note_isr(len(state.isr) - len(self.isr))
        self.replicas, self.isr = state.replicas, state.isr
        self.leader_recovery_state = state.leader_recovery_state
        if self.is_leader:
            self._take_lead(is_new_epoch=is_new_epoch)
            if is_news and not is_new_epoch and not is_one_of_many:
                _log.info("in-sync replicas", partition=self.topic_partition, isr=self.isr, epoch=self.partition_epoch)
            for node_id in left:  # What it was, it is no more: it is not waited for until it has caught up again.
                if node_id in self.followers:
                    self.followers[node_id].reset(caught_up_ms=NEVER_MS)
        else:
            self.followers, self.must_open, self.cut_to = {}, False, None
        if was_leader and (not self.is_leader or self.is_mirror > was_mirror):
            self.produces.fail(self.not_leader())
        if is_news:
            self.replica_readers.tell()  # Whoever left the in-sync set is looked at again.
        if is_new_epoch:
            self.readers.tell()
            if self.durable_end < self.log.log_end_offset:
                # Found unsynced after a restart: neither a leader nor a follower may count itself for it yet.
                self.flusher.request(self)
        self._settle()
        self.raise_high_watermark()

    def _take_lead(self, *, is_new_epoch: bool) -> None:
        log, now_ms = self.log, self._surroundings.patient_ms()
        if is_new_epoch:
            mirrors.take_cut(self)
            self.leader_epoch_start_offset = log.log_end_offset
            self.must_open = self.mirror is not None and mirrors.is_opening_due(log, self.mirror)
            if not self.is_mirror:  # The history of a mirror is its source's.
                log.epochs.assign(self.leader_epoch, log.log_end_offset)
        followers: dict[NodeId, FollowerState] = {}
        for node_id in (*self.replicas, *self.isr):
            if node_id == self.node_id or node_id in followers:
                continue
            follower = followers[node_id] = self.followers.get(node_id) or FollowerState(node_id)
            if is_new_epoch:
                follower.reset(caught_up_ms=now_ms if node_id in self.isr else NEVER_MS)
        self.followers = followers

    def _settle(self) -> None:
        """What appends ask for each time. Batches may go the short way if nothing but the write, and the wait for the
        followers, stands between them and their acknowledgement."""
        config = self.log.config
        self.plain_rules = PlainRules(config)
        self.is_under_min_isr = len(self.isr) < self.min_insync_replicas
        self._is_alone = self.is_leader and not self.followers
        may_append = self.is_leader and not (self.is_under_min_isr or self.must_open or mirrors.is_closed(self.mirror))
        self.takes_plain = self.plain_rules.applies and may_append and config.flush_messages == LONG_MAX

    @property
    def min_insync_replicas(self) -> int:
        """A topic with fewer replicas than the setting asks for can be written to all the same, as in Kafka."""
        return min(self.log.config.min_insync_replicas, max(1, len(self.replicas)))

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def is_mirror(self) -> bool:
        return self.mirror is not None and self.mirror.is_read_only

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raises unless this broker leads and the client knows the same epoch (KIP-320)."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            is_older = current_leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition} has leader epoch {self.leader_epoch}, the request says {current_leader_epoch}",
            )
        if self.leader_id != self.node_id:
            raise self.not_leader()
        if self.log.is_offline:
            raise storage_failure(self.log)  # Its offsets are not to be told either.

    def check_readable(self, current_leader_epoch: int = NO_EPOCH, *, must_lead: bool) -> None:
        """As `check_leader`; unless it must lead, a replica that follows a leader will do (KIP-392)."""
        if must_lead or self.leader_id < 0 or current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            self.check_leader(current_leader_epoch)

    def not_leader(self) -> KafkaError:
        return not_leader(self.topic_partition, node_id=self.node_id, leader_id=self.leader_id)

    # ---- appending

    def check_may_append(self, required_acks: int, origin: Origin = Origin.CLIENT) -> None:
        """Raises unless this broker leads and enough replicas are in sync."""
        if self.leader_id != self.node_id:
            raise self.not_leader()
        if self.mirror is not None:
            mirrors.refuse_writes(self, origin)
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            has, least = f"{len(self.isr)} in-sync replicas", f"min.insync.replicas={self.min_insync_replicas}"
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.topic_partition} has {has}, fewer than {least}")

    def append(
        self,
        batches: memoryview,
        *,
        required_acks: int,
        origin: Origin = Origin.CLIENT,
        checked: CheckedBatch | None = None,
    ) -> AppendResult:
        """Written to the log when it returns. `must_wait` tells whether the acknowledgement has to wait."""
        self.check_may_append(required_acks, origin)
        log = self.log
        try:
            result = log.append_as_leader(batches, leader_epoch=self.leader_epoch, origin=origin, checked=checked)
            if result.duplicate:
                return result  # A follower that is stuck there must not count as caught up because it came again.
            assert log.log_start_offset <= self.high_watermark <= result.base_offset, self._offsets()
        except (StorageError, AssertionError) as error:
            raise storage_failure(log, error) from error
        self.note_appended(result.base_offset, len(batches))
        if origin is Origin.COORDINATOR:
            log.producers.forget_decided(self.high_watermark)
        return result

    def note_appended(self, first_offset: int, size_bytes: int) -> None:
        log = self.log
        self.flusher.note_written(self, size_bytes)
        self.traffic.note_appended(log.log_end_offset - first_offset, size_bytes)
        if log.unflushed_messages >= self.flush_messages:
            self.flusher.request(self)
        self._tell_appended(first_offset)

    def end_opening(self) -> None:
        self.must_open = False
        self._settle()

    def _tell_appended(self, first_offset: int) -> None:
        """Followers that had everything were caught up until now: an idle partition is not fetched again and again."""
        if self._is_alone and self.log.unflushed_messages < self.flush_messages:
            self.high_watermark = self.log.log_end_offset
            if self.readers:
                self.readers.tell()
            return
        if len(self.isr) == 1:
            self.raise_high_watermark()
        now_ms = self._surroundings.patient_ms()
        for follower in self.followers.values():
            if follower.log_end_offset == first_offset:
                follower.last_caught_up_ms = now_ms
        if self.replica_readers:
            self.replica_readers.tell()

    def append_plain(self, batches: Sequence[PlainBatch]) -> int:
        """As `append`, many batches in one write, of those that `takes_plain` lets through. Gives the first offset."""
        log = self.log
        try:
            first_offset = log.append_plain(batches, leader_epoch=self.leader_epoch)
            assert log.log_start_offset <= self.high_watermark <= first_offset, self._offsets()
        except (StorageError, AssertionError) as error:
            raise storage_failure(log, error) from error
        size_bytes = sum([batch[1] for batch in batches])
        self.flusher.note_written(self, size_bytes)
        self.traffic.note_appended(log.log_end_offset - first_offset, size_bytes, len(batches))
        self._tell_appended(first_offset)
        return first_offset

    def must_wait(self, result: AppendResult, required_acks: int) -> bool:
        """Whether its acknowledgement has to wait for the high watermark: with acks=all, and where records are synced
        before they are acknowledged; so too for a duplicate, whose original must not be confirmed before it is safe."""
        if self.high_watermark >= result.next_offset:
            return False
        return required_acks == ACKS_ALL or self.durable_end < result.next_offset

    def on_synced(self) -> None:
        if self.log.is_offline:
            self.produces.fail(storage_failure(self.log))
        self.raise_high_watermark()
        if self.wake_fetcher is not None:
            self.wake_fetcher()

    @property
    def durable_end(self) -> int:
        """What this replica may count itself for: all it has written, or what is synced where the topic asks for it."""
        log = self.log
        return log.log_end_offset if log.unflushed_messages < self.flush_messages else log.recovery_point

    def raise_high_watermark(self) -> None:
        """The one place, besides an undisturbed append, where a leader's moves. It never goes back."""
        if not self.is_leader or self.is_under_min_isr or self.log.is_offline:
            return  # Under the minimum: who left the in-sync set last may be elected, and must have all (KIP-966).
        new = self.durable_end
        if self.followers:
            counted = self.isr if self.proposal is None else (*self.isr, *self.proposal.isr)
            new = decide_high_watermark(new, self.followers.values(), counted=counted, may_join=self._may_join)
        if new > self.high_watermark:
            if new > self.log.log_end_offset:
                # Not raised: some of those who call have nobody above them who would take it for this partition's.
                self.log.give_up(AssertionError(f"the high watermark would rise to {new}: {self._offsets()}"))
                return
            self.high_watermark = new
            self.produces.release(new)
            if self.readers:
                self.readers.tell()

    def _may_join(self, follower: FollowerState) -> bool:
        world, log_end_offset = self._surroundings, self.log.log_end_offset
        is_caught_up = follower.is_caught_up(log_end_offset, world.patient_ms(), world.lag_max_ms)
        return is_caught_up and world.may_be_in_sync(self.topic_partition, follower.node_id, follower.broker_epoch)

    def wait_for_high_watermark(self, offset: int, tell: Callable[[KafkaError | None], None]) -> None:
        """Tells once, unless `produces.discard` comes first; at once if there is nothing to wait for, or no hope."""
        if self.high_watermark >= offset:
            tell(None)
        elif not self.is_leader:
            tell(self.not_leader())
        elif self.log.is_offline:
            tell(storage_failure(self.log))
        else:
            self.produces.wait_until(offset, tell)

    def reconfigure(self) -> None:
        """The log has a new configuration."""
        self.flush_messages = self.log.config.flush_messages
        if self.durable_end < self.log.log_end_offset:
            self.flusher.request(self)  # What was written under a laxer setting; nobody may be about to append.
        self._settle()
        self.raise_high_watermark()

    def close(self) -> None:
        """The partition is deleted, or the broker stops."""
        self.leader_id = NodeId(-1)
        self.takes_plain = self._is_alone = False
        self.proposal, self.followers = None, {}
        self.flusher.forget(self)
        self.produces.fail(self.not_leader())
        self.readers.tell()
        self.replica_readers.tell()

    def check_offsets(self) -> None:
        assert self.log.log_start_offset <= self.high_watermark <= self.log.log_end_offset, self._offsets()

    def _offsets(self) -> str:
        return f"{self!r} has its high watermark at {self.high_watermark}: {self.log}"

    # ---- the followers of this leader

    def note_fetch(self, node_id: NodeId, broker_epoch: int, *, offset: int, log_start_offset: int) -> None:
        """A follower has everything below `offset`. The caller has checked that it knows this leader epoch and that its
        log has not parted from this one. Raises if it is no replica, or an incarnation that has been replaced."""
        follower = self.followers.get(node_id)
        if follower is None:
            why = f"Broker {node_id} has no replica of {self.topic_partition} yet"
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, why)
        world = self._surroundings
        if broker_epoch < max(follower.broker_epoch, world.registered_epoch(node_id)):
            why = f"Broker {node_id} has come back with a later epoch than {broker_epoch}"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            return  # It cannot be read either, and is told so.
        has_moved = follower.log_end_offset != offset
        if offset < follower.log_end_offset:
            self.replica_readers.tell()  # A request that was overtaken, perhaps: its successor is looked at again.
        follower.note_fetch(
            offset=offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=self.log.log_end_offset,
            now_ms=world.patient_ms(),
        )
        if node_id not in self.isr and self.proposal is None:
            self._expand_isr(follower)
        if has_moved:
            self.raise_high_watermark()

    def _expand_isr(self, follower: FollowerState) -> None:
        wanted = decide_isr_expand(
            self.isr,
            follower,
            replicas=self.replicas,
            high_watermark=self.high_watermark,
            leader_epoch_start_offset=self.leader_epoch_start_offset,
        )
        identity = self.topic_partition, follower.node_id, follower.broker_epoch
        if wanted != self.isr and self._surroundings.may_be_in_sync(*identity):
            self._propose(wanted)

    def shrink_isr(self) -> None:
        """Followers that have lagged for too long are to leave the in-sync set; those outside are not waited for."""
        self.raise_high_watermark()
        # A leader that cannot be read would find all others lagging, and be left as the only one in sync.
        if not self.is_leader or self.proposal is not None or len(self.isr) == 1 or self.log.is_offline:
            return
        wanted = decide_isr_shrink(
            self.isr,
            self.followers.values(),
            leader_end_offset=self.log.log_end_offset,
            now_ms=self._surroundings.patient_ms(),
            lag_max_ms=self._surroundings.lag_max_ms,
        )
        if wanted != self.isr:
            self._propose(wanted)

    def _propose(self, isr: tuple[NodeId, ...]) -> None:
        if self.node_id not in isr:
            self.log.give_up(AssertionError(f"a leader proposes {isr}, without itself: {self._offsets()}"))
            return
        world, followers = self._surroundings, self.followers
        epochs = [world.own_epoch if each == self.node_id else followers[each].broker_epoch for each in isr]
        self.proposal = Proposal(isr, tuple(epochs), self.leader_epoch, self.partition_epoch)
        self._surroundings.propose_isr(self)

    def drop_proposal(self) -> None:
        self.proposal = None
        self.raise_high_watermark()

    # ---- reading

    @property
    def last_stable_offset(self) -> int:
        """Everything below belongs to no open transaction."""
        high_watermark = self.high_watermark
        return self.log.last_stable_offset(high_watermark) if self.log.producers.has_undecided else high_watermark

    def readable_end(self, isolation_level: int) -> int:
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.high_watermark

    def read(
        self, offset: int, max_bytes: int, *, isolation_level: int, at_least_one_batch: bool, by_follower: bool = False
    ) -> FileSlice | None:
        """For a consumer or, up to the log end, for a follower; the caller has checked the leader."""
        log = self.log
        if log.is_offline:
            raise storage_failure(log)
        try:
            end_offset = log.log_end_offset if by_follower else self.readable_end(isolation_level)
            return log.read(offset, max_bytes, end_offset=end_offset, at_least_one_batch=at_least_one_batch)
        except StorageError as error:
            raise storage_failure(log, error) from error

    def find_aborted(self, slice_: FileSlice, offset: int) -> list[AbortedTransaction]:
        """What a reader at read_committed has to pass over in what it was given from `offset` on."""
        try:
            return self.log.files.find_aborted(slice_, offset, end_offset=self.last_stable_offset)
        except StorageError as error:
            raise storage_failure(self.log, error) from error
