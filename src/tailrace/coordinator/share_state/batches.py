"""Ranges of offsets that had the same fate: what a share coordinator remembers of a share-partition's records.

They are sorted, do not overlap, and do not touch if their fate is the same. What is in no range has not been delivered,
as far as anybody knows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class StateBatch(NamedTuple):
    """Both offsets are inclusive, as on the wire."""

    first_offset: int
    last_offset: int
    # As `RecordState` of the share-partition numbers them; acquired records are never told.
    delivery_state: int
    delivery_count: int


Batches = Sequence[StateBatch]


def overlay(old: Batches, new: Iterable[StateBatch], *, start_offset: int) -> list[StateBatch]:
    """`new` counts where both speak of an offset, and the later one of several; what lies before `start_offset` is
    forgotten."""
    batches = list(old)
    for batch in new:
        _put(batches, batch)
    return _cut(batches, start_offset)


def _put(batches: list[StateBatch], batch: StateBatch) -> None:
    first, last = batch.first_offset, batch.last_offset
    # Those that it overlaps or touches.
    low = bisect_left(batches, first - 1, key=_last)
    high = low
    before: list[StateBatch] = []
    after: list[StateBatch] = []
    while high < len(batches) and batches[high].first_offset <= last + 1:
        each = batches[high]
        high += 1
        is_same = each[2:] == batch[2:]
        if is_same:
            first, last = min(first, each.first_offset), max(last, each.last_offset)
            continue
        if each.first_offset < batch.first_offset:
            before.append(each._replace(last_offset=min(each.last_offset, batch.first_offset - 1)))
        if each.last_offset > batch.last_offset:
            after.append(each._replace(first_offset=max(each.first_offset, batch.last_offset + 1)))
    batches[low:high] = [*before, batch._replace(first_offset=first, last_offset=last), *after]


def _cut(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    gone = bisect_left(batches, start_offset, key=_last)
    del batches[:gone]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = batches[0]._replace(first_offset=start_offset)
    return batches


def _last(batch: StateBatch) -> int:
    return batch.last_offset
