"""The kit without asyncio: the same producer, consumer and admin, whose methods block.

    from tailrace.kit.sync import Consumer, Producer

One thread of this process runs the event loop of them all. Methods may be called from any thread but that one. Hooks of
consumers run on a thread beside it, and may call the consumer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tailrace.client.admin import BROKER_DEFAULT, BrokerEntry, CreatedTopic
from tailrace.client.groups.admin import DescribedGroup, ListedGroup
from tailrace.client.metadata import TopicMetadata
from tailrace.kit import admin, consumer, producer
from tailrace.kit.consumer import BEGINNING, END
from tailrace.kit.messages import (
    Delivered,
    Headers,
    Message,
    OffsetAndMetadata,
    Place,
    TopicPartition,
)
from tailrace.kit.options import Options, Value
from tailrace.kit.partitioners import Partitioner
from tailrace.kit.producer import OnDelivery
from tailrace.kit.serdes import Serde
from tailrace.kit.threads import loop_thread
from tailrace.model import ids
from tailrace.model.errors import KafkaError

__all__ = ["BEGINNING", "END", "Admin", "Consumer", "Producer"]

T = TypeVar("T")
Hook = Callable[[Sequence[TopicPartition]], None]
# How many sends wait for the loop at most; more bytes than buffer.memory never do.
_QUEUE_MAX = 10_000


class _Sent:
    """One send on its way to the loop."""

    __slots__ = ("arguments", "delivered", "topic", "value")

    def __init__(self, topic: str, value: Any, arguments: dict[str, Any]) -> None:
        self.topic = topic
        self.value = value
        self.arguments = arguments
        self.delivered: Future[Delivered] = Future()


class Producer:
    """As `tailrace.kit.Producer`. Use it as a context manager: leaving it flushes and closes."""

    def __init__(
        self,
        options: Options | None = None,
        /,
        *,
        keys: Serde | None = None,
        values: Serde | None = None,
        partitioner: Partitioner | None = None,
        on_delivery: OnDelivery | None = None,
        **named: Value,
    ) -> None:
        """`on_delivery` is called on the loop's thread: it must not block."""
        self._thread = loop_thread()
        self._queue: deque[_Sent] = deque()
        self._room = threading.Semaphore(_QUEUE_MAX)
        self._is_draining = False
        self._draining = threading.Lock()

        async def make() -> producer.Producer:
            return producer.Producer(
                options, keys=keys, values=values, partitioner=partitioner, on_delivery=on_delivery, **named
            )

        self._producer = self._thread.run(make())

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        self._thread.run(self._producer.start())

    def produce(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivered:
        """Until the record is written."""
        return self.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp).result()

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[Delivered]:
        """Blocks while buffer.memory is full. What is wrong with the record is told by the future."""
        arguments = {"key": key, "headers": headers, "partition": partition, "timestamp": timestamp}
        sent = _Sent(topic, value, arguments)
        self._room.acquire()
        with self._draining:
            self._queue.append(sent)
            must_wake, self._is_draining = not self._is_draining, True
        if must_wake:
            asyncio.run_coroutine_threadsafe(self._drain(), self._thread.loop)
        return sent.delivered

    async def _drain(self) -> None:
        """In the order of the calls; it rests when the queue is empty."""
        while True:
            with self._draining:
                if not self._queue:
                    self._is_draining = False
                    return
                sent = self._queue.popleft()
            try:
                pending = await self._producer.send(sent.topic, sent.value, **sent.arguments)
            except Exception as error:  # Whatever it is, it is the caller's.
                sent.delivered.set_exception(error)
            else:
                pending.add_done_callback(_teller(sent.delivered))
            finally:
                self._room.release()

    def send_many(self, topic: str, values: Iterable[Any]) -> Future[int]:
        """Until there was room for all: values, or `Outgoing` records."""

        async def send() -> asyncio.Future[int]:
            await self._drained()
            return await self._producer.send_many(topic, values)

        done: Future[int] = Future()
        pending = self._thread.run(send())
        self._thread.loop.call_soon_threadsafe(pending.add_done_callback, _teller(done))
        return done

    def produce_many(self, topic: str, values: Iterable[Any]) -> int:
        return self.send_many(topic, values).result()

    def flush(self, timeout: float | None = None) -> int:
        async def flush() -> int:
            await self._drained()
            return await self._producer.flush(timeout)

        return self._thread.run(flush())

    def close(self, timeout: float | None = None) -> None:
        async def close() -> None:
            await self._drained()
            await self._producer.close(timeout)

        self._thread.run(close())

    async def _drained(self) -> None:
        """Everything that was sent before has reached the producer."""
        while self._is_draining:  # noqa: ASYNC110 - a flag of several threads, and no event of this loop
            await asyncio.sleep(0.001)

    # --- transactions

    def begin(self) -> None:
        self._thread.run(self._producer.begin())

    def commit(self) -> None:
        async def commit() -> None:
            await self._drained()
            await self._producer.commit()

        self._thread.run(commit())

    def abort(self) -> None:
        async def abort() -> None:
            await self._drained()
            await self._producer.abort()

        self._thread.run(abort())

    def send_offsets_to_transaction(self, offsets: Mapping[Place, int | OffsetAndMetadata], group: Any) -> None:
        self._thread.run(self._producer.send_offsets_to_transaction(offsets, group))

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """Commits at the end, and aborts if the body, or the commit, fails."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            with suppress(KafkaError):
                self.abort()
            raise


class Consumer:
    """As `tailrace.kit.Consumer`. Use it as a context manager: leaving it commits what is done and leaves the group."""

    def __init__(
        self,
        options: Options | None = None,
        /,
        *,
        topics: Iterable[str] = (),
        keys: Serde | None = None,
        values: Serde | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        **named: Value,
    ) -> None:
        self._thread = loop_thread()

        async def make() -> consumer.Consumer:
            return consumer.Consumer(
                options,
                topics=topics,
                keys=keys,
                values=values,
                on_assigned=_beside(on_assigned),
                on_revoked=_beside(on_revoked),
                on_lost=_beside(on_lost),
                **named,
            )

        self._consumer = self._thread.run(make())

    def __enter__(self) -> Consumer:
        self._thread.run(self._consumer.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """For ever; `break` to end. A message is done when the next one is asked for."""
        while True:
            yield from self.poll()

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
    ) -> None:
        hooks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        beside = {name: _beside(hook) for name, hook in hooks.items()}
        self._thread.run(self._consumer.subscribe(topics, pattern=pattern, **beside))

    def assign(self, positions: Mapping[ids.TopicPartition, int] | Iterable[ids.TopicPartition]) -> None:
        self._thread.run(self._consumer.assign(positions))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._call(lambda: self._consumer.assignment)

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[Message]:
        return self._thread.run(self._consumer.poll(timeout, max_records))

    def position(self, partition: ids.TopicPartition) -> int:
        return self._call(lambda: self._consumer.position(partition))

    def end_offset(self, partition: ids.TopicPartition) -> int:
        return self._call(lambda: self._consumer.end_offset(partition))

    def seek(self, partition: ids.TopicPartition, offset: int) -> None:
        self._thread.run(self._consumer.seek(partition, offset))

    def pause(self, partitions: Iterable[ids.TopicPartition]) -> None:
        self._call(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[ids.TopicPartition]) -> None:
        self._call(lambda: self._consumer.resume(partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._call(lambda: self._consumer.paused)

    def offsets_for_time(self, partitions: Iterable[ids.TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return self._thread.run(self._consumer.offsets_for_time(partitions, timestamp))

    def beginning_offsets(self, partitions: Iterable[ids.TopicPartition]) -> dict[TopicPartition, int]:
        return self._thread.run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[ids.TopicPartition]) -> dict[TopicPartition, int]:
        return self._thread.run(self._consumer.end_offsets(partitions))

    def lag(self) -> dict[TopicPartition, int]:
        return self._thread.run(self._consumer.lag())

    def commit(self, offsets: Mapping[Place, int | OffsetAndMetadata] | None = None) -> None:
        self._thread.run(self._consumer.commit(offsets))

    def committed(self, partitions: Iterable[ids.TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return self._thread.run(self._consumer.committed(partitions))

    def committed_with_metadata(
        self, partitions: Iterable[ids.TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._thread.run(self._consumer.committed_with_metadata(partitions))

    def group_metadata(self) -> Any:
        return self._call(self._consumer.group_metadata)

    def close(self, *, leave: bool = True) -> None:
        self._thread.run(self._consumer.close(leave=leave))

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._thread.run(call())


class Admin:
    """As `tailrace.kit.Admin`, with the same methods: each blocks, and gives what the awaited one gives."""

    def __init__(self, options: Options | None = None, /, **named: Value) -> None:
        self._thread = loop_thread()
        self._admin = admin.Admin(options, **named)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> CreatedTopic | None:
        return self._thread.run(
            self._admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, config=config, exist_ok=exist_ok
            )
        )

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        self._thread.run(self._admin.delete_topic(name, missing_ok=missing_ok))

    def add_partitions(self, name: str, count: int) -> None:
        self._thread.run(self._admin.add_partitions(name, count))

    def topics(self) -> list[str]:
        return self._thread.run(self._admin.topics())

    def describe_topics(self, names: Sequence[str]) -> list[TopicMetadata]:
        return self._thread.run(self._admin.describe_topics(names))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return self._thread.run(self._admin.partitions_of(topic))

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._thread.run(self._admin.topic_config(name))

    def alter_topic_config(
        self, name: str, changes: Mapping[str, str] | None = None, *, removals: Sequence[str] = ()
    ) -> None:
        self._thread.run(self._admin.alter_topic_config(name, changes, removals=removals))

    def beginning_offsets(self, partitions: Iterable[ids.TopicPartition]) -> dict[TopicPartition, int]:
        return self._thread.run(self._admin.beginning_offsets(partitions))

    def end_offsets(
        self, partitions: Iterable[ids.TopicPartition], *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        return self._thread.run(self._admin.end_offsets(partitions, committed_only=committed_only))

    def brokers(self) -> list[BrokerEntry]:
        return self._thread.run(self._admin.brokers())

    def groups(self) -> list[ListedGroup]:
        return self._thread.run(self._admin.groups())

    def describe_group(self, group_id: str) -> DescribedGroup:
        return self._thread.run(self._admin.describe_group(group_id))

    def delete_group(self, group_id: str) -> None:
        self._thread.run(self._admin.delete_group(group_id))

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        return self._thread.run(self._admin.group_offsets(group_id))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        self._thread.run(self._admin.alter_group_offsets(group_id, offsets))

    def group_lag(self, group_id: str) -> dict[TopicPartition, int]:
        return self._thread.run(self._admin.group_lag(group_id))

    def close(self) -> None:
        self._thread.run(self._admin.close())


def _beside(hook: Hook | None) -> Callable[[Sequence[TopicPartition]], Awaitable[None]] | None:
    if hook is None:
        return None

    async def call(partitions: Sequence[TopicPartition]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, hook, partitions)

    return call


def _teller(told: Future[T]) -> Callable[[asyncio.Future[T]], None]:
    def tell(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            told.cancel()
        elif (error := done.exception()) is not None:
            told.set_exception(error)
        else:
            told.set_result(done.result())

    return tell
