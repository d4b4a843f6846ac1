"""One handler of an application as a member of a share group: each record goes to one member at a time, and is answered
for by itself.

    take      as many records as handlers get through in a second, and no more: other members want some, too
    renew     the locks of what is in hand, so that a slow handler keeps its record
    run       `concurrency` handlers at a time; the group keeps no order, unless its settings ask for it
    answer    accept what is done with; what has failed is first written to a retry topic or to the dead letters

Kafka has no transaction that answers for a record. So what is written for a failed record is written at least once: a
process that dies between the two leaves the record to another member, which handles it again.

A group gives up a record that was given out too often. One whose handlers die or lose it again and again goes to the
dead letters before that, without another attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.client.shares.consumer import ACCEPT, RELEASE, Refusal, ShareConsumer, ShareOptions, ShareRecord
from tailrace.kit.admin import Admin
from tailrace.kit.app.handling import Handling
from tailrace.kit.app.shares.group import prepare_group
from tailrace.kit.app.status import Counts, Running, Status
from tailrace.kit.app.subscription import Limits
from tailrace.kit.app.work import Held, Outgoing
from tailrace.kit.messages import Message, Source, TopicPartition, message_type
from tailrace.kit.producer import Producer
from tailrace.kit.retries.headers import Origin, read_trail
from tailrace.kit.retries.plan import Again
from tailrace.kit.retries.refusals import is_record_refused
from tailrace.kit.serdes import AskingSerde, Serde
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid, uuid_text

_log = logging.getLogger("tailrace.app")

_POLL_MS = 200
_TAKEN_MAX = 500
# An async handler that never waits lets nothing else run; after so long the loop has its turn.
_TURN_MS = 5
# How long a record that moves waits for the topic that it goes to.
_WRITE_PATIENCE_MS = 60_000
_WRITE_PAUSE_S = 0.2
# The broker's own limit is not waited for: this many deliveries are left for writing the dead letter.
_SPARE_DELIVERIES = 1


class DeliveriesSpentError(Exception):
    """A record was given out again and again, and no member ever answered for it."""


@dataclass(slots=True, eq=False)
class _Taken:
    """A record that is this member's."""

    record: ShareRecord
    held: Held
    locked_ms: float  # since then
    is_running: bool = False


OpenProducer = Callable[[], Awaitable[Producer]]
_Place = tuple[TopicPartition, int]


class ShareSubscription:
    """`run` it in a task of its own, and `stop` it."""

    def __init__(
        self,
        *,
        name: str,
        group: str,
        topic: str,
        start: str,
        keys: Serde,
        values: Serde,
        handling: Handling,
        limits: Limits,
        cluster: Cluster,
        counts: Counts,
    ) -> None:
        """`start` is where a group begins that is new: earliest or latest."""
        self.name = name
        self.group = group
        self._topic = topic
        self._start = start
        self._serdes = keys, values
        self._handling = handling
        self._limits = limits
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._counts = counts
        self._consumer: ShareConsumer | None = None
        self._producer: Producer | None = None
        self._deliveries_max = 0
        self._taken: dict[_Place, _Taken] = {}  # bounded by _wanted
        self._runnable: deque[_Taken] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._finished_at: deque[float] = deque(maxlen=_TAKEN_MAX)
        self._is_answer_due = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._can_renew = True

    def stop(self) -> None:
        """Takes no more records; `run` returns when those at work are finished and answered for."""
        self._is_stopping.set()
        self._is_answer_due.set()

    async def run(self, open_producer: OpenProducer) -> None:
        """Until it is stopped or fails."""
        self._open_producer = open_producer
        limit = await prepare_group(self._cluster, self.group, start=self._start)
        self._deliveries_max = max(1, limit - 1 - _SPARE_DELIVERIES)
        member_id = uuid_text(Uuid(self._cluster.ports.random.uuid()))
        consumer = ShareConsumer(self._cluster, ShareOptions(self.group, (self._topic,), member_id, is_strict=True))
        self._consumer = consumer
        try:
            try:
                while not self._is_stopping.is_set():
                    await self._step(consumer)
            finally:
                await self._finish_what_runs(consumer)
        finally:
            self._note_refused(await consumer.close())
            if self._producer is not None:
                await self._producer.close()
        if self._failure is not None:
            raise self._failure

    @property
    def has_joined(self) -> bool:
        return self._consumer is not None and self._consumer.membership.has_joined

    # --- what is taken, kept and answered for

    async def _step(self, consumer: ShareConsumer) -> None:
        room = self._wanted() - len(self._taken)
        if room > 0:
            records, refused = await consumer.poll(_POLL_MS, room)
            self._note_refused(refused)
            await self._take(records)
        else:
            await self._answer(consumer)
        await self._keep(consumer)

    def _wanted(self) -> int:
        """As many as were finished in the last second."""
        before = self._clock.monotonic_ms() - 1000
        while self._finished_at and self._finished_at[0] < before:
            self._finished_at.popleft()
        return min(max(2 * self._limits.concurrency, len(self._finished_at)), self._limits.window_records)

    async def _take(self, records: Sequence[ShareRecord]) -> None:
        now = self._clock.monotonic_ms()
        for record in records:
            place = TopicPartition.of(record.partition), record.record.offset
            known = self._taken.get(place)
            if known is not None:  # Its lock was lost, and it has come back to the same member.
                known.record, known.locked_ms = record, now
                continue
            message = self._message(record)
            origin = Origin(message.topic, message.partition, message.offset, message.timestamp)
            taken = _Taken(record, Held(message, read_trail(origin, message.headers)), now)
            self._taken[place] = taken
            self._runnable.append(taken)
        keys, values = self._serdes
        if isinstance(keys, AskingSerde):
            await keys.prepare_read(((each.record.key, each.record.headers) for each in records), "key")
        if isinstance(values, AskingSerde):
            await values.prepare_read(((each.record.value, each.record.headers) for each in records), "value")
        self._employ()

    def _message(self, record: ShareRecord) -> Message:
        partition = record.partition
        there = message_type(Source(partition.topic, partition.partition, *self._serdes))
        return tuple.__new__(there, record.record)

    async def _answer(self, consumer: ShareConsumer) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_MS / 1000):
                await self._is_answer_due.wait()
        self._is_answer_due.clear()
        self._note_refused(await consumer.commit())

    async def _keep(self, consumer: ShareConsumer) -> None:
        """Locks that are half over begin anew."""
        now = self._clock.monotonic_ms()
        old = [each for each in self._taken.values() if (now - each.locked_ms) * 2 > consumer.lock_ms > 0]
        if not old:
            return
        for each in old:
            each.locked_ms = now
        refused = await consumer.renew([each.record for each in old])
        if refused is not None:
            self._note_refused(refused)
        elif self._can_renew:
            self._can_renew = False
            _log.warning(
                "a broker cannot renew locks (Kafka 4.2 can): handlers of %s that take longer than %d ms run again",
                self._topic,
                consumer.lock_ms,
            )

    def _note_refused(self, refused: Iterable[Refusal]) -> None:
        for each in refused:
            lost = [offset for offset in each.offsets if (TopicPartition.of(each.partition), offset) not in self._taken]
            self._counts.committed -= len(lost)
            _log.info("%d records of %s come again: %s", len(each.offsets), each.partition, each.error)

    async def _finish_what_runs(self, consumer: ShareConsumer) -> None:
        """What was not begun is for other members, at once; what runs may finish for a while."""
        self._is_stopping.set()
        deadline = self._clock.monotonic_ms() + self._limits.finish_ms
        for taken in list(self._taken.values()):
            if not taken.is_running and not self._is_spent(taken):
                self._say(taken, RELEASE)
        while self._taken and self._failure is None and self._clock.monotonic_ms() < deadline:
            await self._answer(consumer)
            await self._keep(consumer)
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers)

    def _say(self, taken: _Taken, kind: int) -> None:
        assert self._consumer is not None, "it runs"
        self._taken.pop((TopicPartition.of(taken.record.partition), taken.record.record.offset), None)
        self._consumer.acknowledge(taken.record, kind)
        self._counts.committed += kind == ACCEPT
        self._is_answer_due.set()

    # --- handlers

    def _employ(self) -> None:
        """A worker ends when there is nothing more to do."""
        for _ in range(min(len(self._runnable), self._limits.concurrency - len(self._workers))):
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            while self._runnable and self._failure is None:
                taken = self._runnable.popleft()
                if self._is_stopping.is_set() and not self._is_spent(taken):
                    continue
                taken.is_running = True
                await self._handle(taken)
                now = self._clock.monotonic_ms()
                if now - begun_ms > _TURN_MS:
                    await asyncio.sleep(0)
                    begun_ms = now
        except Exception as error:  # It must reach whoever runs the application.
            self._failure = self._failure or error
            self.stop()
        finally:
            task = asyncio.current_task()
            assert task is not None, "a worker is a task"
            self._workers.discard(task)

    async def _handle(self, taken: _Taken) -> None:
        held = taken.held
        if held.trail.group not in (None, self.group):
            self._counts.skipped += 1
            self._finish(taken)
            return
        found = await self._attempt(taken)
        if isinstance(found, Again):
            taken.is_running = False
            if not self._is_stopping.is_set():
                asyncio.get_running_loop().call_later(found.after_ms / 1000, self._offer_again, taken)
            elif not self._is_spent(taken):
                self._say(taken, RELEASE)
            return
        for write in found:
            await self._write(write)
        self._finish(taken)

    async def _attempt(self, taken: _Taken) -> Sequence[Outgoing] | Again:
        held = taken.held
        if self._is_spent(taken):
            error = DeliveriesSpentError(
                f"it was given out {taken.record.delivery_count} times, and not answered for: its handler takes longer "
                "than the group's lock, or ends its process"
            )
            return await self._handling.give_up(held, error)
        held.begun_ms = self._clock.monotonic_ms()
        try:
            return await self._handling.attempt(held)
        finally:
            held.begun_ms = None

    def _is_spent(self, taken: _Taken) -> bool:
        return self._handling.has_dead_letters and taken.record.delivery_count > self._deliveries_max

    def _offer_again(self, taken: _Taken) -> None:
        place = TopicPartition.of(taken.record.partition), taken.record.record.offset
        if self._taken.get(place) is taken:
            self._runnable.append(taken)
            self._employ()

    def _finish(self, taken: _Taken) -> None:
        self._counts.handled += 1
        self._finished_at.append(self._clock.monotonic_ms())
        self._say(taken, ACCEPT)

    async def _write(self, write: Outgoing) -> None:
        """Until it stands there. Raises KafkaError for what does not pass by itself, or not in time."""
        deadline = self._clock.monotonic_ms() + _WRITE_PATIENCE_MS
        while True:
            try:
                if self._producer is None:
                    self._producer = await self._open_producer()
                await self._producer.produce(
                    write.topic,
                    write.value,
                    key=write.key,
                    headers=write.headers,
                    partition=write.partition,
                    timestamp=write.timestamp,
                )
                return
            except KafkaError as error:
                # A topic that was just made may not be known to every broker yet.
                is_new = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if (is_record_refused(error) and not is_new) or self._clock.monotonic_ms() > deadline:
                    raise
                _log.warning("a write to %s is tried again: %s", write.topic, error)
                await asyncio.sleep(_WRITE_PAUSE_S)

    # --- what is told

    def status(self) -> Status:
        now = self._clock.monotonic_ms()
        running = [
            Running(place, offset, int(now - taken.held.begun_ms))
            for (place, offset), taken in self._taken.items()
            if taken.held.begun_ms is not None and now - taken.held.begun_ms > self._limits.slow_ms
        ]
        assigned = () if self._consumer is None else self._consumer.membership.assignment
        return Status(
            name=self.name,
            group=self.group,
            counts=self._counts,
            assignment=sorted(assigned),
            slow=sorted(running, key=lambda each: -each.running_ms),
            last_error=self._handling.last_error,
        )

    async def lag(self, _admin: Admin) -> dict[TopicPartition, int]:
        """How many records of each partition the group is not done with."""
        found = await GroupAdmin(self._cluster).share_offsets(self.group)
        return {TopicPartition.of(each.partition): each.lag for each in found if each.lag is not None}
