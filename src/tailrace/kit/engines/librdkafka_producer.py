"""Producing by librdkafka. A thread serves its delivery reports, and wakes the loop once for many of them."""

from __future__ import annotations

import asyncio
import threading
import time
from asyncio import Future
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import confluent_kafka

from tailrace.client.groups.offsets import Offsets, offset_of
from tailrace.client.lanes import Delivered, Many
from tailrace.client.producer import Sendable
from tailrace.kit.engines.librdkafka import producer_settings, translate, translate_ending
from tailrace.kit.engines.port import ProducerEngine
from tailrace.kit.messages import WireHeaders
from tailrace.kit.options import ParsedOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition

T = TypeVar("T")

_SERVE_S = 0.1
# How long sending rests while the queue is full.
_FULL_PAUSE_S = 0.005
_YIELD_EVERY = 1000
# For how long the number of partitions of a topic is believed.
_TOPIC_AGE_S = 60.0


class LibrdkafkaProducer(ProducerEngine):
    def __init__(self, options: ParsedOptions) -> None:
        self._options = options
        self._settings = producer_settings(options)
        self._handle: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._topics: dict[str, tuple[float, int]] = {}
        self._reports: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self._reporting = threading.Lock()
        self._is_woken = self._is_closed = False
        self._server: threading.Thread | None = None

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._handle = confluent_kafka.Producer(self._settings)
            if self._options.config.transactional_id is not None:
                await self._ask("the transactional id is not given", self._handle.init_transactions, self._block_s)
        except confluent_kafka.KafkaException as error:
            raise translate(error.args[0], "the producer cannot start") from None
        self._server = threading.Thread(target=self._serve, name="tailrace-kit-librdkafka", daemon=True)
        self._server.start()

    async def partition_count(self, topic: str) -> int:
        known_at, count = self._topics.get(topic, (0.0, 0))
        if not known_at or time.monotonic() - known_at > _TOPIC_AGE_S:
            count = await asyncio.to_thread(self._describe, topic)
            self._topics[topic] = time.monotonic(), count
        return count

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: WireHeaders,
        partition: int | None,
        timestamp: int | None,
    ) -> Future[Delivered]:
        assert self._loop is not None, "the engine was not started"
        await self._check_partition(topic, partition)
        sent: Future[Delivered] = self._loop.create_future()
        await self._produce(topic, (value, key, headers, partition, timestamp), partial(_settle, sent))
        return sent

    async def send_many(self, topic: str, records: Iterable[Sendable]) -> Future[int]:
        many = Many()
        note = partial(_count, many)
        count = 0
        try:
            await self._check_partition(topic, None)
            for record in records:
                if record[3] is not None:
                    await self._check_partition(topic, record[3])
                many.begin_batch()
                try:
                    await self._produce(topic, record, note)
                except BaseException:
                    many.end_batch(None)
                    raise
                count += 1
                if count % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
        finally:
            many.complete(count)
        return many.sent

    async def flush(self, timeout_ms: float) -> int:
        left: int = await asyncio.to_thread(self._handle.flush, timeout_ms / 1000)
        await asyncio.sleep(0)
        self._tell()
        return left

    def begin(self) -> None:
        try:
            self._transactional.begin_transaction()
        except confluent_kafka.KafkaException as error:
            raise translate_ending(error.args[0], "no transaction begins") from None

    async def commit(self) -> None:
        await self._ask("the transaction is not committed", self._transactional.commit_transaction, self._block_s)
        self._tell()

    async def abort(self) -> None:
        await self._ask("the transaction is not aborted", self._transactional.abort_transaction, self._block_s)
        self._tell()

    async def send_offsets(self, offsets: Offsets, group: Any) -> None:
        places = [
            confluent_kafka.TopicPartition(topic, index, each.offset, metadata=each.metadata or "")
            for (topic, index), offset in offsets.items()
            for each in (offset_of(offset),)
        ]
        doing = "the offsets are not part of the transaction"
        await self._ask(doing, self._transactional.send_offsets_to_transaction, places, group, self._block_s)

    async def close(self) -> None:
        if self._handle is None:
            return
        self._handle.purge()
        self._is_closed = True
        if self._server is not None:
            await asyncio.to_thread(self._server.join, 10 * _SERVE_S)
        self._tell()

    # --- one record

    async def _produce(self, topic: str, record: Sendable, note: Callable[[Any, Any], None]) -> None:
        value, key, headers, partition, timestamp = record
        deadline = time.monotonic() + self._options.config.delivery_timeout_ms / 1000
        while True:
            try:
                self._handle.produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    on_delivery=partial(self._report, note),
                    timestamp=timestamp or 0,
                    headers=list(headers) if headers else None,
                )
                return
            except BufferError:
                if time.monotonic() > deadline:
                    message = "there was no room for the record in all the time of delivery.timeout.ms"
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
            except confluent_kafka.KafkaException as error:
                raise translate_ending(error.args[0], f"a record is not sent to {topic}") from None
            await asyncio.sleep(_FULL_PAUSE_S)

    async def _check_partition(self, topic: str, partition: int | None) -> None:
        count = await self.partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            self._topics.pop(topic, None)
            count = await self.partition_count(topic)
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic} has no partition {partition}: it has 0 to {count - 1}",
                )

    def _describe(self, topic: str) -> int:
        """Blocks."""
        deadline = time.monotonic() + self._block_s
        missing_until = time.monotonic() + 3
        while True:
            try:
                found = self._handle.list_topics(topic, max(0.1, deadline - time.monotonic())).topics[topic]
            except confluent_kafka.KafkaException as error:
                where = self._settings["bootstrap.servers"]
                raise KafkaError(
                    ErrorCode.NETWORK_EXCEPTION, f"cannot reach {where}: {error.args[0].str()}; is the broker running?"
                ) from None
            if found.error is None:
                return len(found.partitions)
            if not found.error.retriable() and time.monotonic() > missing_until:
                raise translate(found.error, f"topic {topic} cannot be described, or does not exist")
            if time.monotonic() > deadline:
                raise translate(found.error, f"topic {topic} cannot be described")
            time.sleep(0.1)

    # --- delivery reports

    def _serve(self) -> None:
        while not self._is_closed:
            self._handle.poll(_SERVE_S)
        self._handle.poll(0)

    def _report(self, note: Callable[[Any, Any], None], error: Any, message: Any) -> None:
        """On whichever thread serves them."""
        with self._reporting:
            self._reports.append((note, error, message))
            if self._is_woken:
                return
            self._is_woken = True
        assert self._loop is not None, "it was started"
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:  # The loop was closed: nobody waits any more.
            return

    def _tell(self) -> None:
        with self._reporting:
            reports, self._reports = self._reports, []
            self._is_woken = False
        for note, error, message in reports:
            note(error, message)

    async def _ask(self, doing: str, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.to_thread(call, *arguments)
        except confluent_kafka.KafkaException as error:
            raise translate_ending(error.args[0], doing) from None

    @property
    def _block_s(self) -> float:
        return self._options.config.max_block_ms / 1000

    @property
    def _transactional(self) -> Any:
        if self._options.config.transactional_id is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "this producer has no transactions: give it a transactional.id"
            )
        return self._handle


def _settle(sent: Future[Delivered], error: Any, message: Any) -> None:
    if sent.done():
        return
    if error is not None:
        sent.set_exception(translate(error, f"a record is not written to {message.topic()}"))
        sent.exception()  # Whoever sent it may have left without waiting.
        return
    where = TopicPartition(message.topic(), PartitionIndex(message.partition()))
    offset = message.offset()
    sent.set_result(Delivered(where, -1 if offset is None else offset, message.timestamp()[1]))


def _count(many: Many, error: Any, message: Any) -> None:
    many.end_batch(None if error is None else translate(error, f"a record is not written to {message.topic()}"))
