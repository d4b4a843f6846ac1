"""Bytes of a segment that lie in several pieces, one after the other: read where they are, and copied once."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.wire.records import HEADER_SIZE, BatchHeader, read_header


class Span:
    def __init__(self, views: Sequence[memoryview]) -> None:
        """None of them is empty."""
        self._views = views
        self.size_bytes = sum(map(len, views))
        self._view, self._begin = 0, 0  # That in which was read last, and where it begins.

    def header(self, position: int) -> BatchHeader:
        """`position` is no less than that of the last time."""
        views = self._views
        while position - self._begin >= len(views[self._view]):
            self._begin += len(views[self._view])
            self._view += 1
        at = position - self._begin
        if at + HEADER_SIZE <= len(views[self._view]):
            return read_header(views[self._view], at)
        torn = bytearray(HEADER_SIZE)
        self.copy(position, torn)
        return read_header(torn)

    def copy(self, position: int, target: bytearray) -> None:
        """From `position` on, as much as fills it."""
        filled, skipped = 0, position
        for view in self._views:
            if skipped >= len(view):
                skipped -= len(view)
                continue
            part = view[skipped : skipped + len(target) - filled]
            target[filled : filled + len(part)] = part
            filled, skipped = filled + len(part), 0
            if filled == len(target):
                return
        raise ValueError(f"{self.size_bytes} bytes do not reach from {position} to {position + len(target)}")
