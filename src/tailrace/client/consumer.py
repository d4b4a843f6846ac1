"""The consumer: partitions that the caller assigns, read from where the caller says.

No group: nothing is committed and nobody else is told (`groups.consumer` does that). One fetch at a time is under way
to each leader, over all the partitions that it leads; `poll` returns the records of the first that is answered, in
order within a partition. A position is the offset of the next record to hand out. Batches are checked by their CRC,
control batches are left out, and what a batch may decompress to is bounded. With READ_COMMITTED nothing of an open or
aborted transaction is given: brokers answer up to the last stable offset, and name what was aborted below it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.model.ports import FileSlice
from tailrace.wire.apis.data import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from tailrace.wire.markers import read_marker
from tailrace.wire.records import BatchHeader, Record, crc_is_valid, iterate_headers, iterate_records

# From version 13 on topics are named by id only.
_FETCH_VERSION_MAX = 12
_CONSUMER_REPLICA_ID = -1

# Timestamps with a meaning of their own in ListOffsets.
LATEST = -1
EARLIEST = -2

_PartitionData = FetchResponse.PartitionData


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ConsumerOptions(NamedTuple):
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    # A batch that decompresses to more is refused.
    decompressed_bytes_max: int = 256 * 1024 * 1024
    # How long a lost leader or connection may take to come back.
    retry_timeout_ms: int = 30_000


class Position(NamedTuple):
    """`end_offset` is where reading would end, as last heard of, or -1: the high watermark, or with READ_COMMITTED the
    last stable offset."""

    offset: int
    end_offset: int


class _Fetched(NamedTuple):
    asked: dict[TopicPartition, int]
    answer: FetchResponse


class Consumer:
    """`close` it at the end."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions | None = None) -> None:
        self.cluster = cluster
        self.options = options or ConsumerOptions()
        self._positions: dict[TopicPartition, Position] = {}
        # At most one per leader.
        self._fetches: dict[NodeId, asyncio.Task[_Fetched]] = {}
        self._interruption: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failures = 0
        self._failing_since_ms = 0.0

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions, each from an offset, and no others."""
        await self.close()
        self._positions = {partition: Position(offset, -1) for partition, offset in positions.items()}

    def change(self, *, added: Mapping[TopicPartition, int], removed: Iterable[TopicPartition] = ()) -> None:
        """Reads other partitions from now on, or the same from another offset; what is under way for the rest goes
        on."""
        for partition in removed:
            self._positions.pop(partition, None)
        self._positions |= {partition: Position(offset, -1) for partition, offset in added.items()}

    def interrupt(self) -> None:
        """Makes the poll that is under way, or else the next one, return without records."""
        if not self._interruption.done():
            self._interruption.set_result(None)

    def position(self, partition: TopicPartition) -> Position:
        return self._positions[partition]

    async def close(self) -> None:
        fetches, self._fetches = list(self._fetches.values()), {}
        for fetch in fetches:
            fetch.cancel()
        if fetches:
            await asyncio.wait(fetches)

    async def offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The first offset at or after a time. EARLIEST and LATEST give the two ends; a time after the last record
        gives the end too."""
        wanted = list(partitions)
        found = await self._list_offsets_with_retries(wanted, timestamp)
        behind = [partition for partition in wanted if found[partition] < 0]
        return found | await self._list_offsets_with_retries(behind, LATEST)

    async def poll(self, timeout_ms: float) -> dict[TopicPartition, list[Record]]:
        """The next records, or nothing if none came in time. Raises KafkaError for what does not pass by itself."""
        assert self._positions, "assign partitions before polling"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._interruption.done():
                    try:
                        await self._start_fetches()
                        waited: list[asyncio.Future[Any]] = [*self._fetches.values(), self._interruption]
                        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                        records = self._collect(done)
                    except KafkaError as error:
                        await self._pause_or_raise(error)
                        continue
                    self._failures = 0
                    if records:
                        return records
        except TimeoutError:
            return {}
        self._interruption = asyncio.get_running_loop().create_future()
        return {}

    async def _pause_or_raise(self, error: KafkaError) -> None:
        now = self.cluster.ports.clock.monotonic_ms()
        if not self._failures:
            self._failing_since_ms = now
        if not error.code.retriable or now - self._failing_since_ms > self.options.retry_timeout_ms:
            raise error
        for topic in {partition.topic for partition in self._positions}:
            self.cluster.forget(topic)
        await asyncio.sleep(self.cluster.backoff_ms(self._failures) / 1000)
        self._failures += 1

    # --- fetching

    async def _start_fetches(self) -> None:
        by_leader: dict[NodeId, dict[TopicPartition, int]] = {}
        epochs: dict[TopicPartition, int] = {}
        for partition, position in self._positions.items():
            leader = await self.cluster.leader_of(partition)
            by_leader.setdefault(leader.leader_id, {})[partition] = position.offset
            epochs[partition] = leader.leader_epoch
        for node_id, asked in by_leader.items():
            if node_id not in self._fetches:
                self._fetches[node_id] = asyncio.create_task(self._fetch(node_id, asked, epochs))

    async def _fetch(
        self, node_id: NodeId, asked: dict[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> _Fetched:
        topics: dict[str, list[FetchRequest.FetchPartition]] = {}
        for partition, offset in asked.items():
            topics.setdefault(partition.topic, []).append(
                FetchRequest.FetchPartition(
                    partition=partition.partition,
                    # A broker that led in an earlier epoch may be a follower now, and lack what was read (KIP-320).
                    current_leader_epoch=epochs[partition],
                    fetch_offset=offset,
                    partition_max_bytes=self.options.partition_max_bytes,
                )
            )
        request = FetchRequest(
            isolation_level=self.options.isolation,
            max_wait_ms=self.options.fetch_max_wait_ms,
            min_bytes=self.options.fetch_min_bytes,
            max_bytes=self.options.fetch_max_bytes,
            topics=[FetchRequest.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        )
        connection = await self.cluster.connection_to(node_id)
        patience_ms = self.options.fetch_max_wait_ms + self.cluster.limits.request_timeout_ms
        answer = await connection.call(request, FetchResponse, version_max=_FETCH_VERSION_MAX, timeout_ms=patience_ms)
        return _Fetched(asked, answer)

    def _collect(self, done: Iterable[asyncio.Future[Any]]) -> dict[TopicPartition, list[Record]]:
        ended = set(done)
        finished = [fetch for fetch in self._fetches.values() if fetch in ended]
        self._fetches = {node_id: fetch for node_id, fetch in self._fetches.items() if fetch not in ended}
        records: dict[TopicPartition, list[Record]] = {}
        failure: KafkaError | None = None
        for fetch in finished:
            try:
                records |= self._open(fetch.result())
            except KafkaError as error:
                failure = error
        # What was read is handed out first: its positions have moved. The failure shows again at the next poll.
        if failure is not None and not records:
            raise failure
        return records

    def _open(self, fetched: _Fetched) -> dict[TopicPartition, list[Record]]:
        if fetched.answer.error_code:
            raise KafkaError(error_code(fetched.answer.error_code), "the broker refuses to be read from")
        records: dict[TopicPartition, list[Record]] = {}
        failure: KafkaError | None = None
        for topic in fetched.answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, PartitionIndex(data.partition_index))
                position = self._positions.get(partition)
                if position is None or fetched.asked.get(partition) != position.offset:
                    continue  # It was read from another leader meanwhile.
                try:
                    found = self._open_partition(partition, data)
                except KafkaError as error:
                    failure = error
                    continue
                if found:
                    records[partition] = found
        if failure is not None and not records:
            raise failure
        return records

    def _open_partition(self, partition: TopicPartition, data: _PartitionData) -> list[Record]:
        code = error_code(data.error_code)
        position = self._positions[partition].offset
        if code is not ErrorCode.NONE:
            raise KafkaError(code, _explain_fetch_error(code, partition, position))
        assert not isinstance(data.records, FileSlice)
        view = memoryview(data.records or b"")
        records: list[Record] = []
        aborted = _Aborted(data.aborted_transactions or ())
        for start, header in iterate_headers(view, allow_partial=True):
            if header.last_offset < position:
                continue
            if not crc_is_valid(view, start, header):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} of {partition} is damaged"
                )
            batch = view[start : start + header.size_bytes]
            if not aborted.covers(header, batch) and not header.is_control:
                found = iterate_records(batch, max_decompressed_bytes=self.options.decompressed_bytes_max)
                # The first batch may start before the position: a fetch returns whole ones.
                records += found if header.base_offset >= position else (r for r in found if r.offset >= position)
            position = header.next_offset
        is_committed_only = self.options.isolation is Isolation.READ_COMMITTED
        end_offset = data.last_stable_offset if is_committed_only else data.high_watermark
        self._positions[partition] = Position(position, end_offset)
        return records

    # --- offsets by time

    async def _list_offsets_with_retries(
        self, partitions: list[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}

        async def attempt() -> dict[TopicPartition, int]:
            try:
                return await self._list_offsets(partitions, timestamp)
            except KafkaError:
                for partition in partitions:
                    self.cluster.forget(partition.topic)
                raise

        return await self.cluster.with_retries(attempt, timeout_ms=self.options.retry_timeout_ms)

    async def _list_offsets(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        by_leader: dict[NodeId, dict[str, list[int]]] = {}
        for partition in partitions:
            leader = await self.cluster.leader_of(partition)
            by_leader.setdefault(leader.leader_id, {}).setdefault(partition.topic, []).append(partition.partition)
        found = {}
        for node_id, topics in by_leader.items():
            connection = await self.cluster.connection_to(node_id)
            request = ListOffsetsRequest(
                replica_id=_CONSUMER_REPLICA_ID,
                isolation_level=self.options.isolation,
                timeout_ms=self.cluster.limits.request_timeout_ms,
                topics=[_offsets_question(name, indexes, timestamp) for name, indexes in topics.items()],
            )
            answer = await connection.call(request, ListOffsetsResponse)
            for topic in answer.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, PartitionIndex(result.partition_index))
                    if result.error_code:
                        raise KafkaError(error_code(result.error_code), f"{partition} does not tell its offsets")
                    found[partition] = result.offset
        return found


class _Aborted:
    """Which batches of an answer belong to aborted transactions, asked in the order of their offsets. A transaction
    reaches from its first offset to the marker of its producer."""

    def __init__(self, transactions: Iterable[FetchResponse.AbortedTransaction]) -> None:
        self._coming = deque(sorted((each.first_offset, each.producer_id) for each in transactions))
        self._open: set[int] = set()

    def covers(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(self._coming.popleft()[1])
        if header.is_control:
            marker = read_marker(header, batch)
            if marker is not None and not marker.is_commit:
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def _explain_fetch_error(code: ErrorCode, partition: TopicPartition, offset: int) -> str:
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return f"offset {offset} is not in {partition} (any more): read from its beginning or its end"
    return f"{partition} cannot be read at offset {offset}"


def _offsets_question(name: str, indexes: list[int], timestamp: int) -> ListOffsetsRequest.ListOffsetsTopic:
    return ListOffsetsRequest.ListOffsetsTopic(
        name=name,
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes
        ],
    )
