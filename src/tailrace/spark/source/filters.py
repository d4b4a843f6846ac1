"""Filters that Spark pushes down to a batch query, as far as they decide which partitions, offsets and times are read.

A filter that is taken over here is not looked at again by Spark, so each must hold exactly for the rows that are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tailrace.model.ids import TopicPartition
from tailrace.spark.pyspark_api import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from tailrace.spark.source.offsets import OffsetRange

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda left, right: left == right,
    EqualNullSafe: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
    In: lambda left, right: left in right,
    StringStartsWith: lambda left, right: left.startswith(right),
    StringEndsWith: lambda left, right: left.endswith(right),
    StringContains: lambda left, right: right in left,
}


@dataclass
class Interval:
    """Whole numbers, from `start` up to and without `end`."""

    start: float = -math.inf
    end: float = math.inf

    def narrow(self, kind: type[Filter], value: int) -> bool:
        """False if this kind of filter is no interval."""
        if kind in (EqualTo, EqualNullSafe, GreaterThanOrEqual):
            self.start = max(self.start, value)
        if kind in (EqualTo, EqualNullSafe, LessThanOrEqual):
            self.end = min(self.end, value + 1)
        if kind is GreaterThan:
            self.start = max(self.start, value + 1)
        if kind is LessThan:
            self.end = min(self.end, value)
        return kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)

    @property
    def is_bounded(self) -> bool:
        return self.start > -math.inf or self.end < math.inf


@dataclass
class PushedFilters:
    offsets: Interval = field(default_factory=Interval)
    timestamps_us: Interval = field(default_factory=Interval)
    _conditions: list[Callable[[TopicPartition], bool]] = field(default_factory=list)

    def push(self, pushed: Filter) -> bool:
        """Whether the filter is taken over."""
        if isinstance(pushed, IsNotNull):
            return len(pushed.attribute) == 1 and pushed.attribute[0] in _NEVER_NULL
        is_negated = isinstance(pushed, Not)
        plain = pushed.child if isinstance(pushed, Not) else pushed
        compare = _COMPARISONS.get(type(plain))
        if compare is None:
            return False
        (column, *rest), value = plain.attribute, plain.value  # type: ignore[attr-defined]
        if rest or value is None:
            return False
        if column == "offset" and not is_negated:
            if isinstance(plain, In) and all(type(each) is int for each in value):
                self.offsets.narrow(GreaterThanOrEqual, min(value))
                self.offsets.narrow(LessThanOrEqual, max(value))
                return False  # What lies between is left to Spark.
            return type(value) is int and self.offsets.narrow(type(plain), value)
        if column == "timestamp" and isinstance(value, datetime) and not is_negated:
            return self.timestamps_us.narrow(type(plain), _microseconds(value))
        if column not in ("topic", "partition") or (isinstance(plain, In) and None in value):
            return False
        self._conditions.append(lambda partition: compare(getattr(partition, column), value) is not is_negated)
        return True

    def keeps(self, partition: TopicPartition) -> bool:
        return all(condition(partition) for condition in self._conditions)

    def clip(self, wanted: OffsetRange) -> OffsetRange:
        """A range that cannot be is left as it is, for others to judge."""
        partition, start, end = wanted
        if start > end:
            return wanted
        start = int(min(max(start, self.offsets.start), end))
        return OffsetRange(partition, start, int(max(min(end, self.offsets.end), start)))


def _microseconds(moment: datetime) -> int:
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
