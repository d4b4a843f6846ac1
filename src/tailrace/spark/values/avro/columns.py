"""A column of records, each with the schema that it was written with, made into one column.

Rows that a program is there for are read together; the others, and those that a program finds odd, are left to a
decoder of single rows, which knows what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.schemas.framing import PREFIX_BYTES
from tailrace.spark.arrow.records import Ints, Octets
from tailrace.spark.values.avro.leaves import Step
from tailrace.spark.values.avro.nests import scattered
from tailrace.spark.values.avro.rows import OddRowsError, Rows
from tailrace.spark.values.decoded import Decoded

# Each attempt leaves out the rows that one check of one field has found odd.
_ATTEMPTS_MAX = 8


class Values(NamedTuple):
    """Where the values of a column are that are not null."""

    data: Octets
    number: Ints  # of the row
    start: Ints
    end: Ints

    @staticmethod
    def of(column: pa.Array) -> Values:
        if not len(column):
            nothing = np.empty(0, np.int64)
            return Values(np.empty(0, np.uint8), nothing, nothing, nothing)
        _, bounds, data = column.buffers()
        ends = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        number = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        octets = np.frombuffer(b"" if data is None else data, np.uint8)
        return Values(octets, number, ends[:-1][number], ends[1:][number])

    def take(self, index: Ints) -> Values:
        return Values(self.data, self.number[index], self.start[index], self.end[index])

    def behind_prefix(self) -> Values:
        return self._replace(start=self.start + PREFIX_BYTES)

    def framed(self) -> tuple[Values, Ints]:
        """Those that begin with a zero and the id of a schema, and the ids."""
        long = self.take(np.flatnonzero(self.end - self.start >= PREFIX_BYTES))
        framed = long.take(np.flatnonzero(self.data[long.start] == 0))
        ids = np.zeros(len(framed.start), np.int64)
        for place in range(1, PREFIX_BYTES):
            ids = ids << 8 | self.data[framed.start + place]
        return framed, ids


def decode_together(
    column: pa.Array, programs: Iterable[tuple[Step, Values]], single: Callable[[pa.Array], Decoded]
) -> Decoded:
    places, arrays = [], []
    is_left = np.ones(len(column), np.bool_)
    for step, values in programs:
        found = _run(step, values)
        if found is not None:
            array, number = found
            places.append(number)
            arrays.append(array)
            is_left[number] = False
    left = np.flatnonzero(is_left)
    if not left.size and len(arrays) == 1:
        return Decoded(arrays[0], {})
    rest = single(column.take(pa.array(left)))
    numbers = left.tolist()
    bad = {numbers[row]: why for row, why in rest.bad.items()}
    return Decoded(scattered(rest.column.type, len(column), [*places, left], [*arrays, rest.column]), bad)


def _run(step: Step, values: Values) -> tuple[pa.Array, Ints] | None:
    """The rows that are not odd; None if the single reader is better for all of them."""
    for _ in range(_ATTEMPTS_MAX):
        if not len(values.number):
            return None
        rows = Rows(values.data, np.arange(len(values.number)), values.start.copy(), values.end)
        try:
            build = step(rows)
            rows.check(rows.position == rows.end)
            return build(), values.number
        except OddRowsError as odd:
            is_good = np.ones(len(values.number), np.bool_)
            is_good[odd.rows] = False
            values = values.take(np.flatnonzero(is_good))
    return None
