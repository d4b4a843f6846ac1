"""Transactions under compaction: what was aborted goes, what was committed is like any other record, and a marker stays
as long as a record of its transaction does.

A run touches nothing from the last stable offset on, so each transaction in its reach is decided. A marker without
records still matters to a replica that has the records and not yet the marker: it is kept for delete.retention.ms, as a
tombstone is (KIP-534). A batch that compaction has emptied counts as a record of its transaction, since it still opens
it for whoever scans the log.
"""

from bisect import bisect_right

from tailrace.log.files.aborted import AbortedTransaction
from tailrace.wire.records import BatchHeader


class CleanedTransactions:
    """Told of what was aborted, in the order of the markers, and then of the batches of a run in theirs."""

    def __init__(self) -> None:
        # By producer: first offsets, and those of the markers. Both grow: a producer has one transaction at a time.
        self._aborted: dict[int, tuple[list[int], list[int]]] = {}
        # Producers of which a transactional batch was kept since their last marker.
        self._kept: set[int] = set()

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        firsts, lasts = self._aborted.setdefault(aborted.producer_id, ([], []))
        firsts.append(aborted.first_offset)
        lasts.append(aborted.last_offset)

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control or header.producer_id not in self._aborted:
            return False
        firsts, lasts = self._aborted[header.producer_id]
        number = bisect_right(firsts, header.base_offset) - 1
        return number >= 0 and header.base_offset < lasts[number]

    def note_kept(self, header: BatchHeader) -> None:
        if header.is_transactional and not header.is_control:
            self._kept.add(header.producer_id)

    def end(self, marker: BatchHeader) -> bool:
        """Whether a record of the transaction that this marker ends was kept."""
        was_kept = marker.producer_id in self._kept
        self._kept.discard(marker.producer_id)
        return was_kept
