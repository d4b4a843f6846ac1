"""The producer: values in, records out, in order within a partition.

`produce` waits until a record is written; `send` only until there is room for it, and gives a future of where it went.
`send_many` is `send` for many at once. With a `transactional.id` what is sent between `begin` and `commit` becomes
visible to readers of committed records together, or never. Nothing waits for ever: for a topic and for room it is
max.block.ms, for a delivery delivery.timeout.ms.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from tailrace.client.lanes import Delivered
from tailrace.client.producer import Sendable
from tailrace.client.transactions.errors import AbortableError
from tailrace.kit.engines.choice import producer_engine
from tailrace.kit.messages import DeliveryReport, Headers, OffsetAndMetadata, Outgoing, Place, WireHeaders, headers_of
from tailrace.kit.options import Options, ParsedOptions, Value
from tailrace.kit.partitioners import Partitioner
from tailrace.kit.serdes import AskingSerde, ByType, Serde, SerializationError
from tailrace.model.errors import ErrorCode, KafkaError

OnDelivery = Callable[[DeliveryReport], None]


class Producer:
    """Use it as an async context manager: leaving it flushes and closes. Options have Kafka's names."""

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
        self.options = ParsedOptions(options, named)
        self._keys = keys or ByType()
        self._values = values or ByType()
        self._partitioner = partitioner
        self._on_delivery = on_delivery
        self._asks = isinstance(self._keys, AskingSerde) or isinstance(self._values, AskingSerde)
        self._prepared: set[str] = set()  # Topics whose schemas are known.
        self._engine = producer_engine(self.options)
        self._starting = asyncio.Lock()
        self._is_started = self._is_closed = False

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """A transactional producer fences here whoever had its id. Done by itself at the first use, too."""
        async with self._starting:
            if self._is_closed:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "this producer was closed: make another one")
            if not self._is_started:
                await self._engine.start()
                self._is_started = True

    async def produce(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivered:
        """Until the record is written. Raises KafkaError if it was not; SerializationError among them."""
        sent = await self.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        return await sent

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[Delivered]:
        """Until there is room for the record. The future need not be awaited: `flush` and `commit` wait for all."""
        if not self._is_started or self._is_closed:
            await self.start()
        if self._asks and topic not in self._prepared:
            await self._prepare(topic)
        raw_key = self._keys.serialize(key, topic, "key")
        raw_value = self._values.serialize(value, topic, "value")
        self._check_size(topic, raw_key, raw_value)
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(topic, raw_key, await self._engine.partition_count(topic))
        sent = await self._engine.send(
            topic, raw_value, key=raw_key, headers=headers_of(headers), partition=partition, timestamp=timestamp
        )
        if self._on_delivery is not None:
            self._report(sent, topic, raw_key, raw_value, self._on_delivery)
        return sent

    async def send_many(self, topic: str, values: Iterable[Any]) -> Future[int]:
        """Values, or `Outgoing` records. Until there was room for all. The future gives how many were written, once all
        have an answer, or raises the first failure."""
        if not self._is_started or self._is_closed:
            await self.start()
        if self._asks and topic not in self._prepared:
            await self._prepare(topic)
        if self._on_delivery is None:
            count = await self._engine.partition_count(topic) if self._partitioner is not None else 0
            return await self._engine.send_many(topic, self._records(topic, values, count))
        sent = []
        for value in values:
            record = value if isinstance(value, Outgoing) else Outgoing(value)
            sent.append(await self.send(topic, **record._asdict()))
        return asyncio.ensure_future(_all_of(sent))

    def _records(self, topic: str, values: Iterable[Any], partition_count: int) -> Iterator[Sendable]:
        serialize, size_max = self._values.serialize, self.options.config.max_request_size
        for value in values:
            key: bytes | None = None
            headers: WireHeaders = ()
            partition = timestamp = None
            if isinstance(value, Outgoing):
                raw_value = serialize(value.value, topic, "value")
                key = self._keys.serialize(value.key, topic, "key")
                headers, partition, timestamp = headers_of(value.headers), value.partition, value.timestamp
            else:
                raw_value = serialize(value, topic, "value")
            if raw_value is not None and len(raw_value) + (len(key) if key else 0) > size_max:
                self._check_size(topic, key, raw_value)
            if partition is None and self._partitioner is not None:
                partition = self._partitioner(topic, key, partition_count)
            yield raw_value, key, headers, partition, timestamp

    async def produce_many(self, topic: str, values: Iterable[Any]) -> int:
        """As `send_many`, and until all are written."""
        return await (await self.send_many(topic, values))

    async def flush(self, timeout: float | None = None) -> int:  # noqa: ASYNC109 - a call that ends by itself
        """Until everything that was sent has an answer, or the time in seconds is over. How many are left."""
        if not self._is_started or self._is_closed:
            return 0
        longest_ms = self.options.config.delivery_timeout_ms + self.options.config.request_timeout_ms
        return await self._engine.flush(longest_ms if timeout is None else timeout * 1000)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - a call that ends by itself
        """Flushes first; what has no answer after that time fails. An open transaction is aborted by its coordinator,
        unless somebody takes over the id before."""
        if self._is_closed:
            return
        try:
            await self.flush(timeout)
        finally:
            self._is_closed = True
            if self._is_started:
                await self._engine.close()

    # --- transactions

    async def begin(self) -> None:
        await self.start()
        self._engine.begin()

    async def commit(self) -> None:
        """Everything that was sent since `begin` is acknowledged before. Raises AbortableError, FencedError or
        OutcomeUnknownError."""
        await self._engine.commit()

    async def abort(self) -> None:
        await self._engine.abort()

    async def send_offsets_to_transaction(self, offsets: Mapping[Place, int | OffsetAndMetadata], group: Any) -> None:
        """They are committed with the transaction. `group` is what `Consumer.group_metadata` gave."""
        await self._engine.send_offsets(dict(offsets.items()), group)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer]:
        """Commits at the end, and aborts if the body, or the commit, fails."""
        await self.begin()
        try:
            yield self
        except BaseException:
            with suppress(KafkaError):
                await self.abort()
            raise
        try:
            await self.commit()
        except AbortableError:
            await self.abort()
            raise

    # --- one record

    async def _prepare(self, topic: str) -> None:
        if isinstance(self._values, AskingSerde):
            await self._values.prepare_write(topic, "value")
        # Most records of a topic with a schema have keys with one, too, or none at all.
        if isinstance(self._keys, AskingSerde):
            await self._keys.prepare_write(topic, "key")
        self._prepared.add(topic)

    def _check_size(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        size = len(key or b"") + len(value or b"")
        if size > self.options.config.max_request_size:
            raise SerializationError(
                f"a record of {size} bytes is too large for topic {topic}: max.request.size is "
                f"{self.options.config.max_request_size}; raise it, and the topic's max.message.bytes"
            )

    def _report(
        self, sent: Future[Delivered], topic: str, key: bytes | None, value: bytes | None, tell: OnDelivery
    ) -> None:
        def report(done: Future[Delivered]) -> None:
            failure = None if done.cancelled() else done.exception()
            error = failure if isinstance(failure, KafkaError) else None
            delivered = done.result() if failure is None and not done.cancelled() else None
            tell(DeliveryReport(topic, key, value, delivered, error))

        sent.add_done_callback(report)


async def _all_of(sent: list[Future[Delivered]]) -> int:
    if sent:
        await asyncio.wait(sent)
    for each in sent:
        each.result()
    return len(sent)
