"""exactlyOnce through Spark: tasks and drivers are killed at every step, and each row is in the topic once."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.transactions.admin import TransactionAdmin
from tailrace.model.ids import TopicPartition
from tailrace.real.ports import real_ports
from tailrace.testing import Broker
from tests.spark.mortal import DRIVER_POINTS, NAME, POINTS, Copy, mortal_source

PARTITIONS = 2
ROW_COUNT = 400
DEADLINE_S = 30
ROOT = Path(__file__).parents[2]
HALF_COMMITTED = "the driver that has committed one part"
QUICK = ("a task that has written", "the driver that has decided", HALF_COMMITTED)


@pytest.fixture
def copy(
    tailrace_broker: Broker, create_topic: Callable[..., str], produce: Callable[..., None], checkpoint: str
) -> Copy:
    source, sink = create_topic(PARTITIONS), create_topic(PARTITIONS)
    produce(source, ({"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(ROW_COUNT)))
    return Copy(tailrace_broker.bootstrap, source, sink, checkpoint)


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    folder = tmp_path / "markers"
    folder.mkdir()
    return folder


def committed(copy: Copy) -> Counter[int]:
    return asyncio.run(_committed(copy.bootstrap, copy.sink))


async def _committed(bootstrap: str, topic: str) -> Counter[int]:
    """What is committed, once no transaction is open there any more."""
    cluster = Cluster(real_ports(), parse_bootstrap(bootstrap))
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    consumer = Consumer(cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED))
    found: Counter[int] = Counter()
    async with asyncio.timeout(DEADLINE_S):
        ends = await Consumer(cluster).offsets_at(partitions, LATEST)
        await consumer.assign(await consumer.offsets_at(partitions, EARLIEST))
        while any(consumer.position(partition).offset < end for partition, end in ends.items()):
            for records in (await consumer.poll(100)).values():
                found.update(int(record.value) for record in records)
    await consumer.close()
    cluster.close()
    return found


@pytest.mark.parametrize("names", [QUICK, pytest.param(tuple(POINTS), marks=pytest.mark.long)])
def test_tasks_and_commits_that_are_killed(spark: SparkSession, copy: Copy, markers: Path, names: Sequence[str]):
    points = dict(enumerate(names))
    spark.dataSource.register(mortal_source(points, markers))
    rows = copy.rows(spark, maxOffsetsPerTrigger=str(ROW_COUNT // len(points)))
    # Spark runs a task again; a commit that fails ends the run.
    for _ in DRIVER_POINTS.keys() & names:
        with pytest.raises(StreamingQueryException):
            copy.run(rows, sink_format=NAME)
    copy.run(rows, sink_format=NAME)
    assert {path.name for path in markers.iterdir()} == {str(batch) for batch in points}
    assert committed(copy) == Counter(range(ROW_COUNT))


@pytest.mark.long
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_driver_is_killed_with_its_jvm(spark: SparkSession, copy: Copy, markers: Path, point: str):
    run_until_death(copy, markers, point)
    copy.run(copy.rows(spark))
    assert committed(copy) == Counter(range(ROW_COUNT))
    assert open_transactions(copy.bootstrap) == set()


def run_until_death(copy: Copy, markers: Path, point: str, **options: str) -> None:
    """In a process of its own."""
    rest = [f"{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.spark.mortal", *copy, str(markers), point, *rest]
    log = markers.parent / "log"
    with log.open("wb") as output:  # A pipe would be held open by workers that outlive the others for a moment.
        subprocess.run(
            command,
            cwd=ROOT,
            start_new_session=True,
            stdout=output,
            stderr=output,
            timeout=DEADLINE_S * 10,
            check=False,
        )
    assert (markers / "0").exists(), log.read_text()[-3000:]


def open_transactions(bootstrap: str) -> set[str]:
    async def find() -> set[str]:
        cluster = Cluster(real_ports(), parse_bootstrap(bootstrap))
        found = await TransactionAdmin(cluster).transactions(states=["Ongoing"])
        cluster.close()
        return {each.transactional_id for each in found}

    return asyncio.run(find())


@pytest.mark.long
@pytest.mark.parametrize("is_repeatable", [True, False])
def test_a_driver_stays_away_longer_than_the_timeout(
    spark: SparkSession, copy: Copy, markers: Path, *, is_repeatable: bool
):
    run_until_death(copy, markers, HALF_COMMITTED, **{"kafka.transaction.timeout.ms": "40000"})
    deadline = time.monotonic() + 90
    while open_transactions(copy.bootstrap):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    rows = copy.rows(spark)
    if is_repeatable:
        assert sum(committed(copy).values()) == ROW_COUNT // 2  # The other half has timed out.
        copy.run(rows)
        assert committed(copy) == Counter(range(ROW_COUNT))
        return
    with pytest.raises(StreamingQueryException, match="half written"):
        copy.run(rows.withColumn("value", F.concat("value", F.lit("0"))))
    assert sum(committed(copy).values()) == ROW_COUNT // 2


def test_a_batch_write_is_made_once_by_its_name(spark: SparkSession, copy: Copy):
    rows = spark.range(ROW_COUNT, numPartitions=3).select(F.col("id").cast("string").alias("value"))
    writer = rows.write.format("tailrace").mode("append").option("kafka.bootstrap.servers", copy.bootstrap)
    writer = writer.options(topic=copy.sink, exactlyOnce="true")
    with pytest.raises(PySparkException, match="exactlyOnceId"):
        writer.save()
    writer = writer.option("exactlyOnceId", copy.sink)
    writer.save()
    writer.save()
    assert committed(copy) == Counter(range(ROW_COUNT))
    writer.option("exactlyOnceBatch", 1).save()
    assert committed(copy) == Counter(dict.fromkeys(range(ROW_COUNT), 2))
