"""Maintenance of tables: what it deletes, what it may not, and a driver that comes back after it."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlparse

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tailrace.spark.pipelines.checkpoint import note_maintained_at, read_maintained_at
from tailrace.spark.pipelines.declaration import Maintenance
from tailrace.spark.pipelines.landing.batches import Landing, LandingError, Limits, lake_table
from tests.spark.test_landing import checkpoint, sink
from tests.spark.test_merging import rows_of, stored, table_of

__all__ = ["checkpoint", "sink"]  # Fixtures.


@pytest.fixture
def merged(sink):
    return replace(
        sink,
        partition_by=(),
        merge_on=("key",),
        delete_where="text IS NULL",
        version="version",
        omit=("partition", "offset"),
    )


def data_folder(sink):
    if sink.format == "delta":
        return Path(sink.table)
    return Path(urlparse(load_catalog(None, **sink.catalog).load_table(sink.table).location()).path) / "data"


def data_files(sink):
    return {path.name for path in data_folder(sink).rglob("*.parquet") if "_delta_log" not in path.parts}


def versions(sink):
    if sink.format == "delta":
        return len(DeltaTable(sink.table).file_uris())
    return len(load_catalog(None, **sink.catalog).load_table(sink.table).snapshots())


def left_behind(sink, name, days):
    """A file that a driver wrote and did not commit."""
    path = data_folder(sink) / name
    path.write_bytes(b"rows")
    written = time.time() - days * 86400
    os.utime(path, (written, written))
    return name


def limits(**ago):
    now = datetime.now(UTC)
    return Limits(1 << 20, now - ago["history"], now - ago["deleted"])


def test_a_driver_comes_back_after_maintenance(spark, merged, checkpoint):
    land = Landing("orders", checkpoint("first"), merged)
    batches = [
        [("k0", "x", 1), ("k1", "x", 2)],
        [("k2", "x", 3), ("k0", None, 4)],
        [("k1", "xx", 5), ("k2", None, 6)],
        [("k3", "x", 7)],
    ]
    for number, batch in enumerate(batches):
        land(rows_of(spark, batch), number)
    before = table_of(merged)
    assert set(before) == {"k1", "k3"}
    assert sum(row["_deleted_at"] is not None for row in stored(merged)) == 2
    old, young = left_behind(merged, "old.parquet", 3), left_behind(merged, "young.parquet", 1)
    named = data_files(merged)

    # What is younger than two days stays, the versions that readers may look at among it.
    done = lake_table(merged).maintain(limits(history=timedelta(days=2), deleted=timedelta(days=1)))
    assert done.files_deleted == 1
    assert data_files(merged) >= named - {old}
    assert young in data_files(merged)
    assert table_of(merged) == before
    assert len(stored(merged)) == 4

    # As if all that were long ago.
    done = lake_table(merged).maintain(limits(history=timedelta(0), deleted=timedelta(0)))
    assert done.files_deleted > 1
    assert (len(data_files(merged)), versions(merged)) == (1, 1)
    assert table_of(merged) == before
    assert len(stored(merged)) == 2
    assert lake_table(merged).maintain(limits(history=timedelta(0), deleted=timedelta(0))).compacted == (0, 0)
    assert table_of(merged) == before

    for number in (2, 3):
        land(rows_of(spark, batches[number]), number)
        assert table_of(merged) == before
    land(rows_of(spark, [("k0", "new", 8), ("k1", None, 9)]), 4)
    assert set(table_of(merged)) == {"k0", "k3"}
    with pytest.raises(LandingError, match="under another checkpoint"):
        Landing("orders", checkpoint("second"), merged)(rows_of(spark, batches[0]), 0)


@pytest.mark.long
def test_maintenance_when_it_is_time(spark, sink, checkpoint):
    path = checkpoint("first")
    sink = replace(sink, partition_by=(), maintenance=Maintenance(every="1 hour"))

    def land(number):
        """By a process of its own: what is remembered is remembered beside the checkpoint."""
        Landing("orders", path, sink)(rows_of(spark, [(f"k{number}", "x", number)]).coalesce(1), number)
        return len(lake_files(sink))

    assert [land(number) for number in range(3)] == [1, 2, 3]
    note_maintained_at(spark, path, datetime.now(UTC) - timedelta(hours=2))
    assert land(3) == 1
    assert datetime.now(UTC) - read_maintained_at(spark, path) < timedelta(minutes=30)
    assert land(4) == 2
    assert len(stored(sink)) == 5


def lake_files(sink):
    if sink.format == "delta":
        return DeltaTable(sink.table).file_uris()
    table = load_catalog(None, **sink.catalog).load_table(sink.table)
    return [task.file.file_path for task in table.scan().plan_files()]


@pytest.mark.parametrize("sink", ["delta"], indirect=True)
def test_a_table_that_forgets_its_batches_is_refused(spark, sink, checkpoint):
    sink = replace(sink, partition_by=())
    land = Landing("orders", checkpoint("first"), sink)
    land(rows_of(spark, [("k", "x", 1)]), 0)
    DeltaTable(sink.table).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(LandingError, match="would forget which batch was the last"):
        land(rows_of(spark, [("k", "x", 1)]), 1)
