"""Records for a member: the batches of the log where its share-partition goes on, as a slice of a file.

Of each batch the header is read, and nothing else: its offsets, and whether it belongs to a transaction. Readers at
read_committed get nothing of aborted transactions, and nobody gets the markers that end transactions. What lies in
remote storage alone comes as bytes (`cold`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.shares.key_order import is_hidden
from tailrace.coordinator.share_partition.delivery import Acquired
from tailrace.model.ports import FileSlice
from tailrace.model.settings import LONG_MAX
from tailrace.wire.records import HEADER_SIZE, BatchHeader, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.broker.shares.key_order import KeyOrder
    from tailrace.broker.shares.share_partition import SharePartition
    from tailrace.log.files.aborted import AbortedTransaction

# What is found to be of aborted transactions alone is passed over, so many times for one request.
_TRIES = 8
# Headers of batches are read up to there, most of whose records may wait for others.
_ORDERED_BYTES_MAX = 1 << 20


class Wanted(NamedTuple):
    member_id: str
    max_bytes: int
    max_records: int
    # New records are told in pieces of about so many.
    batch_size: int
    # No more than `max_records`, though it breaks batches.
    is_strict: bool


class Taken(NamedTuple):
    records: FileSlice | bytes
    acquired: list[Acquired]

    @property
    def record_count(self) -> int:
        return sum(each.last_offset - each.first_offset + 1 for each in self.acquired)


class _Found(NamedTuple):
    slice: FileSlice
    # Batches that members are not to see; None if the log is to be asked.
    hidden: list[tuple[int, int]] | None


class _Batch(NamedTuple):
    header: BatchHeader
    position: int  # In the file.


def readable_bytes(share_partition: SharePartition, max_bytes: int) -> int:
    """How much `take` would find; it changes nothing."""
    order = share_partition.key_order
    if order is not None:
        return 0 if order.first() is None else max_bytes
    found = _read(share_partition, max_bytes)
    return 0 if found is None else found.slice.size


def take(share_partition: SharePartition, wanted: Wanted, *, now_ms: float) -> Taken | None:
    """Acquires records for a member. None if there are none. Raises KafkaError."""
    order = share_partition.key_order
    if order is not None:
        return _take_in_order(share_partition, order, wanted, now_ms=now_ms)
    window = share_partition.window
    for _ in range(_TRIES):
        found = _read(share_partition, wanted.max_bytes)
        offset = window.next_offset()
        batches = [] if found is None else _scan(found.slice, offset, wanted.max_records)
        if found is None or not batches:
            return None
        acquired = window.acquire(
            wanted.member_id,
            [(each.header.base_offset, each.header.last_offset) for each in batches],
            max_records=wanted.max_records,
            batch_size=wanted.batch_size,
            is_strict=wanted.is_strict,
            limits=share_partition.limits,
            now_ms=now_ms,
        )
        if not acquired:
            return None
        hidden = _hidden(share_partition, batches, found.slice, offset) if found.hidden is None else found.hidden
        if hidden:
            acquired = window.discard(acquired, hidden)
        if acquired:
            records = _trim(found.slice, batches, acquired)
            taken = Taken(records if found.hidden is None else records.read(), acquired)
            share_partition.note_acquired(taken.record_count)
            return taken
    return None


def _take_in_order(share_partition: SharePartition, order: KeyOrder, wanted: Wanted, *, now_ms: float) -> Taken | None:
    """Whole batches go out, though some of their records wait: members pass over those that they are not given."""
    window = share_partition.window
    window.move_start(share_partition.partition.log_start_offset)
    offset = order.first()
    if offset is None:
        if order.is_blocked:
            share_partition.make_room()
        return None
    slice_ = share_partition.read(offset, min(wanted.max_bytes, _ORDERED_BYTES_MAX))
    batches = [] if slice_ is None else _scan(slice_, offset, LONG_MAX)
    if slice_ is None or not batches:
        return None
    acquired = window.acquire_in_order(
        wanted.member_id,
        order.keys,
        min(order.end, batches[-1].header.next_offset),
        max_records=wanted.max_records,
        limits=share_partition.limits,
        now_ms=now_ms,
    )
    if not acquired:
        return None
    taken = Taken(_trim(slice_, batches, acquired), acquired)
    share_partition.note_acquired(taken.record_count)
    return taken


def _read(share_partition: SharePartition, max_bytes: int) -> _Found | None:
    partition, window = share_partition.partition, share_partition.window
    window.move_start(partition.log_start_offset)
    if not window.may_acquire(share_partition.limits):
        share_partition.make_room()
        return None
    offset = window.next_offset()
    if offset >= partition.readable_end(share_partition.isolation_level):
        return None
    if offset < partition.log.log_start_offset:
        piece = share_partition.cold.find(offset)
        return None if piece is None else _Found(piece.slice, piece.hidden)
    slice_ = share_partition.read(offset, max_bytes)
    return None if slice_ is None else _Found(slice_, None)


def _scan(slice_: FileSlice, offset: int, max_records: int) -> list[_Batch]:
    """Whole batches, until they have enough records."""
    found: list[_Batch] = []
    position, end = slice_.position, slice_.position + slice_.size
    while position + HEADER_SIZE <= end:
        header = read_header(slice_.file.read(position, HEADER_SIZE))
        if position + header.size_bytes > end:
            break
        if header.last_offset >= offset:
            found.append(_Batch(header, position))
            if header.last_offset - offset + 1 >= max_records:
                break
        position += header.size_bytes
    return found


def _hidden(
    share_partition: SharePartition, batches: Sequence[_Batch], slice_: FileSlice, offset: int
) -> list[tuple[int, int]]:
    """The batches that members are not to see."""
    if not any(each.header.is_transactional or each.header.is_control for each in batches):
        return []
    aborted: list[AbortedTransaction] = []
    if share_partition.is_read_committed:
        aborted = share_partition.partition.find_aborted(slice_, offset)
    return [(header.base_offset, header.last_offset) for header, _ in batches if is_hidden(header, aborted)]


def _trim(slice_: FileSlice, batches: Sequence[_Batch], acquired: Sequence[Acquired]) -> FileSlice:
    """From the batch with the first record that was acquired to the one with the last."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    inside = [each for each in batches if each.header.last_offset >= first and each.header.base_offset <= last]
    start, end = inside[0].position, inside[-1].position + inside[-1].header.size_bytes
    return FileSlice(slice_.file, start, end - start)
