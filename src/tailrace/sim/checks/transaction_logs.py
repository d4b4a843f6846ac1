"""What the committed batches of a partition say of its transactions: which are open, and how the others ended.

It is built from what `history` sees for the first time below a high watermark, by the rules of the format alone: data
of a producer since its last marker belong to one transaction, and its next marker ends it. Brokers and readers are
compared with it. Epochs of a producer never go back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.wire.markers import read_marker
from tailrace.wire.records import BatchHeader, iterate_records

_MAX_DECOMPRESSED_BYTES = 1 << 24


class Written:
    """One transaction, as far as it is in one partition."""

    __slots__ = ("first_offset", "is_commit", "marker_offset", "producer_epoch", "producer_id", "value")

    def __init__(self, header: BatchHeader, value: bytes) -> None:
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        self.first_offset = header.base_offset
        self.value = value  # The value of its first record: it names the transaction.
        self.is_commit = False
        self.marker_offset = -1  # -1: it is open.

    @property
    def is_open(self) -> bool:
        return self.marker_offset < 0


class _Batch:
    __slots__ = ("base_offset", "is_control", "next_offset", "transaction")

    def __init__(self, header: BatchHeader, transaction: Written | None) -> None:
        self.base_offset = header.base_offset
        self.next_offset = header.next_offset
        self.is_control = header.is_control
        self.transaction = transaction

    def is_visible(self, *, at_read_committed: bool) -> bool:
        if self.is_control:
            return False
        transaction = self.transaction
        return not at_read_committed or transaction is None or (not transaction.is_open and transaction.is_commit)


class TransactionLog:
    """The transactions of one partition."""

    def __init__(self, partition: TopicPartition, on_ended: Callable[[TopicPartition, Written], None]) -> None:
        self.partition = partition
        self.end_offset = 0
        self.open: dict[int, Written] = {}  # by producer id
        self._on_ended = on_ended
        self._ended: list[Written] = []  # in the order of their markers
        self._batches: list[_Batch] = []
        self._base_offsets: list[int] = []
        self._epochs: dict[int, int] = {}

    def add(self, header: BatchHeader, batch: bytes) -> None:
        transaction = self._follow(header, batch) if header.producer_id >= 0 else None
        self._batches.append(_Batch(header, transaction))
        self._base_offsets.append(header.base_offset)
        self.end_offset = header.next_offset

    def _follow(self, header: BatchHeader, batch: bytes) -> Written | None:
        producer_id = header.producer_id
        last_epoch = self._epochs.get(producer_id, -1)
        demand(
            header.producer_epoch >= last_epoch,
            "the epoch of a producer never goes back",
            partition=self.partition,
            offset=header.base_offset,
            producer_id=producer_id,
            epochs=(last_epoch, header.producer_epoch),
        )
        self._epochs[producer_id] = header.producer_epoch
        if header.is_control:
            self._end(header, batch)
            return None
        if not header.is_transactional:
            return None
        transaction = self.open.get(producer_id)
        if transaction is None:
            records = iterate_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
            transaction = self.open[producer_id] = Written(header, next(records).value or b"")
        return transaction

    def _end(self, header: BatchHeader, batch: bytes) -> None:
        marker = read_marker(header, batch)
        transaction = self.open.pop(header.producer_id, None) if marker is not None else None
        if marker is not None and transaction is not None:
            transaction.marker_offset, transaction.is_commit = header.base_offset, marker.is_commit
            self._ended.append(transaction)
            self._on_ended(self.partition, transaction)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset of a transaction whose marker is not below the high watermark."""
        found = [high_watermark, *(each.first_offset for each in self.open.values())]
        for each in reversed(self._ended):
            if each.marker_offset < high_watermark:
                break
            found.append(each.first_offset)
        return min(found)

    def decided_offset(self, high_watermark: int) -> int:
        """The same with all that is committed, of which a leader that has just started may not know yet."""
        return min([high_watermark, *(each.first_offset for each in self.open.values())])

    def judge_read(
        self, who: str, start_offset: int, end_offset: int, offsets: list[int], *, at_read_committed: bool
    ) -> None:
        """A reader went from the one offset to the other, and was given the records at `offsets`."""
        expected: list[int] = []
        index = max(0, bisect_right(self._base_offsets, start_offset) - 1)
        for batch in self._batches[index:]:
            if batch.base_offset >= end_offset:
                break
            demand(
                not at_read_committed or batch.transaction is None or not batch.transaction.is_open,
                "at read_committed nothing undecided is passed",
                reader=who,
                partition=self.partition,
                undecided=batch.base_offset,
                end_offset=end_offset,
                value=batch.transaction and batch.transaction.value[:40],
            )
            if batch.is_visible(at_read_committed=at_read_committed):
                expected += range(max(batch.base_offset, start_offset), min(batch.next_offset, end_offset))
        demand(
            offsets == expected,
            "a reader is given what is committed, all of it and nothing else"
            if at_read_committed
            else "a reader is given everything",
            reader=who,
            partition=self.partition,
            between=(start_offset, end_offset),
            missing=sorted(set(expected) - set(offsets)),
            surplus=sorted(set(offsets) - set(expected)),
        )

    def visible_offsets(self) -> list[int]:
        """All records that are committed."""
        return [
            offset
            for batch in self._batches
            if batch.is_visible(at_read_committed=True)
            for offset in range(batch.base_offset, batch.next_offset)
        ]
