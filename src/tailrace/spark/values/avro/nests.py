"""Steps for values that hold others: records, unions, arrays and maps.

What only some rows have is read of those alone. Arrays are read by rounds: the first item of all rows, then the second
of those that have one, and so on; the items are put in order when the array is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.spark.arrow.records import Ints
from tailrace.spark.values.avro.leaves import Build, Step, blobs
from tailrace.spark.values.avro.rows import OddRowsError, Rows

# A round costs as much as reading about so many rows one after the other: a few with very long arrays are read so.
_ROUNDS_MIN = 32
_ROWS_A_ROUND_MIN = 64


class Child(NamedTuple):
    """A field of the writer's, and its place in the reader's struct; None: the reader does not want it."""

    step: Step
    place: int | None


def record(found: pa.StructType, children: Sequence[Child], absent: Sequence[Child]) -> Step:
    """`absent` are the reader's fields that the writer does not have."""

    def step(rows: Rows) -> Build:
        read = [(child.place, child.step(rows)) for child in (*children, *absent)]
        builds = {place: build for place, build in read if place is not None}

        def build() -> pa.Array:
            arrays = [builds[place]() for place in range(found.num_fields)]
            return pa.StructArray.from_arrays(arrays, fields=list(found))

        return build

    return step


def union(found: pa.DataType, branches: Sequence[Step | None]) -> Step:
    """None is the branch null."""

    def step(rows: Rows) -> Build:
        index = rows.read_ints()
        rows.check((index >= 0) & (index < len(branches)))
        places: list[Ints] = []
        builds: list[Build] = []
        for number, branch in enumerate(branches):
            if branch is not None and (place := np.flatnonzero(index == number)).size:
                part = rows.take(place)
                builds.append(branch(part))
                rows.put(place, part)
                places.append(place)
        return lambda: scattered(found, len(index), places, [build() for build in builds])

    return step


def scattered(found: pa.DataType, count: int, places: Sequence[Ints], arrays: Sequence[pa.Array]) -> pa.Array:
    """`count` values: those of each array at its places, and nulls where there are none."""
    if not arrays:
        return pa.nulls(count, found)
    if len(places[0]) == count:
        return arrays[0]
    index = np.full(count, -1, np.int64)
    start = 0
    for place in places:
        index[place] = np.arange(start, start + len(place))
        start += len(place)
    everything = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return everything.take(pa.array(index, mask=index < 0))


def array(found: pa.ListType, item: Step) -> Step:
    def step(rows: Rows) -> Build:
        items = _Items(rows, item)
        return lambda: pa.ListArray.from_arrays(pa.array(items.bounds), items.build(found.value_type), type=found)

    return step


def mapping(found: pa.MapType, value: Step) -> Step:
    pair = pa.struct([pa.field("key", found.key_type), pa.field("value", found.item_type)])
    item = record(pair, (Child(blobs(found.key_type), 0), Child(value, 1)), ())

    def step(rows: Rows) -> Build:
        items = _Items(rows, item)

        def build() -> pa.Array:
            keys, values = items.build(pair).flatten()
            items.check_keys(keys)
            return pa.MapArray.from_arrays(pa.array(items.bounds), keys, values, type=found)

        return build

    return step


class _Items:
    """What the arrays of all rows hold."""

    def __init__(self, rows: Rows, item: Step) -> None:
        self._rows = rows
        self._item = item
        self._sizes = np.zeros(len(rows), np.int64)
        self._builds: list[Build] = []
        # Of each round: which rows have an item in it, and which of theirs it is.
        self._owners: list[Ints] = []
        self._ordinals: list[Ints] = []
        owner: Ints = np.arange(len(rows))
        while owner.size:
            part = rows.take(owner)
            left = part.read_block_sizes()
            rows.put(owner, part)
            has_items = left > 0
            owner, left = owner[has_items], left[has_items]
            self._read_block(owner, left)

    @property
    def bounds(self) -> npt.NDArray[np.int32]:
        bounds = np.zeros(len(self._sizes) + 1, np.int32)
        np.cumsum(self._sizes, out=bounds[1:])
        return bounds

    def _read_block(self, owner: Ints, left: Ints) -> None:
        while owner.size:
            if len(self._builds) >= _ROUNDS_MIN and owner.size < _ROWS_A_ROUND_MIN:
                raise OddRowsError(self._rows.number[owner])
            part = self._rows.take(owner)
            self._builds.append(self._item(part))
            self._rows.put(owner, part)
            self._owners.append(owner)
            self._ordinals.append(self._sizes[owner])
            self._sizes[owner] += 1
            left = left - 1
            owner, left = owner[left > 0], left[left > 0]

    def build(self, found: pa.DataType) -> pa.Array:
        if not self._builds:
            return pa.array([], found)
        arrays = [build() for build in self._builds]
        if len(arrays) == 1:
            return arrays[0]
        starts = self.bounds[:-1]
        places = [starts[owner] + ordinal for owner, ordinal in zip(self._owners, self._ordinals, strict=True)]
        return scattered(found, int(self._sizes.sum()), places, arrays)

    def check_keys(self, keys: pa.Array) -> None:
        """The last one of equal keys counts, which the reader of single rows sees to."""
        if self._sizes.max(initial=0) <= 1:
            return
        owner = np.repeat(np.arange(len(self._sizes)), self._sizes)
        codes = keys.dictionary_encode()
        pairs = owner * len(codes.dictionary) + codes.indices.to_numpy()
        found, first = np.unique(pairs, return_index=True)
        if len(found) != len(pairs):
            raise OddRowsError(self._rows.number[np.unique(owner[np.delete(np.arange(len(pairs)), first)])])
