"""A topic of which nine tenths lie in a store alone: the same rows by Spark's own connector, through brokers,
and straight from the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tailrace.testing import Broker
from tests.real.tier.topics import QUICK, create, fill, local_start, wait, wait_cold

pytestmark = pytest.mark.long

COUNT = 3000


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, int]]:
    """Bootstrap servers, the store, and where the local log begins."""
    url = f"file://{tmp_path_factory.mktemp('store')}"
    settings = {"remote.log.storage.system.enable": "true", "remote.log.storage.url": url}
    with Broker(settings=QUICK | settings) as broker:
        create(broker.bootstrap, replicas=1)
        fill(broker.bootstrap, range(COUNT))
        folder = Path(str(broker.data)) / "t-0"
        wait_cold(folder, COUNT * 9 // 10)
        yield broker.bootstrap, url, local_start(folder)


def facts(rows: DataFrame) -> tuple[object, ...]:
    """Each offset once, and a sum of what is in the rows."""
    texts = sf.hex("value"), sf.col("offset").cast("string"), sf.col("timestamp").cast("string")
    sums = sf.sum(sf.crc32(sf.concat(*texts)))
    row = rows.agg(sf.count("*"), sf.countDistinct("offset"), sf.min("offset"), sf.max("offset"), sums).collect()[0]
    return tuple(row)


def test_every_way_gives_the_same_rows(spark: SparkSession, kafka_format: str, cold: tuple[str, str, int]) -> None:
    bootstrap, url, _ = cold
    found = {}
    for name in (kafka_format, "tailrace"):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        found[name] = facts(spark.read.format(name).options(**options).load())
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t", "tier": url}
    found["tier"] = facts(spark.read.format("tailrace").options(**options).load())
    assert found[kafka_format][:4] == (COUNT, COUNT, 0, COUNT - 1)
    assert found["tailrace"] == found[kafka_format]
    assert found["tier"] == found[kafka_format]


def test_the_store_alone_has_what_is_copied(spark: SparkSession, cold: tuple[str, str, int]) -> None:
    _, url, start = cold

    def alone() -> tuple[object, ...]:
        return facts(spark.read.format("tailrace").options(subscribe="t", tier=url, brokers="never").load())

    wait(lambda: int(str(alone()[0])) >= start, "the manifest tells of it")
    count, distinct, first, last, _ = alone()
    assert count == distinct
    assert (first, last) == (0, int(str(count)) - 1)
