"""The figures of one side, the tables that Spark has no reader for, and a chart, on rows that are written here."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from tailrace.spark.audit.profile import Gap, Point, gaps, partition_figures, profile, timelines
from tailrace.spark.charts import save_chart
from tailrace.spark.pipelines.declaration import DeclarationError
from tailrace.spark.pipelines.reading import TableScan, read_table


def test_gaps_within_a_stretch_of_offsets_between_stretches_and_over_whole_ones(spark):
    # Stretches are 100,000 offsets long.
    kept = [*range(99_990, 99_995), *range(99_997, 100_003), *range(350_010, 350_015)]
    rows = [("a", offset, offset // 100) for offset in kept] + [("b", 7, None)]
    records = spark.createDataFrame(rows, "partition string, offset bigint, second bigint").select(
        "partition", "offset", sf.timestamp_seconds("second").alias("time")
    )
    counts = profile({"one": records, "two": records.where("partition = 'a'")}).persist()
    figures = partition_figures(counts)
    a, b = figures["one"]
    assert figures["two"] == [a]
    assert (a.partition, a.records, a.first_offset, a.last_offset) == ("a", 16, 99_990, 350_014)
    assert (a.first_timestamp, a.last_timestamp, b.first_timestamp) == (999_000, 3_500_000, None)
    assert (a.missing, b.missing) == (350_015 - 99_990 - 16, 0)
    assert gaps(records, counts, "one", limit=5) == [Gap("a", 99_995, 99_997), Gap("a", 100_003, 350_010)]
    assert gaps(records, counts, "one", limit=1) == [Gap("a", 99_995, 99_997)]
    assert timelines(counts, 1000) == {
        "one": [Point(0, 8), Point(1000, 3), Point(3000, 5)],
        "two": [Point(0, 8), Point(1000, 3), Point(3000, 5)],
    }
    counts.unpersist()


def test_delta_and_iceberg_tables_are_read_without_their_jars(spark, tmp_path):
    from deltalake import DeltaTable, write_deltalake
    from deltalake.transaction import AddAction
    from pyiceberg.catalog import load_catalog

    rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "day": ["01", None, "0 2"]})
    path = str(tmp_path / "delta")
    write_deltalake(path, rows.schema.empty_table(), partition_by=["day"])
    assert read_table(spark, TableScan(path, format="delta")).collect() == []
    write_deltalake(path, rows, mode="append")
    write_deltalake(path, rows, mode="overwrite")
    pq.write_table(pa.table({"id": pa.array([4], pa.int32())}), f"{path}/plain.parquet")
    added = AddAction("plain.parquet", 1, {"day": "04"}, 0, True, "{}")
    DeltaTable(path).create_write_transaction([added], "append", DeltaTable(path).schema(), ["day"])
    # Files that were replaced are there and not read; what day it is the log knows, and not always the path.
    expected = [(1, "01"), (2, None), (3, "0 2"), (4, "04")]
    assert sorted(map(tuple, read_table(spark, TableScan(path, format="delta")).collect())) == expected

    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/iceberg"}
    catalog = load_catalog("default", **settings)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=rows.schema)
    scan = TableScan("shop.orders", format="iceberg", catalog=settings, where="id > 1")
    assert read_table(spark, scan).collect() == []
    table.append(rows.drop_columns("day"))
    table.append(rows)
    assert sorted(map(tuple, read_table(spark, scan).select("id", "day").collect()), key=str) == [
        (2, None),
        (2, None),
        (3, "0 2"),
        (3, None),
    ]
    with table.update_schema() as update:
        update.rename_column("day", "date")
    with pytest.raises(DeclarationError, match="was renamed"):
        read_table(spark, scan)

    with pytest.raises(DeclarationError, match="deletion vectors"):
        _read_with_deletion_vectors(spark, tmp_path)


def _read_with_deletion_vectors(spark, tmp_path):
    path = str(tmp_path / "deleted")
    from deltalake import DeltaTable
    from deltalake.table import TableFeatures

    DeltaTable.create(path, pa.schema([("id", pa.int32())])).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    read_table(spark, TableScan(path, format="delta"))


def test_an_aggregate_by_window_becomes_a_picture(spark, tmp_path):
    rows = spark.createDataFrame([(0, "a", 5), (30, "a", 7), (70, "b", 1)], "second bigint, name string, amount int")
    windows = rows.groupBy(sf.window(sf.timestamp_seconds("second"), "1 minute"), "name").agg(
        sf.sum("amount").alias("total")
    )
    path = tmp_path / "chart.svg"
    assert save_chart(windows, path, value="total", series="name", title="orders by minute") == 2
    picture = path.read_text()
    assert "a 1970-01-01 00:00:00: 12" in picture
    assert "b 1970-01-01 00:01:00: 1" in picture
