"""What Spark says of a batch, and what is made of it."""

import json

import pytest

from tailrace.spark.pipelines.progress import RunSummary, batch_progress


def progress_text(sources, **fields):
    base = {
        "id": "q",
        "batchId": 7,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "numInputRows": 100,
        "processedRowsPerSecond": 50.04,
        "durationMs": {"triggerExecution": 2000, "addBatch": 1800},
        "eventTime": {"watermark": "2025-12-31T23:50:00.000Z"},
        "stateOperators": [{"numRowsTotal": 5, "numRowsDroppedByWatermark": 2}, {"numRowsTotal": 1}],
        "sources": sources,
    }
    return json.dumps({**base, **fields})


def test_a_batch():
    source = {"endOffset": {"a": {"0": 10, "1": 5}}, "latestOffset": {"a": {"0": 12, "1": 5}}}
    found = batch_progress("p", progress_text([source]))
    assert found.offsets == {"a": {"0": 10, "1": 5}}
    assert json.loads(found.as_line()) == {
        "pipeline": "p",
        "query_id": "q",
        "batch": 7,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "rows": 100,
        "rows_per_second": 50.0,
        "duration_ms": 2000,
        "lag": 2,
        "watermark": "2025-12-31T23:50:00.000Z",
        "state_rows": 6,
        "late_rows": 2,
    }


def test_two_sources_of_one_partition_are_done_up_to_the_earlier_offset():
    sources = [{"endOffset": {"a": {"0": 10, "1": 5}}}, {"endOffset": '{"a": {"0": 8}, "b": {"0": 1}}'}]
    assert batch_progress("p", progress_text(sources)).offsets == {"a": {"0": 8, "1": 5}, "b": {"0": 1}}


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"a": {"0": 3}}, {"a": {"0": 3, "1": 4}}, 4),  # a partition that is new
        ({"a": {"0": 3}}, {"a": {"0": 1}}, 0),  # the end was found before the batch went further
        ('{"a": {"0": 3}}', '{"a": {"0": 9}}', 6),
        ({"a": {"0": 3}}, None, None),
        ("3", "not json", None),
    ],
)
def test_lag(end, latest, lag):
    assert batch_progress("p", progress_text([{"endOffset": end, "latestOffset": latest}])).lag == lag


def test_a_lag_that_one_source_does_not_tell_is_not_known():
    known = {"endOffset": {"a": {"0": 3}}, "latestOffset": {"a": {"0": 4}}}
    assert batch_progress("p", progress_text([known, {"endOffset": None}])).lag is None


def test_a_summary_counts_batches_that_had_rows():
    source = {"endOffset": {"a": {"0": 3}}, "latestOffset": {"a": {"0": 4}}}
    full = batch_progress("p", progress_text([source]))
    empty = batch_progress(
        "p", progress_text([source], numInputRows=0, processedRowsPerSecond="NaN", stateOperators=[])
    )
    assert RunSummary().with_batch(full).with_batch(empty) == RunSummary(1, 100, 4000, 1, 2)
