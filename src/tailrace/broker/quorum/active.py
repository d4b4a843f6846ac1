"""The active controller: what the leader of the quorum does beyond following the log, for one term.

    decide    the controller's op, on everything written so far
    append    its records, as one batch, through Raft; if that fails the machine has not changed. What a client cannot
              ask for in parts becomes several batches if it is too large
    replay    into the machine, so that the next op builds on it; the machine is never ahead of the log
    publish   the image as of what is committed, before any answer goes out
    answer    the requests whose records are committed; one without records waits for what it has read

Besides requests there are deadlines: brokers that are silent, leaders out of balance, and an idle log, to which a no-op
record is written so that all nodes see that the quorum can still commit (KIP-835).

A term ends when Raft says so: the machine goes back to what was committed, and all that waited are answered with an
error. Never reads the log: it starts with a machine that has replayed the whole of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.controller.image import METADATA_VERSION, MetadataImage
from tailrace.model import events
from tailrace.model.attention import timer_seconds
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.wire.apis.stored_records import NoOpRecord

if TYPE_CHECKING:
    from tailrace.broker.quorum.driver import RaftDriver
    from tailrace.broker.quorum.metadata_log import MetadataLog
    from tailrace.controller.image import BrokerImage
    from tailrace.controller.machine import Controller
    from tailrace.controller.view import Asker
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ids import NodeId
    from tailrace.model.ports import Clock
    from tailrace.wire.apis.quorum import BrokerHeartbeatRequest
    from tailrace.wire.schema import Message

_log = events.logger("controller")


class _Waiter(NamedTuple):
    """A request that is answered once the log is committed up to an offset."""

    end_offset: int
    done: asyncio.Future[None]


class ActiveController:
    """`publish` is told each image once it is committed; `on_bug` of an error that only a bug of ours can be.
    `bootstrap` gives what `format` left for the first term of all.
    `idle_interval_ms` is 0 where nobody has to be shown that the quorum lives."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: Controller,
        driver: RaftDriver,
        log: MetadataLog,
        clock: Clock,
        *,
        epoch: int,
        idle_interval_ms: int,
        publish: Callable[[MetadataImage], None],
        on_bug: Callable[[Exception], None],
        bootstrap: Callable[[], Sequence[Message]],
    ) -> None:
        self.epoch = epoch
        self._bootstrap = bootstrap
        self._config = config
        self._controller = controller
        self._driver = driver
        self._log = log
        self._clock = clock
        self._idle_interval_ms = idle_interval_ms
        self._publish = publish
        self._on_bug = on_bug
        # Up to here all is committed and published; a term begins with nothing else.
        self._high_watermark = log.end_offset
        # Images of batches that are written and not yet committed, oldest first. Bounded, as are the waiters, by the
        # requests under way: at most one a connection.
        self._written: deque[MetadataImage] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = float("inf")
        self._last_append_ms = self._now_ms()

    def activate(self) -> None:
        """The first active controller of a cluster writes its first records. StorageError."""
        self._controller.activate(self._now_ms())
        if METADATA_VERSION not in self._controller.image.features:
            from tailrace.controller.features import bootstrap_records

            self._append([*bootstrap_records(self._config), *self._bootstrap()])
        self._arm()

    def decide(self, request: Message, asker: Asker) -> Message:
        """Its answer may go out after `wait_committed`. KafkaError, and then nothing has changed."""
        result = self._controller.op(request, self._clock.wall_ms(), self._now_ms(), asker)
        if result.records:
            try:
                (self._append_divided if result.is_divisible else self._append)(result.records)
            except StorageError as error:
                raise (not_controller() if self._is_over else storage_error(str(error))) from error
        self._arm()
        return result.response

    async def wait_committed(self) -> None:
        """Until everything written so far is committed and published. KafkaError if this term ends first."""
        end_offset = self._log.end_offset
        if self._high_watermark >= end_offset:
            return
        waiter = _Waiter(end_offset, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        await waiter.done

    def silent_brokers(self) -> list[BrokerImage]:
        return self._controller.silent_brokers(self._now_ms())

    def note_refused(self, node_id: NodeId, since_ms: float) -> None:
        self._controller.note_refused(node_id, since_ms)
        self._arm()

    def note_life(self, request: BrokerHeartbeatRequest) -> None:
        self._controller.note_life(request)

    def on_committed(self, high_watermark: int) -> None:
        image: MetadataImage | None = None
        while self._written and self._written[0].next_offset <= high_watermark:
            image = self._written.popleft()
        if not self._written and self._controller.image.next_offset < high_watermark:
            # All that is left is Raft's own.
            self._controller.replay_control(high_watermark)
            image = self._controller.image
        if image is not None:
            self._publish(image)
        self._high_watermark = high_watermark
        while self._waiters and self._waiters[0].end_offset <= high_watermark:
            _finish(self._waiters.popleft(), None)

    def deactivate(self, committed: MetadataImage, error: KafkaError) -> None:
        """The term is over: what was not committed may never be."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._written.clear()
        self._controller.deactivate()
        self._controller.revert(committed)
        while self._waiters:
            _finish(self._waiters.popleft(), error)

    def _append_divided(self, records: Sequence[Message]) -> None:
        """In as many batches as it takes. If it raises, the first of them may have been written: who is asked again, or
        looks again, decides on what is left."""
        try:
            self._append(records)
        except KafkaError as error:
            if error.code is not ErrorCode.POLICY_VIOLATION or len(records) == 1:
                raise
            half = len(records) // 2
            self._append_divided(records[:half])
            self._append_divided(records[half:])

    def _append(self, records: Sequence[Message]) -> None:
        """KafkaError or StorageError, and then nothing has changed."""
        offset = self._driver.append(records) - len(records)
        try:
            for index, record in enumerate(records):
                self._controller.replay(offset + index, record)
        except Exception as error:
            # The log has what the machine has not, or only half of it: it must not decide anything more.
            self._on_bug(error)
            raise
        self._written.append(self._controller.image)
        self._last_append_ms = self._now_ms()

    # ---- deadlines

    def _now_ms(self) -> float:
        """What brokers have to do in time is judged by patient time: their heartbeats may lie unread."""
        return self._clock.patient_ms()

    def _arm(self) -> None:
        """A timer that comes too early looks again; so only an earlier deadline moves it."""
        deadline_ms = self._controller.next_deadline_ms()
        if self._idle_interval_ms:
            idle_ms = self._last_append_ms + self._idle_interval_ms
            deadline_ms = idle_ms if deadline_ms is None else min(deadline_ms, idle_ms)
        if deadline_ms is None or deadline_ms >= self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_seconds = timer_seconds(deadline_ms - self._now_ms())
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, float("inf")
        if not self._driver.may_act:
            self._retry_later()
            return
        try:
            self._meet_deadlines(self._now_ms())
            self._arm()
        except (KafkaError, StorageError) as error:
            _log.warning("the controller could not write what was due", cause=error)
            if not self._is_over:
                self._retry_later()
        except Exception as error:
            # Without its deadlines a controller fences nobody: it must not lead on.
            self._on_bug(error)

    def _meet_deadlines(self, now_ms: float) -> None:
        deadline_ms = self._controller.next_deadline_ms()
        is_due = deadline_ms is not None and deadline_ms <= now_ms
        decision = self._controller.on_deadline(now_ms, self._clock.wall_ms()) if is_due else None
        if decision is not None and decision.records:
            self._append_divided(decision.records)
        elif self._idle_interval_ms and now_ms >= self._last_append_ms + self._idle_interval_ms:
            if self._written:
                # What is not committed yet shows as much, and without a majority nothing is to pile up.
                self._last_append_ms = now_ms
            else:
                self._append([NoOpRecord()])

    def _retry_later(self) -> None:
        self._timer_ms = self._now_ms() + _RETRY_MS
        self._timer = asyncio.get_running_loop().call_later(_RETRY_MS / 1000, self._on_timer)


# After a full disk refused what was due, or while this controller may have been replaced.
_RETRY_MS = 100.0


def _finish(waiter: _Waiter, error: KafkaError | None) -> None:
    if waiter.done.done():
        # Its client is gone and the handler was cancelled; what it has changed stays.
        return
    if error is None:
        waiter.done.set_result(None)
    else:
        waiter.done.set_exception(error)


def storage_error(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The change was not made: {reason}")


def not_controller() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")
