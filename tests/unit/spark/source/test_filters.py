"""Filters that are taken over must keep exactly the rows that Spark would keep."""

import operator
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tailrace.model.ids import TopicPartition
from tailrace.spark.source.batch import TopicReader
from tailrace.spark.source.filters import PushedFilters
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.schema import topic_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OPERATORS = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda left, right: left in right,
    StringStartsWith: lambda left, right: left.startswith(right),
}
ROWS = [
    {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": EPOCH + timedelta(milliseconds=offset * 7 % 5),
    }
    for topic in ("a", "ab", "b")
    for partition in range(3)
    for offset in range(6)
]


def holds(wanted: Filter, row: dict[str, Any]) -> bool:
    if isinstance(wanted, Not):
        return not holds(wanted.child, row)
    if isinstance(wanted, IsNotNull):
        return row[wanted.attribute[0]] is not None
    return OPERATORS[type(wanted)](row[wanted.attribute[0]], wanted.value)


values = {
    "topic": st.sampled_from(["a", "ab", "b", "c"]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-1, 7),
    "timestamp": st.integers(-1, 6000).map(lambda us: EPOCH + timedelta(microseconds=us)),
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(list(values)))
    kind = draw(st.sampled_from([kind for kind in OPERATORS if kind is not StringStartsWith or column == "topic"]))
    value = draw(values[column])
    plain = kind((column,), (value, draw(values[column])) if kind is In else value)
    return Not(plain) if draw(st.booleans()) else plain


@given(st.lists(filters(), max_size=4))
def test_the_rows_that_are_read_are_those_that_match(wanted: list[Filter]):
    pushed = PushedFilters()
    left = [each for each in wanted if not pushed.push(each)]
    taken = [each for each in wanted if each not in left]
    kept = []
    for row in ROWS:
        partition = TopicPartition(row["topic"], row["partition"])
        clipped = pushed.clip(OffsetRange(partition, 0, 6))
        assert 0 <= clipped.start <= clipped.end <= 6
        microseconds = (row["timestamp"] - EPOCH) // timedelta(microseconds=1)
        if (
            pushed.keeps(partition)
            and clipped.start <= row["offset"] < clipped.end
            and pushed.timestamps_us.start <= microseconds < pushed.timestamps_us.end
        ):
            kept.append(row)
    # What is left to Spark may narrow what is read, and takes away the rest.
    assert [row for row in kept if all(holds(each, row) for each in left)] == [
        row for row in ROWS if all(holds(each, row) for each in wanted)
    ]
    assert all(holds(each, row) for row in kept for each in taken)


def test_a_range_that_cannot_be_stays_so():
    backwards = OffsetRange(TopicPartition("t", 0), 5, 1)
    assert PushedFilters().clip(backwards) == backwards


def test_what_is_taken_over():
    pushed = PushedFilters()
    assert pushed.push(IsNotNull(("offset",)))
    assert pushed.push(EqualTo(("topic",), "t"))
    assert pushed.push(Not(In(("partition",), (1, 2))))
    assert pushed.push(LessThan(("timestamp",), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5)))))
    assert pushed.timestamps_us.end == datetime(2026, 1, 1, 5, tzinfo=UTC).timestamp() * 1_000_000


@pytest.mark.parametrize(
    "filter_",
    [
        IsNotNull(("key",)),
        IsNull(("topic",)),
        EqualTo(("key",), b"k"),
        EqualTo(("value", "offset"), 3),
        EqualTo(("offset",), None),
        Not(EqualTo(("offset",), 3)),
        Not(GreaterThan(("timestamp",), EPOCH)),
        In(("topic",), ("t", None)),
    ],
)
def test_what_is_left_to_spark(filter_: Filter):
    assert not PushedFilters().push(filter_)


def test_spark_is_not_told_that_filters_are_needed():
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "pushfilters": "true"}
    reader = pickle.loads(pickle.dumps(TopicReader(options, topic_schema(options))))
    # As Spark looks at it, where it does not push filters down and refuses sources that want them.
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    kept, left = EqualTo(("partition",), 1), EqualTo(("key",), b"k")
    assert reader.pushFilters([kept, left]) == [left]


def test_filters_change_nothing_unless_the_caller_says_so():
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    reader = TopicReader(options, topic_schema(options))
    wanted = EqualTo(("partition",), 1)
    assert list(reader.pushFilters([wanted])) == [wanted]
