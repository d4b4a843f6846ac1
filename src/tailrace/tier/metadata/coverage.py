"""Which segment serves an offset: one decision, the same for brokers, for Spark and for a recovery.

Leaders close their segments at different offsets, so copies overlap; and after an unclean election a copy may hold
records that are no part of the log any more. The leader epochs tell: a copy and a log that agree on the epoch of an
offset agree on its record. Histories part once and never meet again, so what is usable of a copy is its beginning, up
to the first offset whose epoch is another one in the log. A log that was cut has not met its next epoch yet, so its end
counts too.

    lineage    (epoch, start offset) of the log, both growing: as in `log.epochs`
    piece      a range of offsets, and the copy that serves it; pieces never overlap
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.model.ids import Uuid

Lineage = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A copy that was finished, and whose deletion has not begun."""

    segment_id: Uuid
    base_offset: int
    end_offset: int
    size_bytes: int  # of the records
    object_bytes: int  # of the object that holds them
    max_timestamp: int
    broker_id: int  # Who copied it.
    epochs: tuple[tuple[int, int], ...]  # Its lineage; the first entry begins at the base offset or before it.
    has_aborted: bool = True  # Whether the marker of an aborted transaction may be in it.


class Piece(NamedTuple):
    start_offset: int
    end_offset: int
    segment: RemoteSegment


class Coverage:
    """What of a log can be read from the tier."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self._starts = [piece.start_offset for piece in pieces]

    def find(self, offset: int) -> Piece | None:
        """The piece that holds an offset; None if there is none."""
        number = bisect_right(self._starts, offset)
        if number and offset < self.pieces[number - 1].end_offset:
            return self.pieces[number - 1]
        return None

    def pieces_from(self, offset: int) -> Sequence[Piece]:
        """Those that hold `offset` or something after it."""
        number = bisect_right(self._starts, offset)
        if number and offset < self.pieces[number - 1].end_offset:
            number -= 1
        return self.pieces[number:]

    def end_from(self, offset: int) -> int:
        """Up to where everything from `offset` on can be read; `offset` itself if nothing can."""
        for piece in self.pieces_from(offset):
            if piece.start_offset > offset:
                break
            offset = piece.end_offset
        return offset

    @property
    def start_offset(self) -> int | None:
        return self.pieces[0].start_offset if self.pieces else None

    @property
    def segment_ids(self) -> set[Uuid]:
        return {piece.segment.segment_id for piece in self.pieces}

    def and_then(self, segment: RemoteSegment, lineage: Lineage) -> Coverage | None:
        """What `cover` gives with one more segment, where that only goes on at the end, as the next copy of a leader
        does: of thousands of segments it would take milliseconds. None where it has to be asked."""
        if not self.pieces:
            return None
        last = self.pieces[-1]
        if not last.start_offset < segment.base_offset <= last.end_offset < segment.end_offset:
            return None
        if usable_end(segment, lineage, segment.base_offset) < segment.end_offset:
            return None
        return Coverage([*self.pieces, Piece(last.end_offset, segment.end_offset, segment)])


def cover(
    segments: Iterable[RemoteSegment], lineage: Lineage, *, log_start_offset: int, log_end_offset: int
) -> Coverage:
    """At each offset the copy that reaches farthest goes on, so that there are few pieces; of two that reach equally
    far the one with the smaller id, so that everybody chooses the same."""
    usable = []
    for segment in segments:
        end_offset = min(usable_end(segment, lineage, log_start_offset), log_end_offset)
        start_offset = max(segment.base_offset, log_start_offset)
        if start_offset < end_offset:
            usable.append((start_offset, -end_offset, segment.segment_id, segment))
    usable.sort(key=lambda each: each[:3])
    pieces: list[Piece] = []
    reached = log_start_offset
    at = 0
    while at < len(usable):
        # All that begin where the last piece ended, or before; the farthest of them is the next piece.
        best: tuple[int, int, Uuid, RemoteSegment] | None = None
        while at < len(usable) and usable[at][0] <= reached:
            if -usable[at][1] > reached and (best is None or usable[at][1:3] < best[1:3]):
                best = usable[at]
            at += 1
        if best is not None:
            pieces.append(Piece(reached, -best[1], best[3]))
            reached = -best[1]
        elif at < len(usable):
            reached = usable[at][0]  # A gap: nothing of it can be read.
    return Coverage(pieces)


def usable_end(segment: RemoteSegment, lineage: Lineage, log_start_offset: int) -> int:
    """Up to where a copy agrees with the log. What lies before the log's start is not compared: nobody reads it, and
    the log has forgotten its epochs."""
    offset = max(segment.base_offset, log_start_offset)
    while offset < segment.end_offset:
        epoch, end_offset = _epoch_at(segment.epochs, offset)
        log_epoch, log_end_offset = _epoch_at(lineage, offset)
        if epoch != log_epoch:
            return offset
        following = min(end_offset, segment.end_offset)
        following = min(following, log_end_offset)
        offset = following
    return offset


_NO_END = 1 << 63


def _epoch_at(lineage: Lineage, offset: int) -> tuple[int, int]:
    """The epoch of an offset, and where the next one begins."""
    number = bisect_right(lineage, offset, key=lambda entry: entry[1])
    end_offset = lineage[number][1] if number < len(lineage) else _NO_END
    return (lineage[number - 1][0] if number else -1), end_offset
