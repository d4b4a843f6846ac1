"""Batches into Delta and Iceberg tables: each once, whatever comes again, and whoever else writes there."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.testing import assertDataFrameEqual

from tailrace.spark.pipelines.declaration import DeclarationError, TableSink
from tailrace.spark.pipelines.landing.batches import Landing, LandingError, lake_table

COLUMNS = (
    "id",
    "IF(id % 3 = 0, NULL, concat('c', id % 3)) AS country",
    "timestamp_seconds(1767225600 + 7200 * id) AS at",
    "struct(id AS a, array('x', NULL) AS b) AS deep",
    "CAST(CAST(id AS STRING) AS BINARY) AS bytes",
    "CAST(id AS DECIMAL(10, 2)) AS price",
    "map('k', id) AS counts",
)


@pytest.fixture(params=["delta", "iceberg"])
def sink(request, tmp_path):
    if request.param == "delta":
        return TableSink(str(tmp_path / "delta"), "delta", ("day(at)", "country"))
    (tmp_path / "warehouse").mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    return TableSink("shop.orders", "iceberg", ("day(at)", "country"), catalog)


@pytest.fixture
def checkpoint(tmp_path):
    """Makes what Spark leaves of a query that it has started."""

    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        return str(folder)

    return make


@pytest.fixture
def rows(spark):
    def make(start, end):
        return spark.range(start, end, 1, 2).selectExpr(*COLUMNS)

    return make


def landed(spark, sink):
    """As the table's own library reads it."""
    if sink.format == "delta":
        return spark.createDataFrame(DeltaTable(sink.table).to_pyarrow_table()).drop("at_day")
    return spark.createDataFrame(load_catalog(None, **sink.catalog).load_table(sink.table).scan().to_arrow())


@pytest.fixture
def tokyo(spark):
    """Days of tables are those of UTC, wherever the session is."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("tokyo")
def test_a_batch_that_comes_again_is_there_once(spark, sink, checkpoint, rows):
    land = Landing("orders", checkpoint("first"), sink)
    for number in (0, 0, 1, 1, 0):
        land(rows(number * 5, number * 5 + 5), number)
    land(rows(0, 0), 2)
    assertDataFrameEqual(landed(spark, sink), rows(0, 10))

    other = Landing("orders", checkpoint("second"), sink)
    with pytest.raises(LandingError, match="under another checkpoint"):
        other(rows(0, 5), 0)
    Landing("other-orders", checkpoint("third"), sink)(rows(10, 12), 0)
    assertDataFrameEqual(landed(spark, sink), rows(0, 12))

    done = lake_table(sink).compact(1 << 20)
    assert (done.removed > 3, done.added) == (True, 3)  # One day, three countries.
    assert lake_table(sink).compact(1 << 20) == (0, 0)
    land(rows(5, 10), 1)
    assertDataFrameEqual(landed(spark, sink), rows(0, 12))


def test_a_table_that_does_not_fit_is_refused(sink, checkpoint, rows):
    path = checkpoint("first")
    Landing("orders", path, sink)(rows(0, 1), 0)
    for other, frame, message in [
        (sink, rows(0, 1).drop("price").withColumnRenamed("bytes", "blob"), "blob"),
        (
            replace(sink, partition_by=("day(at)",)),
            rows(0, 1),
            "is partitioned by at_day, country, and the pipeline says",
        ),
    ]:
        with pytest.raises(LandingError, match=message):
            Landing("orders", path, other)(frame, 1)
    with pytest.raises(DeclarationError, match="no column at to partition by: there are country"):
        Landing("orders", path, sink)(rows(0, 1).select("country"), 1)
    with pytest.raises(DeclarationError, match=r"day\(at\) needs a time, and the column is string"):
        Landing("orders", path, sink)(rows(0, 1).selectExpr("'x' AS at", "country"), 1)


def test_two_pipelines_fill_one_table(spark, sink, checkpoint, rows):
    """And its files are merged meanwhile, so that some commits come too late and have to be made anew."""
    Landing("first", checkpoint("first"), sink)(rows(0, 1), 0)

    def land_all(name, start):
        land = Landing(name, checkpoint(name), sink)
        for number in range(4):
            land(rows(start + number, start + number + 1), number)

    with ThreadPoolExecutor() as pool:
        landings = [pool.submit(land_all, "second", 1), pool.submit(land_all, "third", 5)]
        while not all(landing.done() for landing in landings):
            lake_table(sink).compact(1 << 20)
        for landing in landings:
            landing.result()
    assertDataFrameEqual(landed(spark, sink), rows(0, 9))


def test_a_table_grows_with_its_rows(spark, sink, checkpoint, rows):
    """New columns, within structs too, and rows of before again: a pipeline that was taken back to its old version."""
    sink = replace(sink, evolve="add")
    land = Landing("orders", checkpoint("first"), sink)
    new = rows(5, 10).selectExpr(
        "'n' AS note",
        "* EXCEPT (deep, counts, id)",
        "CAST(id AS INT) AS id",
        "IF(id = 6, NULL, struct(deep.b AS b, 1.5D AS c)) AS deep",
    )
    land(rows(0, 5), 0)
    for _ in range(2):
        land(new, 1)
    land(rows(10, 12), 2)
    found = landed(spark, sink)
    before = rows(0, 12).where("id NOT BETWEEN 5 AND 9")
    assertDataFrameEqual(
        found.where("note IS NULL").select("id", "country", "deep.a", "deep.b", "counts", "price"),
        before.select("id", "country", "deep.a", "deep.b", "counts", "price"),
    )
    assert [
        tuple(row) for row in found.where("note = 'n'").select("id", "deep.a", "deep.c", "counts").sort("id").collect()
    ] == [(n, None, None if n == 6 else 1.5, None) for n in range(5, 10)]
    assert lake_table(sink).compact(1 << 20).removed > 0
    assert landed(spark, sink).count() == 12
    with pytest.raises(
        LandingError, match=r"price is DECIMAL.10,2. there and STRING here.*The table has the columns id"
    ):
        land(rows(12, 13).selectExpr("* EXCEPT (price)", "'x' AS price"), 3)


def test_types_grow_where_the_format_can(spark, sink, checkpoint, rows):
    sink = replace(sink, evolve="add", partition_by=())
    land = Landing("orders", checkpoint("first"), sink)
    land(spark.sql("SELECT 1 AS n, 1.5F AS f, array(named_struct('d', 1.25BD)) AS many"), 0)
    wide = spark.sql("SELECT 5000000000 AS n, 2.5D AS f, array(named_struct('d', 12345.25BD)) AS many")
    if sink.format == "delta":
        with pytest.raises(
            LandingError, match="n is INT there and BIGINT here, and tables of this format cannot widen"
        ):
            land(wide, 1)
        return
    land(wide, 1)
    found = landed(spark, sink).select("n", "f", "many.d").sort("n")
    assertDataFrameEqual(
        found, spark.sql("VALUES (1L, 1.5D, array(1.25BD)), (5000000000L, 2.5D, array(12345.25BD)) AS t(n, f, d)")
    )
    assert dict(found.dtypes)["n"] == "bigint"
