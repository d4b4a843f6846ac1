"""A range of offsets as another replica has it, batch by batch, checked.

Asked for as a consumer would (KIP-392 lets followers answer too): a replica's own fetch from an old offset would tell
the leader that this replica has lost everything after it. So nothing above the high watermark is seen, and what is
seen is the same on every replica, but for compaction.

A range is complete if its batches follow on each other without a gap and end where it does. Of a compacted topic no
replica knows what others have kept: there it is enough that the replica has come as far. What was aborted is left out
there, as a compaction would do it, unless this log's own index tells of it: a compaction may have dropped the entry
(`mending` says why the whole log is taken then).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from tailrace.log.compaction.rewrite import empty_header
from tailrace.log.scrub.walk import Bounds, find_problem
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.replica.partition import READ_COMMITTED, Partition
from tailrace.wire.apis.data import FetchRequest, FetchResponse
from tailrace.wire.markers import read_marker
from tailrace.wire.records import BatchHeader, assemble_batch, crc_is_valid, iterate_headers
from tailrace.wire.schema import Message

R = TypeVar("R", bound=Message)

# The size of one fetch; a larger batch comes whole all the same.
_FETCH_BYTES = 1024 * 1024
_CHANNEL = "repair"
READ_UNCOMMITTED = 0


class CallBroker(Protocol):
    """Asks another broker."""

    async def __call__(
        self, node_id: int, request: Message, response_type: type[R], *, channel: str, timeout_ms: int | None = None
    ) -> R:
        """Raises KafkaError; NETWORK_EXCEPTION if no answer came."""


class RangeSource:
    """`leader_epoch_at` gives the epoch that this log knows for an offset: a replica whose batch has another one has
    another history."""

    def __init__(
        self,
        call: CallBroker,
        node_id: NodeId,
        partition: Partition,
        *,
        leader_epoch_at: Callable[[int], int],
        timeout_ms: int,
    ) -> None:
        self.node_id = node_id
        self._call = call
        self._partition = partition
        self._leader_epoch_at = leader_epoch_at
        self._timeout_ms = timeout_ms
        self._is_compacted = "compact" in partition.log.config.cleanup_policy

    async def batches(self, start_offset: int, end_offset: int) -> AsyncIterator[bytes]:
        """Runs of whole batches. What lies before the log start may be left out. Raises KafkaError if the replica
        cannot give all of them now."""
        bounds = Bounds(1 << 62, end_offset, self._leader_epoch_at)
        aborted = _AbortedProducers(self._known_aborted() if self._is_compacted else set())
        offset = max(start_offset, self._partition.log.log_start_offset)
        least_offset = start_offset  # The first batch may begin before the log start.
        while offset < end_offset:
            data = await self._fetch(offset)
            records = bytes(data.records) if data.records else b""  # type: ignore[arg-type] # Received, so in memory.
            aborted.note(data.aborted_transactions or [])
            run: list[bytes | bytearray | memoryview] = []
            view, was = memoryview(records), offset
            for at, header in iterate_headers(records, allow_partial=True):
                if header.base_offset >= end_offset:
                    self._check_gap(offset, end_offset)
                    offset = end_offset
                    break
                self._check(records, at, header, least_offset, bounds)
                self._check_gap(offset, header.base_offset)
                batch: bytes | bytearray | memoryview = view[at : at + header.size_bytes]
                if self._is_compacted and aborted.is_aborted(header, batch):
                    batch = assemble_batch(empty_header(header), b"")
                run.append(batch)
                offset = least_offset = header.next_offset
            if run:
                yield b"".join(run)
            if offset == was:
                readable_end = data.last_stable_offset if self._is_compacted else data.high_watermark
                if readable_end < end_offset:
                    raise self._unable(f"it can be read up to offset {readable_end}", retry=True)
                self._check_gap(offset, end_offset)
                return

    def _known_aborted(self) -> set[tuple[int, int]]:
        segments = self._partition.log.segments
        return {
            (each.first_offset, each.producer_id) for segment in segments for each in segment.aborted.from_offset(0)
        }

    async def can_read(self, start_offset: int, end_offset: int) -> bool:
        """Whether the replica has all of the range, with good CRCs."""
        try:
            async for _ in self.batches(start_offset, end_offset):
                pass
        except KafkaError:
            return False
        return True

    async def _fetch(self, offset: int) -> FetchResponse.PartitionData:
        partition = self._partition
        asked = FetchRequest.FetchPartition(
            partition=partition.topic_partition.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        topic = FetchRequest.FetchTopic(
            topic=partition.topic_partition.topic, topic_id=bytes(partition.topic_id), partitions=[asked]
        )
        isolation_level = READ_COMMITTED if self._is_compacted else READ_UNCOMMITTED
        request = FetchRequest(max_bytes=_FETCH_BYTES, isolation_level=isolation_level, topics=[topic])
        response = await self._call(self.node_id, request, FetchResponse, timeout_ms=self._timeout_ms, channel=_CHANNEL)
        found = [data for topic in response.responses for data in topic.partitions]
        code = response.error_code or (found[0].error_code if found else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if code:
            raise KafkaError(ErrorCode(code), f"broker {self.node_id} answered {ErrorCode(code).name}")
        return found[0]

    def _check(self, records: bytes, at: int, header: BatchHeader, offset: int, bounds: Bounds) -> None:
        problem = find_problem(header, offset, bounds)
        if not problem and not crc_is_valid(records, at, header):
            problem = f"the CRC of the batch at offset {header.base_offset} does not match"
        if problem:
            raise self._unable(problem)

    def _check_gap(self, offset: int, next_offset: int) -> None:
        if offset < next_offset and not self._is_compacted:
            raise self._unable(f"it has nothing from offset {offset} to {next_offset}")

    def _unable(self, cause: str, *, retry: bool = False) -> KafkaError:
        code = ErrorCode.OFFSET_NOT_AVAILABLE if retry else ErrorCode.CORRUPT_MESSAGE
        return KafkaError(code, f"broker {self.node_id} cannot give the range: {cause}")


class _AbortedProducers:
    """What a consumer at read_committed keeps: whose transaction is open, and will be aborted. `known` are those that
    the log has in its index, by first offset and producer: their records may stay."""

    def __init__(self, known: set[tuple[int, int]]) -> None:
        self._coming: set[tuple[int, int]] = set()  # Bounded by what the answers tell.
        self._noted = known
        self._open: set[int] = set()

    def note(self, aborted: list[FetchResponse.AbortedTransaction]) -> None:
        """Answers to fetches within one transaction tell of it each time."""
        told = {(each.first_offset, each.producer_id) for each in aborted}
        self._coming |= told - self._noted
        self._noted |= told

    def is_aborted(self, header: BatchHeader, batch: bytes | bytearray | memoryview) -> bool:
        if not header.is_transactional:
            return False
        begun = {each for each in self._coming if each[0] <= header.last_offset}
        self._coming -= begun
        self._open |= {producer_id for _, producer_id in begun}
        if header.is_control:
            marker = read_marker(header, batch)
            if marker is not None and not marker.is_commit:
                self._open.discard(header.producer_id)
            return False
        return header.producer_id in self._open
