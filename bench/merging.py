"""Keys merged into a large table: time of a batch, and memory of the driver that merges it.

    python -m bench.merging delta|iceberg [--rows 100000000] [--keys 1000000] [--files 100] [--spread scattered|recent]

makes a table of `rows` rows (a key, a number, a text of 32 characters) in `files` files that follow each other by key,
merges `keys` rows into it as a pipeline does, and looks whether all of them are there. Keys are scattered over the
whole table, so that every file has some; or `recent`: they are the last of the table, as where keys grow with time.
"""

import argparse
import json
import os
import resource
import tempfile
import threading
import time
import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tailrace.spark import session
from tailrace.spark.pipelines import TableSink
from tailrace.spark.pipelines.landing.batches import Batch, Landing, lake_table
from tailrace.spark.pipelines.landing.files import write_files

_COLUMNS = ("id", "id % 1000 AS n", "md5(CAST(id AS STRING)) AS text")


def main() -> None:
    options = _options()
    spark = session("merging", master="local[2]", settings={"spark.ui.enabled": "false", "spark.driver.memory": "3g"})
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="tailrace-merging-") as name:
        folder = Path(name)
        sink = _sink(folder, options.format)
        began = time.perf_counter()
        _fill(spark, sink, options.rows, options.files)
        size_mb = sum(path.stat().st_size for path in folder.rglob("*.parquet")) >> 20
        print(f"{options.rows:,} rows in {size_mb:,} MB, made in {time.perf_counter() - began:.0f} s", flush=True)
        before_mb = _memory_mb()
        merge = Landing("merging", _checkpoint(folder), sink)
        with _Peak() as peak:
            began, cpu = time.perf_counter(), time.process_time()
            merge(_changes(spark, options), 0)
            spent, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(
            f"{options.format}, {options.keys:,} {options.spread} keys: {spent:.1f} s by the clock, {cpu:.1f} s of "
            f"processor time in the driver; its memory {before_mb:,} MB before, {peak.found_mb:,} MB at most",
            flush=True,
        )
        _check(spark, sink, options)
        spark.stop()


class _Peak:
    """The memory of this process, the JVM not among it, while it works."""

    def __init__(self) -> None:
        self.found_mb = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._end.wait(0.05):
            self.found_mb = max(self.found_mb, _memory_mb())

    def __enter__(self) -> "_Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def _memory_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def _sink(folder: Path, kind: str) -> TableSink:
    keys = {"merge_on": ("id",), "omit": ("partition", "offset")}
    if kind == "delta":
        return TableSink(str(folder / "table"), "delta", **keys)
    (folder / "warehouse").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return TableSink("shop.orders", "iceberg", catalog=catalog, **keys)


def _fill(spark: SparkSession, sink: TableSink, rows: int, files: int) -> None:
    table = lake_table(sink)
    frame = table.open(spark.range(0, rows, 1, files).selectExpr(*_COLUMNS))
    table.commit(write_files(frame, table.file_writer()), Batch("filling", str(uuid.uuid4()), 0))


def _checkpoint(folder: Path) -> str:
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    return str(checkpoint)


def _changes(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Half of them are keys that the table has, half are new."""
    old, new = options.keys // 2, options.keys - options.keys // 2
    step = options.rows // old if options.spread == "scattered" else 1
    first = 0 if options.spread == "scattered" else options.rows - old
    there = spark.range(old).selectExpr(f"{first} + id * {step} AS id")
    coming = spark.range(options.rows, options.rows + new)
    return there.union(coming).selectExpr("id", "-1L AS n", "'new' AS text", "0 AS partition", "id AS offset")


def _check(spark: SparkSession, sink: TableSink, options: argparse.Namespace) -> None:
    from tailrace.spark.pipelines.reading import TableScan, read_table

    rows = read_table(spark, TableScan(sink.table, sink.format, catalog=sink.catalog))
    found = rows.selectExpr("count(*)", "count_if(n = -1)", "count(DISTINCT id)").collect()[0]
    total = options.rows + options.keys - options.keys // 2
    assert tuple(found) == (total, options.keys, total), found
    print(f"checked: {total:,} rows, {options.keys:,} of them new", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.merging", description="Keys merged into a large table.")
    parser.add_argument("format", choices=["delta", "iceberg"])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--spread", choices=["scattered", "recent"], default="scattered")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
