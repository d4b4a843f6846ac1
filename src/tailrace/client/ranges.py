"""A range of one partition, as the batches in which it is stored: for readers that open them in their own way.

One fetch is under way while the caller works on the one before. A leader that moves or dies, a connection that is
lost and records that cannot be read yet are waited for, up to `retry_timeout_ms` without progress. Nothing is passed
over in silence: where the log does not hold a part of the range any more, `OffsetsLostError` names it. Offsets that
compaction or a transaction's markers took are no loss.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tailrace.client.fetching import (
    AbortedTransaction,
    ConsumerOptions,
    FetchPosition,
    Isolation,
    aborted_of,
    check_partition,
    fetch_once,
    records_of,
)
from tailrace.client.metadata import Cluster
from tailrace.client.offsets import EARLIEST, LATEST, list_offsets
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, TopicPartition, Uuid, uuid_text
from tailrace.wire.apis.data import FetchResponse
from tailrace.wire.records import iterate_headers


class FetchedBatches(NamedTuple):
    """What one fetch brought. `fetching.iterate_batches` tells what of it may be seen."""

    position: int
    next_offset: int  # > position, and perhaps beyond the end of the range: batches are whole.
    # The first batch may begin before the position, the last one may be cut short. Empty if nothing is left.
    records: memoryview
    aborted: tuple[AbortedTransaction, ...]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


class OffsetsLostError(KafkaError):
    """The log no longer holds [start, end) of what was to be read. Reading can go on at `end`."""

    def __init__(self, partition: TopicPartition, *, start: int, end: int, log: range, why: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offsets {start} to {end - 1} of {partition} are lost: {why}")
        self.partition = partition
        self.start = start
        self.end = end
        self.log_start_offset = log.start
        self.log_end_offset = log.stop


class RangeReader:
    """Reads [start, end) of a partition in order. `close` it at the end. With `topic_id` another topic that has taken
    the name is not read: the rest of the range is lost."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: int,
        end: int,
        options: ConsumerOptions,
        *,
        topic_id: Uuid | None = None,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._position = start
        self._end = end
        self._options = options
        self._topic_ids = None if topic_id is None else {partition.topic: topic_id}
        self._ahead: asyncio.Task[FetchedBatches] | None = None
        # The deadline of the call of `next` that is under way. What the caller does between two calls may take long,
        # and is not counted against the brokers.
        self._deadline_ms = 0.0

    def begin(self) -> None:
        """Asks for the first batches, on the loop that runs."""
        if self._ahead is None and self._position < self._end:
            self._set_deadline()
            self._start_reading()

    async def next(self) -> FetchedBatches | None:
        """None at the end of the range. Raises KafkaError, OffsetsLostError among them."""
        if self._position >= self._end:
            return None
        self._set_deadline()
        fetched = await (self._ahead or self._start_reading())
        self._position = fetched.next_offset
        if self._position < self._end:
            self._start_reading()
            # The caller's loop may rest until it comes back: the request has to be sent before.
            await asyncio.sleep(0)
        return fetched

    async def close(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            # Its failure, if it had one, is of no interest any more.
            await asyncio.gather(ahead, return_exceptions=True)

    def _set_deadline(self) -> None:
        self._deadline_ms = self._cluster.ports.clock.monotonic_ms() + self._options.retry_timeout_ms

    def _start_reading(self) -> asyncio.Task[FetchedBatches]:
        self._ahead = asyncio.create_task(self._read(self._position))
        return self._ahead

    async def _read(self, position: int) -> FetchedBatches:
        attempt = 0
        was_empty = False
        while True:
            try:
                fetched = await self._fetch(position)
                if fetched.next_offset > position:
                    return fetched
                readable_end = _readable_end(fetched, self._options.isolation)
                if readable_end >= self._end:
                    # Compaction took everything up to the end. It is asked twice, since to stop too soon is to lose.
                    if was_empty:
                        return fetched._replace(next_offset=self._end)
                    was_empty = True
                failure = self._explain_waiting(fetched, readable_end)
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                failure = error
            pause_ms = self._cluster.backoff_ms(attempt)
            if self._cluster.ports.clock.monotonic_ms() + pause_ms > self._deadline_ms:
                gave_up = f"{failure.message} (given up after {self._options.retry_timeout_ms} ms)"
                raise KafkaError(failure.code, gave_up) from failure
            attempt += 1
            self._cluster.forget(self._partition.topic)
            await asyncio.sleep(pause_ms / 1000)

    async def _fetch(self, position: int) -> FetchedBatches:
        leader = await self._cluster.leader_of(self._partition)
        await self._check_is_same_topic(position)
        asked = {self._partition: FetchPosition(position, leader.leader_epoch)}
        answer = await fetch_once(self._cluster, leader.leader_id, asked, self._options, self._topic_ids)
        data = self._find_partition(answer)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._check_is_lost(position)
        check_partition(data, self._partition, position)
        records, next_offset = self._cut(records_of(data), position)
        return FetchedBatches(
            position,
            next_offset,
            records,
            aborted_of(data),
            data.log_start_offset,
            data.high_watermark,
            data.last_stable_offset,
        )

    async def _check_is_same_topic(self, position: int) -> None:
        """By what is known of the topic, which is asked for anew when a broker does not know the id. Raises
        OffsetsLostError."""
        for topic, topic_id in (self._topic_ids or {}).items():
            found = (await self._cluster.topic(topic)).id
            if found in (topic_id, ZERO_UUID):
                continue
            # What this client remembers may be older than the range.
            self._cluster.forget(topic)
            found = (await self._cluster.topic(topic)).id
            if found not in (topic_id, ZERO_UUID):
                ids = f"its id was {uuid_text(topic_id)} and is {uuid_text(found)}"
                why = f"the topic was deleted and created anew; {ids}"
                # What it held is gone, and the log that is there now is none of its.
                raise OffsetsLostError(self._partition, start=position, end=self._end, log=range(0), why=why)

    def _find_partition(self, answer: FetchResponse) -> FetchResponse.PartitionData:
        for topic in answer.responses:
            for data in topic.partitions:
                if (topic.topic, data.partition_index) == self._partition:
                    return data
        # A client over its quota gets an answer without data (KIP-219).
        raise KafkaError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"{self._partition} is not read: the broker throttles this client for {answer.throttle_time_ms} ms",
        )

    def _cut(self, records: memoryview, position: int) -> tuple[memoryview, int]:
        """Without the batches behind the end of the range; and the offset behind the last that is left."""
        next_offset = position
        for start, header in iterate_headers(records, allow_partial=True):
            if header.base_offset >= self._end:
                return records[:start], self._end
            next_offset = max(next_offset, header.next_offset)
        if records and next_offset == position:
            # Since Kafka 0.10.1 a broker sends one whole batch at least, however large (KIP-74).
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch at offset {position} of {self._partition} does not fit into a fetch of "
                f"{self._options.partition_max_bytes} bytes: raise max.partition.fetch.bytes",
            )
        return records, next_offset

    async def _check_is_lost(self, position: int) -> None:
        """Raises OffsetsLostError, or what is worth another try if the log holds the position after all: a new leader
        may not have known yet how far it reaches."""
        log = range(await self._offset_at(EARLIEST), await self._offset_at(LATEST))
        rest = f"its log has {log.start} to {log.stop - 1}" if log else f"its log is empty up to {log.stop}"
        if position < log.start:
            why = f"{rest}; retention or a deletion of records took them: keep them longer, or read more often"
            raise OffsetsLostError(self._partition, start=position, end=min(log.start, self._end), log=log, why=why)
        if position > log.stop:
            why = f"{rest}; they were truncated, or the topic was deleted and created anew"
            raise OffsetsLostError(self._partition, start=position, end=self._end, log=log, why=why)
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"offset {position} of {self._partition} cannot be read yet")

    async def _offset_at(self, timestamp: int) -> int:
        found = await list_offsets(
            self._cluster,
            {self._partition: timestamp},
            isolation=Isolation.READ_UNCOMMITTED,
            timeout_ms=self._options.retry_timeout_ms,
        )
        return found[self._partition]

    def _explain_waiting(self, fetched: FetchedBatches, readable_end: int) -> KafkaError:
        where = f"offset {fetched.position} of {self._partition} cannot be read yet"
        if readable_end < fetched.high_watermark:
            remedy = "see who holds it with: tailrace transaction find-hanging"
            return KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"{where}: a transaction is open since offset {readable_end}; {remedy}"
            )
        return KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{where}: the high watermark is {fetched.high_watermark}, and the range ends at {self._end}; are enough "
            "replicas in sync?",
        )


def _readable_end(fetched: FetchedBatches, isolation: Isolation) -> int:
    return fetched.last_stable_offset if isolation is Isolation.READ_COMMITTED else fetched.high_watermark
