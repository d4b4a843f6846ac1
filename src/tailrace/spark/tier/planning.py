"""Which offsets a task reads from the bucket, and which from brokers: each from exactly one place.

Nothing is read for it but footers of segments in which transactions were aborted: shares of equal numbers of records
are cut by offsets, and shares of equal sizes by what manifests say. Segments whose newest record is too old for a
filter are left out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.model.ids import TopicPartition
from tailrace.real.objects.bucket import OpenBucket
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.splits import decide_splits
from tailrace.spark.tier.views import TierView
from tailrace.tier.format.layout import AbortedEntry
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import Piece

# Without options that say otherwise. A segment of 1 GiB is read by two tasks; small ones are read by one together.
_SHARE_BYTES = 512 << 20


class TierSplit(NamedTuple):
    """What a task reads. Its pieces cover it without a gap."""

    wanted: OffsetRange
    owner: TieredPartition
    pieces: tuple[Piece, ...]
    aborted: tuple[AbortedEntry, ...]  # Of the pieces' transactions, in the order of their first offsets.


Split = OffsetRange | TierSplit


@dataclass(frozen=True, slots=True)
class Run:
    """Offsets of a partition that lie in the tier, one piece after the other."""

    wanted: OffsetRange
    view: TierView
    pieces: tuple[Piece, ...]

    def split(self, wanted: OffsetRange, aborted: Iterable[AbortedEntry]) -> TierSplit:
        pieces = tuple(
            each for each in self.pieces if each.start_offset < wanted.end and each.end_offset > wanted.start
        )
        reaching = (each for each in aborted if each.first_offset < wanted.end and each.last_offset >= wanted.start)
        return TierSplit(wanted, self.view.owner, pieces, tuple(sorted(reaching, key=lambda each: each.first_offset)))


def divide(wanted: OffsetRange, view: TierView, *, since_us: float) -> tuple[list[Run], list[OffsetRange]]:
    """What of a range is in the tier, without what is too old to be wanted; and what is not there."""
    runs: list[Run] = []
    rest: list[OffsetRange] = []
    position, run = wanted.start, list[Piece]()
    for piece in view.pieces:
        start, end = max(piece.start_offset, position), min(piece.end_offset, wanted.end, view.end_offset)
        if start >= end:
            continue
        if start > position:
            rest.append(OffsetRange(wanted.partition, position, start))
        position = end
        if piece.segment.max_timestamp * 1000 < since_us:
            _end_run(runs, run, wanted, view)
        else:
            run.append(Piece(start, end, piece.segment))
    _end_run(runs, run, wanted, view)
    if position < wanted.end:
        rest.append(OffsetRange(wanted.partition, position, wanted.end))
    return runs, rest


def _end_run(runs: list[Run], run: list[Piece], wanted: OffsetRange, view: TierView) -> None:
    if run:
        runs.append(Run(OffsetRange(wanted.partition, run[0].start_offset, run[-1].end_offset), view, tuple(run)))
        run.clear()


def decide_shares(
    runs: list[Run], rest: list[OffsetRange], *, min_partitions: int | None, records_max: int | None
) -> list[tuple[OffsetRange, Run | None]]:
    """In the order of partitions and offsets. Pure."""
    if min_partitions is None and records_max is None:
        shares = [(share, run) for run in runs for share in _by_size(run)]
        return sorted([*shares, *((each, None) for each in rest)], key=lambda share: share[0])
    ranges = decide_splits(
        sorted([*(run.wanted for run in runs), *rest]), min_partitions=min_partitions, records_max=records_max
    )
    by_start: dict[TopicPartition, list[Run]] = {}
    for run in runs:
        by_start.setdefault(run.wanted.partition, []).append(run)
    return [(each, _run_of(each, by_start.get(each.partition, ()))) for each in ranges]


def _run_of(wanted: OffsetRange, runs: Iterable[Run]) -> Run | None:
    return next((run for run in runs if run.wanted.start <= wanted.start < run.wanted.end), None)


def _by_size(run: Run) -> Iterator[OffsetRange]:
    partition, start, gathered = run.wanted.partition, run.wanted.start, 0.0
    for piece in run.pieces:
        segment, count = piece.segment, piece.end_offset - piece.start_offset
        size_bytes = segment.size_bytes * count / (segment.end_offset - segment.base_offset)
        if gathered and gathered + size_bytes > _SHARE_BYTES:
            yield OffsetRange(partition, start, piece.start_offset)
            start, gathered = piece.start_offset, 0.0
        gathered += size_bytes
        parts = min(math.ceil(size_bytes / _SHARE_BYTES), count)
        for part in range(1, parts):
            end = piece.start_offset + count * part // parts
            yield OffsetRange(partition, start, end)
            start, gathered = end, size_bytes / parts
    yield OffsetRange(partition, start, run.wanted.end)


async def find_aborted(opened: OpenBucket, runs: Iterable[Run]) -> Mapping[TopicPartition, list[AbortedEntry]]:
    """Those that reach into a run. Their markers lie in its segments or in later ones. Raises StoreError or
    StorageError."""
    firsts: dict[TopicPartition, Run] = {}
    for run in runs:
        firsts.setdefault(run.wanted.partition, run)  # Runs of a partition come in order.
    found = await asyncio.gather(*(_aborted_of(opened, run) for run in firsts.values()))
    return dict(zip(firsts, found, strict=True))


async def _aborted_of(opened: OpenBucket, run: Run) -> list[AbortedEntry]:
    start_offset = run.wanted.start

    async def of_piece(piece: Piece) -> list[AbortedEntry]:
        footer = await opened.segments.footer(run.view.owner, piece.segment)
        # A marker beyond the piece's end is no part of the log, or is told by the next piece.
        return [each for each in footer.aborted(start_offset, 1 << 62) if each.last_offset < piece.end_offset]

    pieces = [each for each in run.view.pieces if each.end_offset > start_offset and each.segment.has_aborted]
    return list({each: None for found in await asyncio.gather(*map(of_piece, pieces)) for each in found})
