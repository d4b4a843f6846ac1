"""One handler of an application at work: reads as a member of a group, calls the handler, commits what is finished.

    read      until the window of a partition is full; then that partition pauses, and the membership goes on
    run       `concurrency` handlers at a time over all partitions, in the order that is kept (`window`)
    fail      again on the spot, to a retry topic or to the dead letters (`handling`)
    commit    finished ranges, with what they ask to be written, in one transaction (`committing`)

Before a partition is given up, what runs of it may finish for a while, and is committed. After a loss nothing is:
another member may have the partition, and the coordinator would refuse.

A handler, and what it does outside of Kafka, runs at least once for a record. No record is lost, and each is written to
a retry topic, to the dead letters or to an output at most once for an attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple, TypedDict

from tailrace.kit.admin import Admin
from tailrace.kit.app.committing import Committer
from tailrace.kit.app.handling import Handling
from tailrace.kit.app.seen import Seen, SeenTopic
from tailrace.kit.app.status import Counts, Running, Status
from tailrace.kit.app.window import Finished, Order, Part, Window
from tailrace.kit.app.work import Batch, Held, Item, Outgoing, Place, Work, batches_of, bytes_of, hold, size_of
from tailrace.kit.consumer import Consumer
from tailrace.kit.messages import Message
from tailrace.kit.messages import TopicPartition as PublicPartition
from tailrace.kit.retries.plan import Again
from tailrace.model.errors import KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Clock

_log = logging.getLogger("tailrace.app")

# An async handler that never waits lets nothing else run; after so long the loop has its turn.
_TURN_MS = 5
_POLL_S = 0.2
_POLL_RECORDS = 500


class Limits(NamedTuple):
    concurrency: int = 16
    order: Order = Order.KEY
    # Of one partition: records that were read and are not committed. Beyond it the partition pauses.
    window_records: int = 2000
    window_bytes: int = 32 * 1024 * 1024
    commit_interval_ms: int = 200
    # How long handlers may take to finish while their partition is given up, and at a stop.
    finish_ms: int = 30_000
    # Of one transaction, as records.
    transaction_writes: int = 1000
    # Handlers that run for longer are told by `status`.
    slow_ms: int = 60_000
    # The longest that a record of a retry topic may ask to wait.
    wait_max_ms: int = 600_000
    # How many records a handler gets together, at most; 0: each by itself.
    batch: int = 0


class LimitOptions(TypedDict, total=False):
    """Those of `Limits` that a handler is declared with by their names."""

    window_records: int
    window_bytes: int
    commit_interval_ms: int
    finish_ms: int
    transaction_writes: int
    slow_ms: int
    wait_max_ms: int


class _Waiting(NamedTuple):
    """A record that may run at a time."""

    due_ms: float  # by the wall clock
    timer: asyncio.TimerHandle
    offer: Callable[[], None]


class Subscription:
    """`run` it in a task of its own, and `stop` it."""

    def __init__(
        self,
        *,
        name: str,
        group: str,
        topic: str,
        handling: Handling,
        limits: Limits,
        clock: Clock,
        counts: Counts,
        seen_topic: SeenTopic | None = None,
    ) -> None:
        self.name = name
        self.group = group
        self._topic = topic
        self._handling = handling
        self._limits = limits
        self._clock = clock
        self._counts = counts
        self._seen_topic = seen_topic
        self._seen: dict[Work, Seen] = {}
        self._works: dict[TopicPartition, Work] = {}
        self._runnable: deque[tuple[Work, Place]] = deque()  # bounded by the windows
        self._waiting: dict[Place, _Waiting] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._committing = asyncio.Lock()
        self._is_commit_due = asyncio.Event()
        self._is_commit_urgent = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._failure: BaseException | None = None
        # The group has taken this member, if perhaps without partitions.
        self.has_joined = False

    def stop(self) -> None:
        """Takes no more records; `run` returns when those at work are finished and committed."""
        self._is_stopping.set()

    async def run(self, consumer: Consumer, committer: Committer) -> None:
        """Until it is stopped or fails. What is finished is committed in both cases."""
        self._consumer, self._committer = consumer, committer
        commits = asyncio.create_task(self._commit_on_and_on())
        records_max = max(min(_POLL_RECORDS, self._limits.window_records), self._limits.batch)
        try:
            while not self._is_stopping.is_set() and self._failure is None:
                self._take(await consumer.poll(_POLL_S, records_max))
                self.has_joined = self.has_joined or self._is_member
        finally:
            async with self._committing:  # Never in the middle of a commit.
                commits.cancel()
            await asyncio.wait((commits,))
            try:
                await consumer.close()  # Gives up every partition, by on_revoked.
            finally:
                for worker in self._workers:
                    worker.cancel()
                if self._workers:
                    await asyncio.wait(self._workers)
        if self._failure is not None:
            raise self._failure

    @property
    def _is_member(self) -> bool:
        try:
            self._consumer.group_metadata()
        except KafkaError:
            return False
        return True

    # --- partitions come and go

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        limits = self._limits
        for partition in partitions:
            window: Window[Item, Outgoing] = Window(
                limits.order, records_max=max(limits.window_records, 2 * limits.batch), bytes_max=limits.window_bytes
            )
            work = Work(partition, window)
            if self._seen_topic is not None and partition.topic == self._topic:
                self._seen[work] = await self._seen_topic.restore(partition)
            self._works[partition] = work

    async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """What runs may finish, for a while, and is committed; the rest is for whoever has the partition next."""
        works = [self._works.pop(partition) for partition in partitions if partition in self._works]
        for work in works:
            work.is_closing = True
        deadline = self._clock.monotonic_ms() + self._limits.finish_ms
        for work in works:
            if not await work.wait_quiet(max(0.0, deadline - self._clock.monotonic_ms())):
                _log.warning("%s is given up while %d of its handlers still run", work.partition, work.running)
        try:
            await self._commit_by(works, deadline)
        finally:
            for work in works:
                work.is_gone = True
                self._seen.pop(work, None)

    async def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            work = self._works.pop(partition, None)
            if work is not None:
                work.is_closing = work.is_gone = True
                self._seen.pop(work, None)

    # --- records come, and are handled

    def _take(self, messages: Iterable[Message]) -> None:
        touched: set[Work] = set()
        for _, found in groupby(messages, key=type):  # Each partition has a type of its own.
            given = list(found)
            work = self._works[TopicPartition(given[0].topic, PartitionIndex(given[0].partition))]
            if self._limits.batch and given[0].topic == self._topic:
                for batch in batches_of(given, self._limits.batch):
                    self._take_batch(work, batch)
            else:
                for message in given:
                    self._take_one(work, message)
            touched.add(work)
        full = [work for work in touched if work.window.is_full and not work.is_paused]
        for work in full:
            work.is_paused = True
        if full:
            self._consumer.pause([work.partition for work in full])
        self._employ()

    def _take_one(self, work: Work, message: Message) -> None:
        place = work.window.add(message.offset, hold(message), key=message.raw_key, size_bytes=size_of(message))
        if place is not None:
            self._offer(work, place)

    def _take_batch(self, work: Work, messages: list[Message]) -> None:
        if len(messages) == 1 and messages[0].headers:  # It may have been moved.
            self._take_one(work, messages[0])
            return
        place = work.window.add(
            messages[0].offset,
            Batch(messages),
            key=None,
            size_bytes=bytes_of(messages),
            records=len(messages),
            last_offset=messages[-1].offset,
        )
        if place is not None:
            self._offer(work, place)

    def _offer(self, work: Work, place: Place) -> None:
        """It may run; a record of a retry topic once it is due."""
        item = place.item
        due_ms = item.trail.due_ms if isinstance(item, Held) else 0
        wait_ms = min(due_ms - self._clock.wall_ms(), self._limits.wait_max_ms) if due_ms else 0
        if wait_ms > 0:
            self._offer_later(work, place, wait_ms)
        else:
            self._runnable.append((work, place))

    def _offer_later(self, work: Work, place: Place, wait_ms: float) -> None:
        def offer() -> None:
            del self._waiting[place]
            if not work.is_closing:
                self._runnable.append((work, place))
                self._employ()

        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, offer)
        self._waiting[place] = _Waiting(self._clock.wall_ms() + wait_ms, timer, offer)

    def look_again(self) -> None:
        """What is due by now need not wait any more: the clock was put forward."""
        now = self._clock.wall_ms()
        for waiting in [each for each in self._waiting.values() if each.due_ms <= now]:
            waiting.timer.cancel()
            waiting.offer()

    def _employ(self) -> None:
        """A worker ends when there is nothing more to do."""
        for _ in range(min(len(self._runnable), self._limits.concurrency - len(self._workers))):
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            while self._runnable and self._failure is None:
                work, place = self._runnable.popleft()
                if work.is_closing:
                    continue
                await self._handle(work, place)
                now = self._clock.monotonic_ms()
                if now - begun_ms > _TURN_MS:
                    await asyncio.sleep(0)
                    begun_ms = now
        except Exception as error:  # It must reach whoever runs the application.
            self._fail(error)
        finally:
            task = asyncio.current_task()
            assert task is not None, "a worker is a task"
            self._workers.discard(task)

    async def _handle_batch(self, work: Work, place: Place, batch: Batch) -> None:
        """If it fails, each of its records gets its own attempts: those that are good are done, and only the others go
        the way of what fails."""
        batch.begun_ms = self._clock.monotonic_ms()
        work.note_start()
        try:
            is_done = await self._handling.attempt_all(batch.messages)
        finally:
            batch.begun_ms = None
            work.note_end()
        if work.is_gone:
            return
        if is_done:
            self._finish(work, place, ())
            return
        parts: list[Part[Item]] = [Part(each.offset, hold(each), size_of(each)) for each in batch.messages]
        for single in work.window.split(place, parts):
            self._offer(work, single)
        self._employ()

    async def _handle(self, work: Work, place: Place) -> None:
        held = place.item
        if isinstance(held, Batch):
            await self._handle_batch(work, place, held)
            return
        if held.trail.group not in (None, self.group) or not self._is_new(work, held):
            self._counts.skipped += 1
            self._finish(work, place, ())
            return
        held.begun_ms = self._clock.monotonic_ms()
        work.note_start()
        try:
            found = await self._handling.attempt(held)
        finally:
            held.begun_ms = None
            work.note_end()
        if work.is_gone:
            return
        if isinstance(found, Again):
            self._offer_later(work, place, found.after_ms)
        else:
            self._finish(work, place, (*found, *held.marks) if held.marks else found)

    def _is_new(self, work: Work, held: Held) -> bool:
        """Not so if it is a copy of an event that was taken before. Retries and replays are of events that were."""
        seen = self._seen.get(work)
        if seen is None or self._seen_topic is None or held.tries or held.trail.replays:
            return True
        try:
            event_id = self._seen_topic.deduplicate.id_of(held.message)
        except (
            Exception
        ) as error:  # It is the caller's own function, over any bytes: the handler will say what is wrong.
            _log.warning("%s at offset %d has no id: %r", work.partition, held.message.offset, error)
            return True
        if event_id is None:
            return True
        held.marks = (self._seen_topic.record(work.partition.partition, event_id),)
        return seen.take(event_id, self._clock.wall_ms())

    def _finish(self, work: Work, place: Place, writes: Sequence[Outgoing]) -> None:
        self._counts.handled += place.records
        following = work.window.finish(place, writes)
        if following is not None:
            self._offer(work, following)
        self._is_commit_due.set()
        if work.window.is_worth_a_commit and not work.window.has_room:  # Before it is full: a pause costs fetches.
            self._is_commit_urgent.set()

    # --- what is finished is committed

    async def _commit_on_and_on(self) -> None:
        pause_s = self._limits.commit_interval_ms / 1000
        try:
            while True:
                await self._is_commit_due.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._is_commit_urgent.wait()
                self._is_commit_due.clear()
                self._is_commit_urgent.clear()
                if not await self._commit(list(self._works.values())):
                    self._is_commit_due.set()
                    await asyncio.sleep(pause_s)
        except Exception as error:  # As of a worker.
            self._fail(error)

    async def _commit_by(self, works: Sequence[Work], deadline_ms: float) -> None:
        """Tries again while there is time, and while it may be of use."""
        while not await self._commit(works):
            if not self._is_member or self._clock.monotonic_ms() > deadline_ms:
                return
            await asyncio.sleep(self._limits.commit_interval_ms / 1000)

    async def _commit(self, works: Sequence[Work]) -> bool:
        """Everything that is finished, in as many steps as it takes. False if it has to be tried again later."""
        async with self._committing:
            while True:
                ranges = self._decide_ranges(works)
                if not ranges:
                    return True
                committed = await self._committer.commit({work.partition: finished for work, finished in ranges})
                for work, finished in ranges:
                    if work.partition in committed:
                        self._note_committed(work, finished)
                if len(committed) < len(ranges):
                    return False

    def _decide_ranges(self, works: Sequence[Work]) -> list[tuple[Work, Finished[Outgoing]]]:
        ranges: list[tuple[Work, Finished[Outgoing]]] = []
        left = self._limits.transaction_writes
        for work in works:
            finished = None if work.is_gone or left <= 0 else work.window.decide_commit(writes_max=left)
            if finished is not None:
                ranges.append((work, finished))
                left -= len(finished.writes)
        return ranges

    def _note_committed(self, work: Work, finished: Finished[Outgoing]) -> None:
        work.window.note_committed(finished)
        self._counts.committed += finished.records
        if work.is_paused and work.window.has_room and not work.is_closing:
            work.is_paused = False
            self._consumer.resume([work.partition])

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._is_stopping.set()

    # --- what is told

    def status(self) -> Status:
        now = self._clock.monotonic_ms()
        running = [
            Running(work.partition, entry.offset, int(now - entry.item.begun_ms))
            for work in self._works.values()
            for entry in work.window.unfinished
            if entry.item.begun_ms is not None and now - entry.item.begun_ms > self._limits.slow_ms
        ]
        return Status(
            name=self.name,
            group=self.group,
            counts=self._counts,
            assignment=sorted(self._works),
            slow=sorted(running, key=lambda each: -each.running_ms),
            last_error=self._handling.last_error,
        )

    async def lag(self, admin: Admin) -> dict[PublicPartition, int]:
        """How many offsets lie between what is committed and the end of each partition that this member has now."""
        positions = self._positions()
        ends = await admin.end_offsets(positions, committed_only=True) if positions else {}
        return {where: max(0, end - positions.get(where, end)) for where, end in ends.items()}

    def _positions(self) -> dict[TopicPartition, int]:
        """Of each partition, the first offset that is not committed."""
        found: dict[TopicPartition, int] = {}
        for partition, work in self._works.items():
            first = work.window.first_offset
            found[partition] = self._consumer.position(partition) if first is None else first
        return found
