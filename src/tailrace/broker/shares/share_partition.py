"""A share-partition on the leader of its partition: the window, its state with the share coordinator, and who waits.

    loading   the share coordinator is asked for the state
    ready     records are given out and acknowledged
    ended     another broker leads, an administrator has set other offsets, or the topic is gone: whoever comes next
              makes it anew

Changes of one turn of the loop are written together, and those that come while a write is under way follow with the
next one: there is never more than one. Acknowledgements are answered when the state is stored. What is given up is
archived when its dead letter is written (`giving_up`), where the group has a topic for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.broker.shares.cold import ColdPieces, first_since
from tailrace.broker.shares.dead_letters import DeadLetters
from tailrace.broker.shares.giving_up import GivenUp
from tailrace.broker.shares.key_order import KeyOrder
from tailrace.coordinator.share_partition.delivery import Acknowledged, Delivery, Limits, RecordState
from tailrace.coordinator.share_partition.window import Changes, Window
from tailrace.coordinator.share_state.batches import StateBatch, overlay
from tailrace.model import events
from tailrace.model.attention import timer_seconds
from tailrace.model.config import GroupConfig, reset_duration_ms
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.replica.partition import READ_COMMITTED, READ_UNCOMMITTED
from tailrace.replica.waiters import ReadWaiters
from tailrace.wire.apis.shares import ReadShareGroupStateRequest, WriteShareGroupStateRequest

if TYPE_CHECKING:
    from tailrace.broker.coordinators.share_states import ShareStates
    from tailrace.broker.node import Node
    from tailrace.broker.shares.giving_up import Tell
    from tailrace.broker.shares.tally import Tally
    from tailrace.model.ports import FileSlice
    from tailrace.replica.partition import Partition

_log = events.logger("shares")

_UNKNOWN_START = -1
# After a write that failed: locks that have run out are looked at again.
_RETRY_MS = 1000.0
# Locks that run out one after the other are looked for together: each time that is a walk through the whole window.
_EXPIRY_PAUSE_MS = 5.0
# What a share coordinator says, and what members are told of it: as in Kafka.
_TOLD = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
# After these it has to be made anew.
_ENDING = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    }
)


class SharePartition:
    def __init__(
        self,
        node: Node,
        states: ShareStates,
        *,
        group_id: str,
        partition: Partition,
        config: Callable[[], GroupConfig],
        tally: Tally,
        on_end: Callable[[SharePartition], None],
        is_read: Callable[[], bool],
    ) -> None:
        self.group_id = group_id
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.window = Window(0)
        # Fetches that wait for records to become available.
        self.readers = ReadWaiters()
        self.is_ready = self.is_ended = False
        self._node = node
        self._states = states
        self._config = config
        self._limits_of: GroupConfig | None = None
        self._limits: Limits
        self._tally = tally
        self._on_end = on_end
        self._is_read = is_read
        self._state_epoch = -1
        self._key_order: KeyOrder | None = None
        self.cold = ColdPieces(self)
        self.background = node.ports.background
        self.begin = states.begin
        self.decompressed_bytes_max = node.config.max_decompressed_bytes
        self.given_up = GivenUp(
            DeadLetters(node, partition, group_id, tally).write,
            self._archive,
            states.begin,
            tally,
            on_failure=self.end_if_idle,
            name=repr(self),
        )
        self._loop = asyncio.get_running_loop()
        self._loading: asyncio.Future[KafkaError | None] | None = None
        self._changes: Changes = []
        self._tells: list[Tell] = []
        self._is_writing = False
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = float("inf")

    def __repr__(self) -> str:
        return f"<SharePartition {self.group_id} {self.partition.topic_partition}>"

    @property
    def limits(self) -> Limits:
        config = self._config()
        if config is self._limits_of:
            return self._limits
        self._limits_of = config
        self._limits = Limits(
            delivery_count_max=config.share_delivery_count_limit,
            window_max=config.share_partition_max_record_locks,
            lock_ms=config.share_record_lock_duration_ms,
            may_renew=config.share_renew_acknowledge_enable,
            # A topic of dead letters that is read by the group itself would grow for ever.
            has_dead_letters=config.errors_deadletterqueue_topic_name not in ("", self.partition.topic_partition.topic),
            backoff_ms=config.share_retry_backoff_ms,
            backoff_factor=config.share_retry_backoff_factor,
            backoff_max_ms=config.share_retry_backoff_max_ms,
        )
        return self._limits

    @property
    def is_read_committed(self) -> bool:
        return self._config().share_isolation_level == "read_committed"

    @property
    def isolation_level(self) -> int:
        return READ_COMMITTED if self.is_read_committed else READ_UNCOMMITTED

    @property
    def key_order(self) -> KeyOrder | None:
        """Of groups that ask for it, for as long as they do."""
        if not self._config().share_key_order:
            self._drop_key_order()
        elif self._key_order is None:
            self._key_order = KeyOrder(self)
        return self._key_order

    def _drop_key_order(self) -> None:
        if self._key_order is not None:
            self._key_order.close()
            self._key_order = None

    @property
    def is_full(self) -> bool:
        """Nothing new can be delivered, whatever is written."""
        blocked = self._key_order is not None and self._key_order.is_blocked
        return blocked or not self.window.may_acquire(self.limits)

    def read(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Whole batches of what members may see. Raises KafkaError."""
        partition = self.partition
        if offset < partition.log.log_start_offset:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Offset {offset} of {partition.topic_partition} lies in remote storage alone, where no keys are read: "
                f"set share.key.order=false, or the group's offsets to {partition.log.log_start_offset}.",
            )
        return partition.read(offset, max_bytes, isolation_level=self.isolation_level, at_least_one_batch=True)

    def check(self) -> None:
        """Raises KafkaError if this broker may not give records out."""
        self.partition.check_leader()
        if self.is_ended or self.partition.leader_epoch != self.leader_epoch:
            self.end()
            raise self.partition.not_leader()

    # ---- loading

    def look_again(self) -> None:
        """A member comes after a time without any: an administrator may have set other offsets."""
        self.is_ready = False

    async def wait_ready(self) -> KafkaError | None:
        if self.is_ready:
            return None
        if self._loading is None:
            self._loading = self._loop.create_future()
            self._states.begin(self._load(self._loading))
        return await asyncio.shield(self._loading)

    async def _load(self, loading: asyncio.Future[KafkaError | None]) -> None:
        problem: KafkaError | None = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker stops")
        try:
            problem = await self._read_state()
        except KafkaError as error:
            problem = error
        finally:
            self._loading = None
            self.is_ready = problem is None and not self.is_ended
            if not loading.done():
                loading.set_result(problem)
            if problem is not None:
                self.end()

    async def _read_state(self) -> KafkaError | None:
        topic_id, index = self._place
        request = ReadShareGroupStateRequest
        data = request.PartitionData(partition=index, leader_epoch=self.leader_epoch)
        results = await self._states.ask(
            request(group_id=self.group_id, topics=[request.ReadStateData(topic_id=topic_id, partitions=[data])])
        )
        result = results[topic_id, index]
        if result.error_code:
            code = ErrorCode(result.error_code)
            # Nobody has had its state kept yet: the group's coordinator is about to.
            if code is ErrorCode.INVALID_REQUEST:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return KafkaError(_TOLD.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), result.error_message or "")
        if result.state_epoch == self._state_epoch:
            return None  # It was read before, and the window knows better.
        self._state_epoch = result.state_epoch
        is_new = result.start_offset == _UNKNOWN_START
        start = await self._first_offset() if is_new else result.start_offset
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ]
        self._drop_key_order()
        self.window = Window(start, batches)
        self.window.move_start(self.partition.log_start_offset)
        if is_new:
            # Stored at once: the next leader must not begin anywhere else.
            return await self._write_state([])
        return None

    async def _first_offset(self) -> int:
        """Where a group begins that has not read the partition yet."""
        reset = self._config().share_auto_offset_reset
        if reset == "earliest":
            return self.partition.log_start_offset
        age_ms = reset_duration_ms(reset)
        if age_ms is None:
            return self.partition.high_watermark
        return await first_since(self.partition, self._node.ports.clock.wall_ms() - age_ms)

    @property
    def _place(self) -> tuple[Uuid, int]:
        return Uuid(self.partition.topic_id), self.partition.topic_partition.partition

    # ---- changes

    def acknowledge(self, member_id: str, batches: Sequence[Acknowledged], tell: Tell) -> None:
        """`tell` hears what came of it. Raises KafkaError, and then nothing has changed."""
        self.check()
        if not self.is_ready:
            # A leader that does not know the state holds nothing for anybody.
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The record state is invalid: the leader has changed.")
        changes = self.window.acknowledge(member_id, batches, limits=self.limits, now_ms=self._now_ms())
        self._tally.note_acknowledged(batches)
        self._arm_timer()
        self._follow(changes, tell)

    def release(self, member_id: str) -> None:
        """The member is gone: what it holds is for others."""
        if self.is_ready and not self.is_ended:
            self._follow(self.window.release(member_id, limits=self.limits, now_ms=self._now_ms()))

    def make_room(self) -> None:
        """Somebody wants records, and the window has no room for any."""
        if self.window.begins_with_dead:
            self.given_up.make_room()

    def note_acquired(self, count: int) -> None:
        self._tally.delivered += count
        self._arm_timer()

    def _follow(self, changes: Changes, tell: Tell | None = None) -> None:
        """What was begun is stored, and what was given up by it has its letters written."""
        dead = self.window.take_dead()
        if tell is not None and changes and dead:
            tell = _Both(tell)
        if dead:
            self.given_up.add(dead, tell)
        if changes:
            self._store(changes, tell)
        elif not dead and tell is not None:
            tell(None)

    def _archive(self, deliveries: list[Delivery], tell: Tell | None) -> None:
        changes = [] if self.is_ended else self.window.archive(deliveries)
        if changes:
            self._store(changes, tell)
        elif tell is not None:
            tell(None)

    def _store(self, changes: Changes, tell: Tell | None) -> None:
        self._changes += changes
        if tell is not None:
            self._tells.append(tell)
        if not self._is_writing and self._turn is None:
            self._turn = self._loop.call_soon(self._begin_write)

    def _begin_write(self) -> None:
        self._turn = None
        if not self.is_ended and self._changes:
            self._is_writing = True
            self._states.begin(self._write())

    async def _write(self) -> None:
        changes, tells = self._changes, self._tells
        self._changes, self._tells = [], []
        problem: KafkaError | None = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker stops")
        try:
            problem = await self._write_state(changes)
        finally:
            self._is_writing = False
            if problem is None:
                self.window.commit(changes)
            else:
                self.window.undo(changes)
                self._archive_later([each for each in changes if each.state is RecordState.ARCHIVING])
            for tell in tells:
                tell(problem)
            if self.is_ended:
                self._drop_changes()
            elif self._changes and self._turn is None:
                self._turn = self._loop.call_soon(self._begin_write)
            self.readers.tell()
            self.end_if_idle()
            self._arm_timer(not_before_ms=_EXPIRY_PAUSE_MS if problem is None else _RETRY_MS)

    def _archive_later(self, deliveries: list[Delivery]) -> None:
        """They have their letters, and only that could not be stored."""
        if deliveries:
            self._loop.call_later(_RETRY_MS / 1000, self._archive, deliveries, None)

    async def _write_state(self, changes: Changes) -> KafkaError | None:
        topic_id, index = self._place
        start_offset, done_count = self.window.prospect()
        told = [StateBatch(each.first, each.last, int(each.stored_state), each.count) for each in changes]
        request = WriteShareGroupStateRequest
        data = request.PartitionData(
            partition=index,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=done_count,
            state_batches=[
                request.StateBatch(**each._asdict()) for each in overlay((), sorted(told), start_offset=start_offset)
            ],
        )
        results = await self._states.ask(
            request(group_id=self.group_id, topics=[request.WriteStateData(topic_id=topic_id, partitions=[data])])
        )
        result = results[topic_id, index]
        if not result.error_code:
            return None
        code = ErrorCode(result.error_code)
        _log.warning("a share-partition's state was not stored", share_partition=repr(self), error=code.name)
        if code in _ENDING:
            self.end()
        return KafkaError(_TOLD.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), result.error_message or "")

    # ---- locks

    def _now_ms(self) -> float:
        return self._node.ports.clock.patient_ms()

    def _arm_timer(self, *, not_before_ms: float = _EXPIRY_PAUSE_MS) -> None:
        due_ms = self.window.next_due_ms()
        if due_ms is None or self.is_ended:
            return
        due_ms = max(due_ms, self._now_ms() + not_before_ms)
        if due_ms >= self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._loop.call_later(timer_seconds(due_ms - self._now_ms()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, float("inf")
        if self.is_ended:
            return
        held_count = self.window.counts().held
        self._follow(self.window.expire(self._now_ms(), self.limits))
        self._tally.expired += held_count - self.window.counts().held
        self.readers.tell()  # Delays may be over.
        self._arm_timer()
        self.end_if_idle()

    # ---- the end

    def end_if_idle(self) -> None:
        """Nobody reads it, holds something of it, or waits for something to be written. A delay would be forgotten."""
        is_busy = self._is_writing or self._changes or self._loading is not None or self._is_read()
        is_busy = is_busy or self.given_up.is_writing or self.window.has_delayed
        if not is_busy and not self.window.has_held:
            self.end()

    def end(self) -> None:
        if self.is_ended:
            return
        self.is_ended, self.is_ready = True, False
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        self._timer = self._turn = None
        self.given_up.close(self.partition.not_leader())
        self._drop_key_order()
        self.cold.close()
        if not self._is_writing:
            self._drop_changes()
        self._on_end(self)
        self.readers.tell()

    def _drop_changes(self) -> None:
        tells, self._tells, self._changes = self._tells, [], []
        for tell in tells:
            tell(self.partition.not_leader())


class _Both:
    """Tells when two things have ended, and what went wrong with one of them."""

    __slots__ = ("_error", "_left", "_tell")

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._left = 2
        self._error: KafkaError | None = None

    def __call__(self, error: KafkaError | None) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            self._tell(self._error)
