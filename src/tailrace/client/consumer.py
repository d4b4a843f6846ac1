"""The consumer: partitions that the caller assigns, read from where the caller says.

No group: nothing is committed and nobody else is told (`groups.consumer` does that). One fetch at a time is under way
to each leader, over all the partitions that it leads; `poll` returns the records of the first that is answered, in
order within a partition. What was fetched and not handed out yet, since the caller wants no more at a time or has
paused its partition, waits here, and is no more than one fetch of each partition. A position is the offset of the next
record to hand out. Batches are checked by their CRC,
control batches are left out, and what a batch may decompress to is bounded. With READ_COMMITTED nothing of an open or
aborted transaction is given: brokers answer up to the last stable offset, and name what was aborted below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tailrace.client.fetching import (
    ConsumerOptions,
    FetchPosition,
    Isolation,
    aborted_of,
    check_partition,
    fetch_once,
    iterate_batches,
    records_of,
)
from tailrace.client.metadata import Cluster
from tailrace.client.offsets import EARLIEST, LATEST, NO_SUCH_RECORD, list_offsets
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.data import FetchResponse
from tailrace.wire.records import Record, iterate_records

# How long a fetch waits for records at most while partitions are paused.
_WAIT_BESIDE_PAUSED_MS = 50

__all__ = ["EARLIEST", "LATEST", "Consumer", "ConsumerOptions", "Isolation", "Position"]


class Position(NamedTuple):
    """`end_offset` is where reading would end, as last heard of, or -1: the high watermark, or with READ_COMMITTED the
    last stable offset."""

    offset: int
    end_offset: int


class _Ready(NamedTuple):
    """Records of a partition that were fetched, of which those from `start` on were not handed out yet, and where
    reading goes on behind them."""

    records: list[Record]
    start: int
    next_offset: int


class _Fetched(NamedTuple):
    asked: dict[TopicPartition, FetchPosition]
    answer: FetchResponse


class Consumer:
    """`close` it at the end."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions | None = None) -> None:
        self.cluster = cluster
        self.options = options or ConsumerOptions()
        self._positions: dict[TopicPartition, Position] = {}
        self._ready: dict[TopicPartition, _Ready] = {}
        self._paused: set[TopicPartition] = set()
        # At most one per leader.
        self._fetches: dict[NodeId, asyncio.Task[_Fetched]] = {}
        self._interruption: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failures = 0
        self._failing_since_ms = 0.0

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions, each from an offset, and no others."""
        await self.close()
        self._ready.clear()
        self._paused.clear()
        self._positions = {partition: Position(offset, -1) for partition, offset in positions.items()}

    def change(self, *, added: Mapping[TopicPartition, int], removed: Iterable[TopicPartition] = ()) -> None:
        """Reads other partitions from now on, or the same from another offset; what is under way for the rest goes
        on."""
        for partition in removed:
            self._positions.pop(partition, None)
            self._ready.pop(partition, None)
            self._paused.discard(partition)
        for partition in added:
            self._ready.pop(partition, None)
        self._positions |= {partition: Position(offset, -1) for partition, offset in added.items()}

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Gives none of their records until they are resumed. A partition that is given away is not paused any more."""
        self._paused.update(partition for partition in partitions if partition in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)
        self.interrupt()

    def interrupt(self) -> None:
        """Makes the poll that is under way, or else the next one, return without records."""
        if not self._interruption.done():
            self._interruption.set_result(None)

    def position(self, partition: TopicPartition) -> Position:
        return self._positions[partition]

    def end_offset(self, partition: TopicPartition) -> int:
        return self._positions[partition].end_offset

    async def close(self) -> None:
        fetches, self._fetches = list(self._fetches.values()), {}
        for fetch in fetches:
            fetch.cancel()
        if fetches:
            await asyncio.wait(fetches)

    async def offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The first offset at or after a time. EARLIEST and LATEST give the two ends; a time after the last record
        gives the end too."""
        found = await self._list_offsets(partitions, timestamp)
        behind = [partition for partition, offset in found.items() if offset == NO_SUCH_RECORD]
        return found | await self._list_offsets(behind, LATEST)

    async def poll(self, timeout_ms: float, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """The next records, at most so many, or nothing if none came in time. Raises KafkaError for what does not pass
        by itself."""
        assert self._positions, "assign partitions before polling"
        if self._ready and (records := self._hand_out(max_records)):
            return records
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._interruption.done():
                    try:
                        await self._start_fetches()
                        waited: list[asyncio.Future[Any]] = [*self._fetches.values(), self._interruption]
                        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                        self._collect(done)
                        records = self._hand_out(max_records)
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
        by_leader: dict[NodeId, dict[TopicPartition, FetchPosition]] = {}
        for partition, position in self._positions.items():
            if partition in self._ready or partition in self._paused:
                continue
            leader = await self.cluster.leader_of(partition)
            asked = FetchPosition(position.offset, leader.leader_epoch)
            by_leader.setdefault(leader.leader_id, {})[partition] = asked
        options = self.options
        if (
            self._paused
        ):  # A broker answers in order: what is resumed must not wait for a fetch that has begun without it.
            wait_ms = min(options.fetch_max_wait_ms, _WAIT_BESIDE_PAUSED_MS)
            options = options._replace(fetch_max_wait_ms=wait_ms)
        for node_id, positions in by_leader.items():
            if node_id not in self._fetches:
                self._fetches[node_id] = asyncio.create_task(self._fetch(node_id, positions, options))

    async def _fetch(
        self, node_id: NodeId, asked: dict[TopicPartition, FetchPosition], options: ConsumerOptions
    ) -> _Fetched:
        return _Fetched(asked, await fetch_once(self.cluster, node_id, asked, options))

    def _collect(self, done: Iterable[asyncio.Future[Any]]) -> None:
        ended = set(done)
        finished = [fetch for fetch in self._fetches.values() if fetch in ended]
        self._fetches = {node_id: fetch for node_id, fetch in self._fetches.items() if fetch not in ended}
        failure: KafkaError | None = None
        for fetch in finished:
            try:
                self._open(fetch.result())
            except KafkaError as error:
                failure = error
        # What was read is handed out first. The failure shows again at the next poll.
        if failure is not None and self._ready.keys() <= self._paused:
            raise failure

    def _open(self, fetched: _Fetched) -> None:
        failure: KafkaError | None = None
        for topic in fetched.answer.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, PartitionIndex(data.partition_index))
                position = self._positions.get(partition)
                asked = fetched.asked.get(partition)
                if position is None or asked is None or asked.offset != position.offset:
                    continue  # It was read from another leader meanwhile.
                try:
                    self._open_partition(partition, data)
                except KafkaError as error:
                    failure = error
        if failure is not None:
            raise failure

    def _open_partition(self, partition: TopicPartition, data: FetchResponse.PartitionData) -> None:
        first = position = self._positions[partition].offset
        check_partition(data, partition, position)
        records: list[Record] = []
        view = records_of(data)
        batches = iterate_batches(view, partition, position, aborted_of(data), high_watermark=data.high_watermark)
        for start, header, is_visible in batches:
            if is_visible:
                batch = view[start : start + header.size_bytes]
                found = iterate_records(batch, max_decompressed_bytes=self.options.decompressed_bytes_max)
                # The first batch may start before the position.
                records += found if header.base_offset >= position else (r for r in found if r.offset >= position)
            position = header.next_offset
        is_committed_only = self.options.isolation is Isolation.READ_COMMITTED
        end_offset = data.last_stable_offset if is_committed_only else data.high_watermark
        if records:
            self._ready[partition] = _Ready(records, 0, position)
        self._positions[partition] = Position(first if records else position, end_offset)

    def _hand_out(self, max_records: int | None) -> dict[TopicPartition, list[Record]]:
        given: dict[TopicPartition, list[Record]] = {}
        for partition in list(self._ready):
            if partition in self._paused:
                continue
            records, start, next_offset = self._ready.pop(partition)
            end = len(records) if max_records is None else min(len(records), start + max_records)
            if end < len(records):
                self._ready[partition] = _Ready(records, end, next_offset)
                next_offset = records[end].offset
            if max_records is not None:
                max_records -= end - start
            if end - start < len(records):
                records = records[start:end]
            given[partition] = records
            self._positions[partition] = self._positions[partition]._replace(offset=next_offset)
            if max_records == 0:
                break
        return given

    async def _list_offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return await list_offsets(
            self.cluster,
            dict.fromkeys(partitions, timestamp),
            isolation=self.options.isolation,
            timeout_ms=self.options.retry_timeout_ms,
        )
