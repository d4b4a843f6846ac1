"""What a connection of kombu has of a cluster: topics made, written to and deleted, and the bindings of all processes.

Runs on the loop of the kit; `transport` calls it from its own threads. Bindings of queues to exchanges are records of a
compacted topic, followed by every process, so that a reply finds a queue that another process has declared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from tailrace.client.admin import Admin as ClientAdmin
from tailrace.client.consumer import Consumer
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.kit.admin import Admin
from tailrace.kit.app.shares.group import prepare_group
from tailrace.kit.delays import Delays
from tailrace.kit.kombu.taking import Broadcast, Queue, Room
from tailrace.kit.messages import TopicPartition
from tailrace.kit.options import Options, ParsedOptions
from tailrace.kit.producer import Producer
from tailrace.kit.serdes import Bytes
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition as AnyPartition
from tailrace.real.cluster import open_cluster
from tailrace.wire.records import Record

_POLL_MS = 500


class Names(NamedTuple):
    """`prefix` begins the names of all topics and groups, so that several applications share a cluster."""

    prefix: str

    def queue(self, name: str) -> str:
        return f"{self.prefix}{_plain(name)}"

    def group(self, name: str) -> str:
        return f"{self.prefix}{_plain(name)}.workers"

    def broadcast(self, exchange: str) -> str:
        return f"{self.prefix}{_plain(exchange)}.fanout"

    @property
    def bindings(self) -> str:
        return f"{self.prefix}kombu.bindings"


def _plain(name: str) -> str:
    """As a topic may be called. Of two names that are the same then each would see the other's messages, so what has to
    change is written as its number."""
    return "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else f"-x{ord(each):x}-" for each in name
    )


class Binding(NamedTuple):
    exchange: str
    routing_key: str
    pattern: str
    queue: str


class Link:
    """`open` it, and `close` it at the end."""

    def __init__(self, options: Options, names: Names, *, partitions: int, delays: str | None) -> None:
        self.names = names
        self.bindings: dict[Binding, None] = {}
        self._options = options
        self._partitions = partitions
        parsed = ParsedOptions(options, {})
        self._cluster: Cluster = open_cluster(
            parsed.bootstrap, security=parsed.security, client_id=parsed.config.client_id, limits=parsed.limits()
        )
        self._patience_ms = parsed.config.default_api_timeout_ms
        self._admin = Admin(options)
        self._producer = Producer(options, linger_ms=0, keys=Bytes(), values=Bytes())
        self._delays = None if delays is None else Delays(options, name=delays, values=Bytes())
        self._known: set[str] = set()
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises KafkaError if no broker answers, or bindings cannot be read."""
        await self._cluster.any_connection()
        await self._declare(self.names.bindings, 1, {"cleanup.policy": "compact"})
        if self._delays is not None:
            await self._delays.start()
        place = TopicPartition(self.names.bindings, 0)
        consumer = Consumer(self._cluster)
        end = (await consumer.offsets_at([place], LATEST))[place]
        await consumer.assign(await consumer.offsets_at([place], EARLIEST))
        while consumer.position(place).offset < end:
            self._learn((await consumer.poll(_POLL_MS)).get(place, []))
        self._following = asyncio.create_task(self._follow(consumer, place))

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await self._producer.close()
        if self._delays is not None:
            await self._delays.close()
        await self._admin.close()
        self._cluster.close()

    # --- bindings

    async def bind(self, binding: Binding) -> None:
        if binding not in self.bindings:
            self.bindings[binding] = None
            await self._producer.produce(self.names.bindings, b"{}", key=_written(binding))

    async def unbind(self, binding: Binding) -> None:
        if self.bindings.pop(binding, 0) is None:
            await self._producer.produce(self.names.bindings, None, key=_written(binding))

    async def _follow(self, consumer: Consumer, place: TopicPartition) -> None:
        try:
            while True:
                try:
                    self._learn((await consumer.poll(_POLL_MS)).get(place, []))
                except KafkaError:  # Nobody waits for it: the next poll may succeed.
                    await asyncio.sleep(_POLL_MS / 1000)
        finally:
            await consumer.close()

    def _learn(self, records: list[Record]) -> None:
        for record in records:
            with suppress(ValueError, TypeError):
                binding = Binding(*json.loads(record.key or b""))
                if record.value is None:
                    self.bindings.pop(binding, None)
                else:
                    self.bindings[binding] = None

    # --- topics

    async def declare(self, topic: str) -> None:
        await self._declare(topic, self._partitions, {})

    async def _declare(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        if topic not in self._known:
            if topic not in await self._admin.topics():
                await self._admin.create_topic(topic, partitions=partitions, config=config, exist_ok=True)
            self._known.add(topic)

    async def exists(self, topic: str) -> bool:
        return topic in await self._admin.topics()

    async def delete(self, topic: str, group: str) -> None:
        self._known.discard(topic)
        await self._admin.delete_topic(topic, missing_ok=True)
        with suppress(KafkaError):  # It was never read, or somebody still reads.
            await self._admin.delete_group(group)

    async def depth(self, topic: str, group: str) -> int:
        """How many messages are not done with."""
        if topic not in await self._admin.topics():
            return 0
        partitions = await self._admin.partitions_of(topic)
        starts, ends = await self._admin.beginning_offsets(partitions), await self._admin.end_offsets(partitions)
        left: dict[AnyPartition, int] = {each: ends[each] - starts[each] for each in partitions}
        with suppress(KafkaError):  # A group that nobody has joined yet.
            for found in await GroupAdmin(self._cluster).share_offsets(group):
                if found.lag is not None and found.start_offset is not None:
                    left[found.partition] = found.lag
        return sum(left.values())

    async def purge(self, topic: str, group: str) -> int:
        count = await self.depth(topic, group)
        if count:
            partitions = await self._admin.partitions_of(topic)
            ends = await self._admin.end_offsets(partitions)
            await ClientAdmin(self._cluster).delete_records(dict(ends.items()))
        return count

    # --- messages

    async def put(self, topic: str, value: bytes, due: datetime | None) -> None:
        await self.declare(topic)
        if due is not None and self._delays is not None:
            await self._delays.send(topic, value, deliver_at=due)
        else:
            await self._producer.produce(topic, value)

    async def queue(self, name: str, room: Room, arrival: Callable[[], None]) -> Queue:
        topic, group = self.names.queue(name), self.names.group(name)
        await self.declare(topic)
        limit = await prepare_group(self._cluster, group, start="earliest")

        async def again(record: Record) -> None:
            while True:
                try:
                    await self._producer.produce(topic, record.value, key=record.key, headers=record.headers)
                    return
                except KafkaError as error:
                    if not error.code.retriable and error.code is not ErrorCode.REQUEST_TIMED_OUT:
                        raise

        found = Queue(self._cluster, group, topic, room=room, again=again, deliveries_max=Queue.deliveries_max(limit))
        found.start(arrival)
        return found

    async def broadcast_positions(self, exchange: str) -> dict[AnyPartition, int]:
        """Where one who hears it from now on begins."""
        topic = self.names.broadcast(exchange)
        await self._declare(topic, 1, {"retention.ms": "3600000"})
        return dict((await self._admin.end_offsets(await self._admin.partitions_of(topic))).items())

    async def broadcast(self, positions: dict[AnyPartition, int], room: Room, arrival: Callable[[], None]) -> Broadcast:
        found = Broadcast(self._cluster, positions, room=room)
        found.start(arrival)
        return found


def _written(binding: Binding) -> bytes:
    return json.dumps(list(binding)).encode()
