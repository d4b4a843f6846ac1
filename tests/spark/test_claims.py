"""Large values in an object store, as Spark reads them: references, or what they refer to."""

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.kit import Producer
from tailrace.kit.claims import Claims
from tailrace.testing import Broker

LARGE = b'{"id": 2, "text": "' + b"x" * 5000 + b'"}'


@pytest.fixture
def scans(create_topic, tailrace_broker: Broker, tmp_path: Path) -> tuple[str, str]:
    """A topic of a small value, two large ones and a tombstone, and their store."""
    topic, url = create_topic(), f"file://{tmp_path}/claims"

    async def write() -> None:
        async with (
            Claims(url, threshold_bytes=1000) as claims,
            Producer(bootstrap_servers=tailrace_broker.bootstrap) as to,
        ):
            await claims.produce(to, topic, b'{"id": 1, "text": "small"}', key="a", headers={"from": "test"})
            await claims.produce(to, topic, LARGE, key="b", headers={"from": "test"})
            await claims.produce(to, topic, LARGE.replace(b"2", b"3"), key="c")
            await claims.produce(to, topic, None, key="d")

    asyncio.run(write())
    return topic, url


def test_values_are_resolved_or_stay_references(spark: SparkSession, tailrace_broker: Broker, scans, tmp_path: Path):
    topic, url = scans
    options = {"kafka.bootstrap.servers": tailrace_broker.bootstrap, "subscribe": topic}
    reader = spark.read.format("tailrace").options(**options)
    rows = reader.option("claimCheck", "reference").load().orderBy("offset").collect()
    assert b'"sha256"' in bytes(rows[1].value)
    resolve = reader.option("claimCheck", "resolve").option("claimCheck.url", url)
    rows = resolve.load().orderBy("offset").collect()
    assert [row.value and bytes(row.value) for row in rows] == [
        b'{"id": 1, "text": "small"}',
        LARGE,
        LARGE.replace(b"2", b"3"),
        None,
    ]
    assert set(rows[0].asDict()) == {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType"}
    typed = resolve.option("value.format", "json").option("value.schema", "id INT").option("columns", "value").load()
    assert sorted(row.value.id for row in typed.collect() if row.value) == [1, 2, 3]
    # Missing and damaged are told apart, with the record that they are of.
    (first, second) = sorted((tmp_path / "claims").rglob("*/*/*"))
    first.write_bytes(first.read_bytes().replace(b"x", b"y"))
    with pytest.raises(
        PySparkException, match=rf"offset [12] of {topic}-0 cannot be resolved: .*the object was changed"
    ):
        resolve.load().collect()
    first.unlink()
    second.unlink()
    with pytest.raises(PySparkException, match=rf"offset [12] of {topic}-0 cannot be resolved: .*was deleted before"):
        resolve.load().collect()


def test_options_that_say_too_little_or_too_much(spark: SparkSession, tailrace_broker: Broker, scans):
    topic, url = scans
    reader = spark.read.format("tailrace").options(
        **{"kafka.bootstrap.servers": tailrace_broker.bootstrap, "subscribe": topic}
    )
    with pytest.raises(PySparkException, match=r"claimCheck\.url is missing"):
        reader.option("claimCheck", "resolve").load().collect()
    with pytest.raises(PySparkException, match="claimCheck is 'open': expected resolve"):
        reader.option("claimCheck", "open").load().collect()
    with pytest.raises(PySparkException, match="claimCheck is reference, so no store is read"):
        reader.option("claimCheck", "reference").option("claimCheck.url", url).load().collect()
