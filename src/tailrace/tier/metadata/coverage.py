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

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from struct import Struct
from typing import NamedTuple

from tailrace.model.ids import Uuid, uuid_text

Lineage = Sequence[tuple[int, int]]

_PACKED = Struct(">qqqq?")


class RemoteSegment:
    """A copy that was finished, and whose deletion has not begun. Never changed.

    There may be a hundred thousand, so what is seldom asked for is packed: numbers of their own take twice as much.
    """

    __slots__ = ("_packed", "base_offset", "end_offset", "epochs", "segment_id")

    def __init__(  # noqa: PLR0917
        self,
        segment_id: Uuid,
        base_offset: int,
        end_offset: int,
        size_bytes: int,
        object_bytes: int,
        max_timestamp: int,
        broker_id: int,
        epochs: tuple[tuple[int, int], ...],
        has_aborted: bool = True,
    ) -> None:
        """`size_bytes` of the records, `object_bytes` of the object that holds them; `broker_id`: who copied it;
        `epochs`: its lineage, whose first entry begins at the base offset or before it; `has_aborted`: whether the
        marker of an aborted transaction may be in it."""
        self.segment_id = segment_id
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.epochs = epochs
        self._packed = _PACKED.pack(size_bytes, object_bytes, max_timestamp, broker_id, has_aborted)

    @property
    def size_bytes(self) -> int:
        return int(_PACKED.unpack(self._packed)[0])

    @property
    def object_bytes(self) -> int:
        return int(_PACKED.unpack(self._packed)[1])

    @property
    def max_timestamp(self) -> int:
        return int(_PACKED.unpack(self._packed)[2])

    @property
    def broker_id(self) -> int:
        return int(_PACKED.unpack(self._packed)[3])

    @property
    def has_aborted(self) -> bool:
        return bool(_PACKED.unpack(self._packed)[4])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteSegment) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self.segment_id)

    def __repr__(self) -> str:
        return f"RemoteSegment({uuid_text(self.segment_id)}, {self.base_offset} to {self.end_offset})"

    @property
    def _all(self) -> tuple[object, ...]:
        return self.segment_id, self.base_offset, self.end_offset, self._packed, self.epochs


class Piece(NamedTuple):
    start_offset: int
    end_offset: int
    segment: RemoteSegment


class Change(NamedTuple):
    """Of what is visible."""

    segment: RemoteSegment
    is_added: bool  # Or gone.


class Coverage:
    """What of a log can be read from the tier, and the terms under which that holds."""

    def __init__(
        self, lineage: Lineage = (), log_start_offset: int = 0, log_end_offset: int = 0, *, reach: int = 0
    ) -> None:
        self.size_bytes = 0  # Of the segments of its pieces.
        # Copies that serve nothing: others reach farther, or nothing of them is part of the log. Of those that follow
        # on each other (`after`), only the newest tells.
        self.unused: dict[Uuid, RemoteSegment] = {}
        self._lineage, self._log_start_offset, self._log_end_offset = tuple(lineage), log_start_offset, log_end_offset
        self._reach = reach  # No copy ends after it.
        # Numbers in place of pieces: there may be a hundred thousand. Coverages that follow on each other share them,
        # each from its first to before its last.
        self._starts, self._ends = array("q"), array("q")
        self._segments: list[RemoteSegment] = []
        self._first = self._last = 0

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> Coverage:
        """Of what was decided before. `after` does not go on from it."""
        coverage = cls(log_start_offset=pieces[0].start_offset if pieces else 0)
        for piece in pieces:
            coverage._add(*piece)
        return coverage

    def __len__(self) -> int:
        return self._last - self._first

    @property
    def pieces(self) -> list[Piece]:
        return list(self.pieces_from(self._log_start_offset))

    def find(self, offset: int) -> Piece | None:
        """The piece that holds an offset; None if there is none."""
        number = self._past(offset) - 1
        if number < self._first or not self._log_start_offset <= offset < self._ends[number]:
            return None
        return self._piece(number)

    def pieces_from(self, offset: int) -> Iterator[Piece]:
        """Those that hold `offset` or something after it."""
        number = self._past(max(offset, self._log_start_offset))
        if number > self._first and offset < self._ends[number - 1]:
            number -= 1
        return map(self._piece, range(number, self._last))

    def end_from(self, offset: int) -> int:
        """Up to where everything from `offset` on can be read; `offset` itself if nothing can."""
        for piece in self.pieces_from(offset):
            if piece.start_offset > offset:
                break
            offset = piece.end_offset
        return offset

    @property
    def start_offset(self) -> int | None:
        return self._piece(self._first).start_offset if len(self) else None

    def after(
        self, changes: Sequence[Change], lineage: Lineage, *, log_start_offset: int, log_end_offset: int
    ) -> Coverage | None:
        """What `cover` would give, where copies were only added at the end, as by a leader, and went from the front: of
        thousands it would take milliseconds. None where it has to be asked."""
        if not changes and self._holds_for(lineage, log_start_offset, log_end_offset):
            return self
        if self._reach > min(self._log_end_offset, log_end_offset):
            return None
        gone = {change.segment.segment_id for change in changes if not change.is_added}
        later = self._without_front(gone, lineage, log_start_offset)
        if later is None:
            return None
        later._log_end_offset = log_end_offset
        for segment in (change.segment for change in changes if change.is_added):
            end_offset = segment.end_offset
            last = later._piece(later._last - 1)
            if not last.start_offset < segment.base_offset <= last.end_offset < end_offset <= log_end_offset:
                return None
            if usable_end(segment, lineage, segment.base_offset) < end_offset:
                return None
            later._add(last.end_offset, end_offset, segment)
            later._reach = max(later._reach, end_offset)
        return later

    def _holds_for(self, lineage: Lineage, log_start_offset: int, log_end_offset: int) -> bool:
        end_offset = min(self._log_end_offset, self._reach)
        return (
            log_start_offset == self._log_start_offset
            and min(log_end_offset, self._reach) == end_offset
            and (lineage == self._lineage or _agree(self._lineage, lineage, log_start_offset, end_offset))
        )

    def _without_front(self, gone: Set[Uuid], lineage: Lineage, log_start_offset: int) -> Coverage | None:
        if log_start_offset < self._log_start_offset:
            return None
        if not _agree(self._lineage, lineage, log_start_offset, self._reach):
            return None
        first = bisect_right(self._ends, log_start_offset, self._first, self._last)
        if first == self._last:
            return None
        # From within a piece another copy may reach farther than from where the piece begins.
        is_within = log_start_offset > max(self._starts[first], self._log_start_offset)
        if is_within and (self.unused or self._begins_before(first + 1, log_start_offset)):
            return None
        passed = {each.segment_id: each for each in self._segments[self._first : first]}
        if not gone <= passed.keys() | self.unused.keys():
            return None
        later = Coverage(lineage, log_start_offset, self._log_end_offset, reach=self._reach)
        later._starts, later._ends, later._segments = self._starts, self._ends, self._segments
        later._first, later._last = first, self._last
        later.size_bytes = self.size_bytes - sum(each.size_bytes for each in passed.values())
        later.unused = self.unused
        later.unused.update(passed)
        for segment_id in gone:
            del later.unused[segment_id]
        if first > len(self._starts) // 2:
            later._copy_own()
        return later

    def _begins_before(self, number: int, offset: int) -> bool:
        return number < self._last and self._segments[number].base_offset <= offset

    def _past(self, offset: int) -> int:
        return bisect_right(self._starts, offset, self._first, self._last)

    def _piece(self, number: int) -> Piece:
        start_offset = max(self._starts[number], self._log_start_offset)
        return Piece(start_offset, self._ends[number], self._segments[number])

    def _add(self, start_offset: int, end_offset: int, segment: RemoteSegment) -> None:
        if self._last < len(self._starts):
            self._copy_own()  # Another has gone on from here.
        self._starts.append(start_offset)
        self._ends.append(end_offset)
        self._segments.append(segment)
        self._last += 1
        self.size_bytes += segment.size_bytes

    def _copy_own(self) -> None:
        own = slice(self._first, self._last)
        self._starts, self._ends, self._segments = self._starts[own], self._ends[own], self._segments[own]
        self._first, self._last = 0, len(self)


def cover(
    segments: Iterable[RemoteSegment], lineage: Lineage, *, log_start_offset: int, log_end_offset: int
) -> Coverage:
    """At each offset the copy that reaches farthest goes on, so that there are few pieces; of two that reach equally
    far the one with the smaller id, so that everybody chooses the same."""
    unused = {segment.segment_id: segment for segment in segments}
    reach = max((segment.end_offset for segment in unused.values()), default=0)
    coverage = Coverage(lineage, log_start_offset, log_end_offset, reach=reach)
    usable = []
    for segment in unused.values():
        end_offset = min(usable_end(segment, lineage, log_start_offset), log_end_offset)
        start_offset = max(segment.base_offset, log_start_offset)
        if start_offset < end_offset:
            usable.append((start_offset, -end_offset, segment.segment_id, segment))
    usable.sort(key=lambda each: each[:3])
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
            coverage._add(reached, -best[1], best[3])
            del unused[best[2]]
            reached = -best[1]
        elif at < len(usable):
            reached = usable[at][0]  # A gap: nothing of it can be read.
    coverage.unused = dict(unused)  # As small as what is left.
    return coverage


def _agree(one: Lineage, other: Lineage, start_offset: int, end_offset: int) -> bool:
    """Whether two histories have the same epochs from an offset on up to another."""
    return _part_of(one, start_offset, end_offset) == _part_of(other, start_offset, end_offset)


def _part_of(lineage: Lineage, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    first = max(bisect_right(lineage, start_offset, key=lambda entry: entry[1]) - 1, 0)
    return [(epoch, max(start, start_offset)) for epoch, start in lineage[first:] if start < end_offset]


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
