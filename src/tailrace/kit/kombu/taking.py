"""Messages on their way to a channel: as a member of a queue's share group, or as one of all who hear a broadcast.

Both run on the loop of the kit, and hand over to the thread of the channel: `ready` is what has come, in order. A queue
takes as much as its channel has room for; locks of what is in hand are renewed, so a task may take as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tailrace.client.consumer import Consumer
from tailrace.client.metadata import Cluster
from tailrace.client.shares.consumer import ACCEPT, RELEASE, ShareConsumer, ShareOptions, ShareRecord
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition, Uuid, uuid_text
from tailrace.wire.records import Record

_POLL_MS = 200
# The broker gives up a record that was given out too often. One that comes near it begins a new life as a new record.
_SPARE_DELIVERIES = 1

Room = Callable[[], int]
Again = Callable[[Record], Awaitable[None]]


class Arrived(NamedTuple):
    tag: str
    value: bytes | None
    timestamp: int
    is_redelivered: bool


class Queue:
    """`start` and `close` it on the loop; the rest is for any thread."""

    def __init__(
        self, cluster: Cluster, group: str, topic: str, *, room: Room, again: Again, deliveries_max: int
    ) -> None:
        """`room` says how many messages more the channel takes; `again` writes a record once more."""
        self.ready: deque[Arrived] = deque()  # bounded by room
        self.failure: KafkaError | None = None
        # How many have come back since there are partitions to read: who waits for one that began after now waits for
        # two more.
        self.polls = 0
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._room = room
        self._again = again
        self._deliveries_max = deliveries_max
        member_id = uuid_text(Uuid(cluster.ports.random.uuid()))
        self._options = ShareOptions(group, (topic,), member_id, is_strict=True)
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._held: dict[str, tuple[ShareRecord, float]] = {}  # with the time when the lock began
        self._arrival: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    def start(self, arrival: Callable[[], None]) -> None:
        """`arrival` is called when there is something new."""
        self._arrival = arrival
        self._consumer = ShareConsumer(self._cluster, self._options)
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """What was not answered for is for others at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            for record, _ in self._held.values():
                self._consumer.acknowledge(record, RELEASE)
            self._held.clear()
            self.ready.clear()
            await self._consumer.close()

    def settle(self, tag: str, kind: int) -> None:
        self._loop.call_soon_threadsafe(self._settle, tag, kind)

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._is_due.set)

    def _settle(self, tag: str, kind: int) -> None:
        held = self._held.pop(tag, None)
        if held is not None:
            self._consumer.acknowledge(held[0], kind)
            self._is_due.set()

    async def _run(self) -> None:
        try:
            while True:
                room = self._room() - len(self.ready)
                if room > 0:
                    records, _ = await self._consumer.poll(_POLL_MS, room)
                    await self._take(records)
                    self.polls += bool(self._consumer.membership.assignment)
                else:
                    try:
                        async with asyncio.timeout(_POLL_MS / 1000):
                            await self._is_due.wait()
                    except TimeoutError:
                        pass
                    self._is_due.clear()
                    await self._consumer.commit()
                await self._keep()
        except KafkaError as error:
            self.failure = error
        finally:
            self._arrival()

    async def _take(self, records: list[ShareRecord]) -> None:
        now = self._clock.monotonic_ms()
        for record in records:
            if record.delivery_count > self._deliveries_max:
                await self._again(record.record)
                self._consumer.acknowledge(record, ACCEPT)
                continue
            tag = f"{record.partition}-{record.record.offset}"
            is_new = tag not in self._held
            self._held[tag] = record, now
            if is_new:  # Otherwise its lock was lost, and it has come back to this member.
                found = record.record
                self.ready.append(Arrived(tag, found.value, found.timestamp, record.delivery_count > 1))
        if records:
            self._arrival()

    async def _keep(self) -> None:
        now, lock_ms = self._clock.monotonic_ms(), self._consumer.lock_ms
        old = [(tag, record) for tag, (record, since) in self._held.items() if (now - since) * 2 > lock_ms > 0]
        if old:
            self._held.update((tag, (record, now)) for tag, record in old)
            await self._consumer.renew([record for _, record in old])

    @staticmethod
    def deliveries_max(limit: int) -> int:
        return max(1, limit - 1 - _SPARE_DELIVERIES)


class Broadcast:
    """Everything of a topic from `positions` on, which move behind what is done with; nobody else is told of that. As a
    `Queue` otherwise."""

    def __init__(self, cluster: Cluster, positions: dict[TopicPartition, int], *, room: Room) -> None:
        self.ready: deque[Arrived] = deque()
        self.failure: KafkaError | None = None
        self.polls = 0
        self._cluster = cluster
        self._positions = positions
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._is_due = asyncio.Event()
        self._held: dict[str, tuple[TopicPartition, int, Arrived]] = {}
        self._arrival: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    def start(self, arrival: Callable[[], None]) -> None:
        self._arrival = arrival
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def settle(self, tag: str, kind: int) -> None:
        self._loop.call_soon_threadsafe(self._settle, tag, kind)

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._is_due.set)

    def _settle(self, tag: str, kind: int) -> None:
        held = self._held.pop(tag, None)
        if held is None:
            return
        partition, offset, arrived = held
        if kind == RELEASE:
            self.ready.appendleft(arrived._replace(is_redelivered=True))
            self._held[tag] = held
            self._arrival()
        else:
            self._positions[partition] = max(self._positions[partition], offset + 1)
            self._is_due.set()

    async def _run(self) -> None:
        consumer = Consumer(self._cluster)
        try:
            await consumer.assign(self._positions)
            while True:
                room = self._room() - len(self.ready)
                if room <= 0:
                    self._is_due.clear()
                    await self._is_due.wait()
                    continue
                for partition, records in (await consumer.poll(_POLL_MS, room)).items():
                    for record in records:
                        arrived = Arrived(f"{partition}-{record.offset}", record.value, record.timestamp, False)
                        self._held[arrived.tag] = partition, record.offset, arrived
                        self.ready.append(arrived)
                self.polls += 1
                if self.ready:
                    self._arrival()
        except KafkaError as error:
            self.failure = error
        finally:
            self._arrival()
            await consumer.close()
