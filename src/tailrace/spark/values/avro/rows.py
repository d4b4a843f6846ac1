"""Avro data of many records in one buffer, read side by side: one position a row, and every read moves all of them.

Nothing is trusted: no position leaves the end of its row. Rows in which a read finds something that it is not made for
are named by OddRowsError, and nothing more is read: whoever wants to know what is wrong with them asks a reader that
takes one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace.spark.arrow.records import Booleans, Ints, Octets, OddRecordsError, read_varints, without_zigzag


class OddRowsError(Exception):
    """These rows, by their numbers, are damaged, or such that they are better read one after the other."""

    def __init__(self, rows: Ints) -> None:
        super().__init__(f"{len(rows)} odd rows")
        self.rows = rows


class Rows:
    """Rows in the order in which they stand in the buffer. `position` <= `end`, but for a read that has just failed."""

    __slots__ = ("data", "end", "number", "position")

    def __init__(self, data: Octets, number: Ints, position: Ints, end: Ints) -> None:
        self.data = data
        self.number = number
        self.position = position
        self.end = end

    def __len__(self) -> int:
        return len(self.number)

    def take(self, index: Ints) -> Rows:
        """Some of them, in order, to be read by themselves; `put` them back afterwards."""
        return Rows(self.data, self.number[index], self.position[index], self.end[index])

    def put(self, index: Ints, part: Rows) -> None:
        self.position[index] = part.position

    def check(self, holds: Booleans) -> None:
        if not holds.all():
            raise OddRowsError(self.number[~holds])

    def read_ints(self) -> Ints:
        """Of int and long, which are written alike."""
        try:
            raw, self.position = read_varints(self.data, self.position, bits=64)
        except OddRecordsError as odd:
            raise OddRowsError(self.number if odd.is_odd is None else self.number[odd.is_odd]) from None
        self.check(self.position <= self.end)
        return without_zigzag(raw)

    def read_octets(self) -> Octets:
        return self.read_fixed("u1")

    def read_fixed(self, kind: str) -> npt.NDArray[Any]:
        """Numbers of a fixed width, by numpy's name of their type."""
        start, width = self.position, np.dtype(kind).itemsize
        self.skip(np.full(len(self), width))
        if not len(self):
            return np.empty(0, kind)
        windows = np.lib.stride_tricks.sliding_window_view(self.data, width)
        return np.ascontiguousarray(windows[start]).view(kind).reshape(-1)

    def read_blobs(self) -> tuple[Ints, Ints]:
        """Where each begins, and its size."""
        size = self.read_ints()
        start = self.position
        self.skip(size)
        return start, size

    def skip(self, size: Ints) -> None:
        self.check((size >= 0) & (size <= self.end - self.position))
        self.position = self.position + size

    def read_block_sizes(self) -> Ints:
        """How many items the next block of an array or a map has; 0: there is none."""
        count = self.read_ints()
        if (has_bytes := count < 0).any():
            index = np.flatnonzero(has_bytes)
            part = self.take(index)
            part.read_ints()  # How many bytes they are, for those who pass over them.
            self.put(index, part)
            count = np.abs(count)
        # Each has a byte at least, unless it is a kind of null: then they are read one after the other.
        self.check((count >= 0) & (count <= self.end - self.position))
        return count
