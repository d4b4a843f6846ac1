"""A history as it is declared, and the half of a pipeline that it becomes."""

import json

import pytest

from tailrace.spark.pipelines.beside.history import history_half
from tailrace.spark.pipelines.declaration import (
    AVAILABLE_NOW,
    DeclarationError,
    History,
    Pipeline,
    TableSink,
    TopicSource,
)

CUT = {"orders": {"0": 10, "1": 0}}


def pipeline(history, sink=None, **source):
    rows = TopicSource("orders", **source)
    return Pipeline("p", "h:1", {"rows": rows}, sink or TableSink("/t", "delta"), "/cp", history=history)


def test_the_half_that_reads_the_past():
    history = History("2026-01-31T00:00:00Z", batch_records_max=7, options={"tier": "s3://b/p"})
    half = history_half(pipeline(history, group="g", options={"minPartitions": "4"}), CUT)
    (source,) = half.sources.values()
    assert (half.name, half.checkpoint, half.trigger, half.history) == ("p.history", "/cp-history", AVAILABLE_NOW, None)
    assert (source.group, source.batch_records_max) == (None, 7)
    assert json.loads(source.options["untilOffsets"]) == CUT
    assert source.options["startingTimestamp"] == "1769817600000"
    assert (source.options["tier"], source.options["minPartitions"]) == ("s3://b/p", "4")


@pytest.mark.parametrize(("most", "expected"), [(200_000, 50), (20, 20)])
def test_a_pace_is_kept_by_batches_that_begin_every_five_seconds(most, expected):
    half = history_half(pipeline(History(records_per_second=10, batch_records_max=most)), CUT)
    (source,) = half.sources.values()
    assert (half.trigger, source.batch_records_max) == ("5 seconds", expected)


@pytest.mark.parametrize(
    ("make", "key", "message"),
    [
        (lambda: History(records_per_second=0), "records_per_second", "would stop it"),
        (lambda: History(batch_records_max=0), "batch_records_max", "are no batch"),
        (lambda: pipeline(History(), starting="latest"), "history", "begins at the end of its topic"),
        (lambda: pipeline(History(), deduplicate=("key",), watermark="1 hour"), "history", "remembers rows"),
        (lambda: pipeline(History(), sink=TableSink("/t")), "history", "use delta or iceberg"),
    ],
)
def test_what_cannot_be(make, key, message):
    with pytest.raises(DeclarationError, match=message) as refused:
        make()
    assert refused.value.key == key
