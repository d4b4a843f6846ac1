"""Producing by librdkafka. A thread serves its delivery reports, and wakes the loop once for many of them.

What was sent together is one call of librdkafka, and one answer to the loop: each record for itself would cross the
border to Python several times. The bound of what is on its way is kept here: librdkafka would refuse some records of
a call and take smaller ones behind them.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from asyncio import Future
from collections.abc import Callable, Iterable
from contextlib import suppress
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
# Of one call, as records and as bytes.
_CHUNK = 500
_CHUNK_BYTES = 256 * 1024
# What a record takes in memory beside its key and value.
_RECORD_MEMORY_BYTES = 128
# For how long the number of partitions of a topic is believed.
_TOPIC_AGE_S = 60.0


class LibrdkafkaProducer(ProducerEngine):
    def __init__(self, options: ParsedOptions) -> None:
        self._options = options
        self._settings = producer_settings(options)
        self._handle: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._topics: dict[str, tuple[float, int]] = {}
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._reports: list[Callable[[], None]] = []
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
        count, size = 0, 0
        chunk: list[dict[str, Any]] = []
        try:
            partitions = await self.partition_count(topic)
            for record in records:
                value, key, headers, partition, timestamp = record
                if partition is not None and not 0 <= partition < partitions:
                    await self._check_partition(topic, partition)
                count += 1
                if headers or timestamp is not None:  # No call takes them together with others.
                    full, chunk = chunk, []
                    await self._produce_all(topic, full, size, many)
                    size = 0
                    await self._produce_of_many(topic, record, many)
                    continue
                message: dict[str, Any] = {"value": value}
                if key is not None:
                    message["key"] = key
                if partition is not None:
                    message["partition"] = partition
                chunk.append(message)
                size += (len(value) if value else 0) + (len(key) if key else 0)
                if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
                    full, chunk = chunk, []
                    await self._produce_all(topic, full, size, many)
                    size = 0
        finally:
            try:
                await self._produce_all(topic, chunk, size, many)
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
        size = len(value or b"") + len(key or b"") + _RECORD_MEMORY_BYTES
        await self._reserve(size)

        def answered(error: Any, message: Any) -> None:
            self._release(size)
            note(error, message)

        try:
            self._handle.produce(
                topic,
                value,
                key,
                -1 if partition is None else partition,
                on_delivery=lambda error, message: self._report(partial(answered, error, message)),
                timestamp=timestamp or 0,
                headers=list(headers) if headers else None,
            )
        except confluent_kafka.KafkaException as error:
            self._release(size)
            raise translate_ending(error.args[0], f"a record is not sent to {topic}") from None
        except BaseException:
            self._release(size)
            raise

    async def _produce_of_many(self, topic: str, record: Sendable, many: Many) -> None:
        many.begin_batch()
        try:
            await self._produce(topic, record, partial(_count, many))
        except BaseException:
            many.end_batch(None)
            raise

    async def _produce_all(self, topic: str, messages: list[dict[str, Any]], value_bytes: int, many: Many) -> None:
        if not messages:
            return
        size = value_bytes + _RECORD_MEMORY_BYTES * len(messages)
        await self._reserve(size)
        many.begin_batch()

        def answered() -> None:
            self._release(size)
            failure = answers.failure
            many.end_batch(None if failure is None else translate(failure, f"a record is not written to {topic}"))

        answers = _Answers(len(messages), lambda: self._report(answered))
        try:
            taken = self._handle.produce_batch(topic, messages, on_delivery=answers.note)
        except BaseException as error:
            self._release(size)
            many.end_batch(None)
            if isinstance(error, confluent_kafka.KafkaException):
                raise translate_ending(error.args[0], f"records are not sent to {topic}") from None
            raise
        if taken < len(messages):
            for message in messages:
                if "_error" in message:
                    answers.note(message["_error"], None)
        await asyncio.sleep(0)

    async def _reserve(self, size: int) -> None:
        if self._held_bytes and self._held_bytes + size > self._options.config.buffer_memory:
            await self._wait_for_room(size)
        self._held_bytes += size

    async def _wait_for_room(self, size: int) -> None:
        limit = self._options.config.buffer_memory
        try:
            async with asyncio.timeout(self._options.config.delivery_timeout_ms / 1000):
                while self._held_bytes and self._held_bytes + size > limit:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            message = "there was no room for the record in all the time of delivery.timeout.ms"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None

    def _release(self, size: int) -> None:
        self._held_bytes -= size
        self._room.set()

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
            try:
                self._handle.poll(_SERVE_S)
            except confluent_kafka.KafkaException:  # It was fenced: whoever asks for something is told so.
                time.sleep(_SERVE_S)
        with suppress(confluent_kafka.KafkaException):
            self._handle.poll(0)

    def _report(self, tell: Callable[[], None]) -> None:
        """On whichever thread serves them."""
        with self._reporting:
            self._reports.append(tell)
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
        for tell in reports:
            tell()

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


class _Answers:
    """To what was sent together. Several threads note them: to draw a number is one step for all of them."""

    def __init__(self, expected: int, tell: Callable[[], None]) -> None:
        self._expected = expected
        self._tell = tell
        self._numbers = itertools.count(1)
        self.failure: Any = None  # the first one

    def note(self, error: Any, _message: Any) -> None:
        if error is not None and self.failure is None:
            self.failure = error
        if next(self._numbers) == self._expected:
            self._tell()


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
