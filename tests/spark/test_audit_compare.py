"""The comparison of two sides, on rows that are written here: what is found, how often, and with which evidence."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.spark.audit.compare import differences
from tailrace.spark.audit.rows import record_rows

TOPIC_SCHEMA = "key binary, value binary, topic string, partition int, offset bigint"
PLACE = {"partition": "concat(topic, '-', partition)", "offset": "offset"}

Place = tuple[str | None, str | None, int, int]


def topic(spark: SparkSession, name: str, records: Sequence[Place]) -> DataFrame:
    """Records as (key, value, partition, offset)."""
    rows = [
        (key and bytearray(key, "utf-8"), value and bytearray(value, "utf-8"), name, partition, offset)
        for key, value, partition, offset in records
    ]
    return spark.createDataFrame(rows, TOPIC_SCHEMA)


def kinds(found: DataFrame) -> list[tuple[str, int, str]]:
    return sorted((row.kind, row.records, row.label) for row in found.collect())


@pytest.fixture
def original(spark):
    records = [
        ("a", "1", 0, 0),
        ("a", "2", 0, 1),
        ("b", "3", 1, 0),
        (None, "4", 1, 1),
        ("c", "5", 1, 2),
        ("c", "6", 1, 3),
    ]
    return topic(spark, "orders", records)


def test_what_is_lost_doubled_unexpected_and_reordered_is_found_in_one_pass(spark, original):
    # "a" has changed places, "3" is lost, "4" stands twice, "7" was never written; "c" is repeated as after a crash.
    copied = [
        ("a", "2", 2, 0),
        ("a", "1", 2, 1),
        (None, "4", 0, 0),
        (None, "4", 0, 9),
        ("c", "5", 1, 0),
        ("c", "6", 1, 1),
        ("d", "7", 0, 1),
    ]
    by = {"by": ("key", "value"), "order_by": ("key",), **PLACE}
    found = differences(record_rows(original, **by), record_rows(topic(spark, "copy", copied), **by)).collect()
    assert sorted((row.kind, row.records, row.label) for row in found) == [
        ("duplicate", 1, "null 4"),
        ("lost", 1, "b 3"),
        ("reordered", 1, "a 2"),
        ("unexpected", 1, "d 7"),
    ]
    at = {row.kind: row for row in found}
    assert tuple(at["lost"].expected_at) == ("orders-1", 0)
    assert at["lost"].actual_at is None
    assert tuple(at["reordered"].before) == ("copy-2", 1, "a 1")
    assert (tuple(at["duplicate"].actual_at), tuple(at["duplicate"].actual_last_at)) == (("copy-0", 0), ("copy-0", 9))


def test_a_copy_with_other_partitions_that_begins_again_after_a_crash_is_doubled_but_in_order(spark, original):
    copied = [
        ("c", "5", 0, 0),
        ("a", "1", 0, 1),
        ("c", "6", 0, 2),
        ("a", "2", 0, 4),
        ("b", "3", 0, 7),
        (None, "4", 0, 8),
    ]
    again = [("c", "5", 0, 9), ("c", "5", 0, 10), ("c", "6", 0, 11)]
    by = {"by": ("key", "value"), "order_by": ("key",), **PLACE}
    found = differences(record_rows(original, **by), record_rows(topic(spark, "copy", copied + again), **by))
    assert kinds(found) == [("duplicate", 1, "c 6"), ("duplicate", 2, "c 5")]


def test_a_table_is_held_against_a_topic_by_expressions_of_both(spark, original):
    table = spark.createDataFrame([("a", 2), ("b", 4), (None, 4), ("c", 5), ("c", 6)], "customer string, amount bigint")
    expected = record_rows(original, by=("key",), compare=("CAST(value AS STRING)",))
    found = differences(expected, record_rows(table, by=("customer",), compare=("amount",)), with_order=False)
    # One of the two of "a" is lost; "b" has another amount. The two of "c" are the same set.
    assert kinds(found) == [("changed", 1, "b"), ("lost", 1, "a")]
    once = differences(
        expected, record_rows(table, by=("customer",), compare=("amount",)), is_distinct=True, with_order=False
    )
    assert kinds(once) == [("changed", 1, "b"), ("duplicate", 1, "c")]


def test_nulls_and_boundaries_between_expressions_are_told_apart(spark):
    one = spark.createDataFrame([("ab", "c"), ("x", None), (None, "x")], "left string, right string")
    other = spark.createDataFrame([("a", "bc"), (None, "x"), (None, "x")], "left string, right string")
    by = ("left", "right")
    found = differences(record_rows(one, by=by), record_rows(other, by=by), with_order=False)
    assert kinds(found) == [
        ("duplicate", 1, "null x"),
        ("lost", 1, "ab c"),
        ("lost", 1, "x null"),
        ("unexpected", 1, "a bc"),
    ]


def test_structs_are_compared_by_their_fields_and_bytes_that_are_no_text_can_be_shown(spark):
    one = spark.sql("SELECT named_struct('a', 1, 'b', array(1, 2)) AS value, X'FF00' AS key")
    other = spark.sql("SELECT named_struct('a', 1, 'b', array(1, 3)) AS value, X'FF00' AS key")
    by = {"by": ("key",), "compare": ("value",)}
    (row,) = differences(record_rows(one, **by), record_rows(other, **by), with_order=False).collect()
    assert (row.kind, row.label) == ("changed", "\ufffd\x00")
