"""What a share group has not read yet and lies in remote storage alone: a piece at a time is read by a task, and kept
until another one is wanted. Fetches wait for it as for records that are not written yet. A group that begins at a time
may begin there too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ports import FileSlice
from tailrace.replica.repair.failures import storage_failure
from tailrace.wire.markers import read_marker
from tailrace.wire.records import iterate_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.broker.shares.share_partition import SharePartition
    from tailrace.broker.tier.cold import Aborted
    from tailrace.broker.tier.parts import TieredLog
    from tailrace.replica.partition import Partition

_READ_BYTES = 1 << 20
_PAUSE_SECONDS = 0.2


async def first_since(partition: Partition, timestamp: int) -> int:
    """The first record that is not older, in the store or here; where the partition ends if there is none. Raises
    KafkaError."""
    if partition.tier is not None:
        from tailrace.broker.tier.lookups import look_up

        part: TieredLog = partition.tier  # type: ignore[assignment]
        remote = await look_up(part, timestamp, local_timestamp=-1)
        if remote is not None:
            return remote.offset
    try:
        found = partition.log.offset_by_timestamp(timestamp, end_offset=partition.high_watermark)
    except StorageError as error:
        raise storage_failure(partition.log, error) from error
    return partition.high_watermark if found is None else found[1]


class Memory:
    """Bytes that are read like a file."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])


class ColdPiece(NamedTuple):
    start: int
    end: int
    data: bytes | bytearray
    # Batches of it that members are not to see: their first and last offsets.
    hidden: list[tuple[int, int]]

    @property
    def slice(self) -> FileSlice:
        return FileSlice(Memory(self.data), 0, len(self.data))  # type: ignore[arg-type]


class ColdPieces:
    def __init__(self, share_partition: SharePartition) -> None:
        self._share_partition = share_partition
        self._piece: ColdPiece | None = None
        self._failure: KafkaError | None = None
        self._task: asyncio.Task[None] | None = None

    def find(self, offset: int) -> ColdPiece | None:
        """None while it is read. Raises KafkaError, once, if it could not be."""
        if self._piece is not None and self._piece.start <= offset < self._piece.end:
            return self._piece
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._task is None:
            self._task = self._share_partition.begin(self._read(offset))
        return None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _read(self, offset: int) -> None:
        from tailrace.broker.tier.cold import read_cold

        share_partition = self._share_partition
        part: TieredLog = share_partition.partition.tier  # type: ignore[assignment]
        try:
            found = await part.tier.reading(
                read_cold(part, offset, _READ_BYTES, wants_aborted=share_partition.is_read_committed)
            )
            if not found.data:
                # The store does not answer yet: whoever asks at once would ask again at once.
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                end = max(header.next_offset for _, header in iterate_headers(found.data, allow_partial=True))
                self._piece = ColdPiece(offset, end, found.data, hidden_in(found.data, found.aborted))
        except KafkaError as error:
            self._failure = error
        finally:
            self._task = None
        share_partition.readers.tell()


def hidden_in(data: bytes | bytearray, aborted: Sequence[Aborted]) -> list[tuple[int, int]]:
    """Markers, and what their producers have written between the beginning of a transaction and its abort."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    open_producers: set[int] = set()
    hidden: list[tuple[int, int]] = []
    for position, header in iterate_headers(data, allow_partial=True):
        while waiting and waiting[0].first_offset <= header.last_offset:
            open_producers.add(waiting.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(header, memoryview(data)[position : position + header.size_bytes])
            if marker is not None and not marker.is_commit:
                open_producers.discard(header.producer_id)
        if header.is_control or (header.is_transactional and header.producer_id in open_producers):
            hidden.append((header.base_offset, header.last_offset))
    return hidden
