"""Topics in Spark: rows per second from a topic to nowhere, to Parquet and to another topic, beside Spark's connector.

Every figure is the time of a whole query, planning included, with the broker, the JVM and the Python workers on the
same cores. Ours and Spark's take turns, so that both meet the machine in the same moods; the first round warms the JVM
up and does not count.
"""

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from bench.decode import event_text
from bench.maven import JarsNotFoundError, bring_jars
from bench.measures import KILOBYTE, Figure, Plan
from bench.subject import Subject, running
from tailrace.spark import session
from tailrace.spark.session import JavaNotFoundError, find_java_home

OURS, OFFICIAL = "tailrace", "kafka"
_POM = Path(__file__).parents[1] / "tests" / "spark" / "java" / "pom.xml"
_SOURCE_GOAL = 300_000
_PARQUET_GOAL = 100_000
_ROWS_PER_SECOND = 500_000  # A topic has so many for each second of a round.
_PARTITIONS = 8
# As Kafka's own producer has them.
_PRODUCER = {"batch.size": 16384, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000, "acks": "1"}
_DISTINCT_VALUES = 2000
_DEADLINE_S = 300.0


class _Topic(NamedTuple):
    name: str
    rows: int
    value_bytes: int

    @property
    def size(self) -> str:
        return f"{self.value_bytes // KILOBYTE} KB" if self.value_bytes >= KILOBYTE else f"{self.value_bytes} B"


def spark(plan: Plan) -> list[Figure]:
    """Nothing without Java."""
    try:
        find_java_home()
    except JavaNotFoundError as error:
        print(f"without Spark: {error}")
        return []
    with running() as subject:
        rows = int(plan.seconds * _ROWS_PER_SECOND)
        large, small = _fill(subject, rows, KILOBYTE), _fill(subject, rows * 2, 100)
        with spark_session("local[2]") as found:
            bench = _Bench(found, subject, plan)
            figures = bench.planning()
            for topic in (large, small):
                figures += [bench.to_nowhere(topic), bench.to_parquet(topic), *bench.to_topic(topic)]
            figures.append(bench.to_nowhere(large, columns="value"))
            for partitions in (1, 2, 4, _PARTITIONS):
                topic = large if partitions == _PARTITIONS else _fill(subject, rows, KILOBYTE, partitions)
                figures.append(bench.to_nowhere(topic, note=f", partitions: {partitions}"))
                if partitions == 1:
                    figures.append(bench.to_nowhere(topic, note=", partitions: 1, tasks: 4", minPartitions="4"))
                if topic != large:
                    subject.delete_topic(topic.name)
        with spark_session("local[1]") as found:
            figures.append(_Bench(found, subject, plan).to_nowhere(large, note=", one core for Spark"))
    return figures


class _Bench:
    """Measures in one session."""

    def __init__(self, found: SparkSession, subject: Subject, plan: Plan) -> None:
        self._spark = found
        self._subject = subject
        self._plan = plan
        self._formats = (OURS, OFFICIAL) if found.conf.get("spark.jars", "") else (OURS,)

    def planning(self) -> list[Figure]:
        """What a query costs that reads nothing."""
        topic = self._subject.create_topic("empty", warm=False)
        times = self._in_turns(lambda form: lambda: self._read(form, topic).count())
        return [_figure("count() of an empty topic", times, lambda s: s * 1000, "ms", lower_is_better=True)]

    def to_nowhere(self, topic: _Topic, note: str = "", **options: str) -> Figure:
        def query(form: str) -> Callable[[], object]:
            known = options if form == OURS else {name: value for name, value in options.items() if name != "columns"}
            rows = self._read(form, topic.name, **known)
            if "columns" in options:
                rows = rows.select(*options["columns"].split(","))
            return lambda: rows.write.format("noop").mode("overwrite").save()

        goal = _SOURCE_GOAL if topic.value_bytes == KILOBYTE and not note and not options else None
        note += f", {options['columns']} only" if "columns" in options else ""
        return _figure(f"topic to noop, {topic.size}{note}", self._in_turns(query), _rate(topic), "rows/s", goal)

    def to_parquet(self, topic: _Topic) -> Figure:
        """Exactly once, by the log of the file sink."""

        def query(form: str) -> Callable[[], object]:
            def run() -> None:
                with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
                    self._stream(form, topic, "parquet", folder, {"path": f"{folder}/table"})

            return run

        goal = _PARQUET_GOAL if topic.value_bytes == KILOBYTE else None
        return _figure(
            f"topic to Parquet, {topic.size}, exactly once", self._in_turns(query), _rate(topic), "rows/s", goal
        )

    def to_topic(self, topic: _Topic) -> list[Figure]:
        """At least once, as Spark's own sink does it, and exactly once, which only ours does."""

        def query(form: str, *, exactly_once: bool = False) -> Callable[[], object]:
            def run() -> None:
                sink = self._subject.create_topic(f"sink-{uuid4()}", warm=False, partitions=_PARTITIONS)
                options = {"kafka.bootstrap.servers": self._subject.bootstrap, "topic": sink}
                if exactly_once:
                    options["exactlyOnce"] = "true"
                with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
                    self._stream(form, topic, form, folder, options, "key", "value")
                self._subject.delete_topic(sink)

            return run

        name = f"topic to topic, {topic.size}"
        both = self._in_turns(query)
        once = self._in_turns(lambda form: query(form, exactly_once=True), (OURS,))
        return [
            _figure(f"{name}, at least once", both, _rate(topic), "rows/s"),
            _figure(f"{name}, exactly once", {OURS: once[OURS]} | _official(both), _rate(topic), "rows/s"),
        ]

    def _read(self, form: str, topic: str, **options: str) -> DataFrame:
        reader = self._spark.read.format(form).option("kafka.bootstrap.servers", self._subject.bootstrap)
        return reader.options(subscribe=topic, **options).load()

    def _stream(
        self, form: str, topic: _Topic, sink: str, folder: str, options: Mapping[str, str], *columns: str
    ) -> None:
        reader = self._spark.readStream.format(form).option("kafka.bootstrap.servers", self._subject.bootstrap)
        rows = reader.options(subscribe=topic.name, startingOffsets="earliest").load()
        writer = (rows.select(*columns) if columns else rows).writeStream.format(sink).options(**options)
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        if not query.awaitTermination(_DEADLINE_S):
            query.stop()
            raise TimeoutError(f"{topic.name} to {sink} does not end")
        found = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert found == topic.rows, f"{form}: {found} rows of {topic.rows}"

    def _in_turns(
        self, query: Callable[[str], Callable[[], object]], formats: tuple[str, ...] | None = None
    ) -> dict[str, float]:
        """Seconds by format, the median of the rounds."""
        formats = formats or self._formats
        queries = {form: query(form) for form in formats}
        times: dict[str, list[float]] = {form: [] for form in formats}
        for _ in range(self._plan.rounds + 1):
            for form, run in queries.items():
                start = time.perf_counter()
                run()
                times[form].append(time.perf_counter() - start)
        return {form: statistics.median(rounds[1:]) for form, rounds in times.items()}


def _rate(topic: _Topic) -> Callable[[float], float]:
    return lambda seconds: topic.rows / seconds


def _official(times: Mapping[str, float]) -> dict[str, float]:
    return {form: seconds for form, seconds in times.items() if form == OFFICIAL}


def _figure(
    name: str,
    times: Mapping[str, float],
    value: Callable[[float], float],
    unit: str,
    goal: float | None = None,
    *,
    lower_is_better: bool = False,
) -> Figure:
    baseline = value(times[OFFICIAL]) if OFFICIAL in times else None
    return Figure(
        name, value(times[OURS]), unit, goal, baseline, "Spark's connector" if baseline else "", lower_is_better
    )


def _fill(subject: Subject, rows: int, value_bytes: int, partitions: int = _PARTITIONS) -> _Topic:
    name = subject.create_topic(f"rows-{value_bytes}-{partitions}", warm=False, partitions=partitions)
    source = random.Random(1)
    values = [event_text(source, value_bytes) for _ in range(_DISTINCT_VALUES)]
    producer = Producer({"bootstrap.servers": subject.bootstrap, **_PRODUCER})
    for number in range(rows):
        while True:
            try:
                producer.produce(name, values[number % _DISTINCT_VALUES], b"%08d" % number, number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(_DEADLINE_S) == 0
    return _Topic(name, rows, value_bytes)


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """With the jars of Spark's own connector, if Maven can bring them."""
    settings = {"spark.ui.enabled": "false"}
    try:
        jars = bring_jars(_POM, "spark-java")
        settings["spark.jars"] = ",".join(map(str, sorted(jars.glob("*.jar"))))
    except JarsNotFoundError as error:
        print(f"without Spark's own connector: {error}")
    folder = tempfile.mkdtemp(prefix="tailrace-bench-")
    found = session("bench", master=master, settings=settings | {"spark.sql.warehouse.dir": folder})
    found.sparkContext.setLogLevel("ERROR")
    try:
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder, ignore_errors=True)
