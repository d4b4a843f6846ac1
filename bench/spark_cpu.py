"""Processor time of queries in Spark: ours beside Spark's own connector, JVM, Python and broker together.

    python -m bench.spark_cpu [--rounds 3] [--rows 200000] [--only PART_OF_A_NAME ...]

A figure is CPU seconds of this process, the broker and all that both have started, for a whole query. Ours and Spark's
take turns on the same topic and broker, each first in every other round, since what the one has made the JVM compile
serves the other too; the first round does not count. Time that a busy machine takes away from a query is not in it, so
it holds where the clock does not. Under each line stands which processes took it.
"""

import argparse
import ctypes
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

from bench.maven import bring_jars
from tailrace.spark import session
from tailrace.testing import Broker

OURS, OFFICIAL = "tailrace", "kafka"
FORMATS = (OURS, OFFICIAL)
POM = Path(__file__).parents[1] / "tests" / "spark" / "java" / "pom.xml"
SCHEMA = "id BIGINT, customer STRING, amount DOUBLE, paid BOOLEAN, note STRING, tags ARRAY<STRING>"
DEADLINE_S = 300.0
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Row(NamedTuple):
    """One line of the table: what each format does with the topic, and its options beyond the common ones."""

    name: str
    partitions: int
    value_bytes: int
    run: Callable[["Bench", str, str], None]
    # Of the rows that a topic has otherwise: a stream starts processes of its own, which a short one would measure.
    times: int = 1


class Bench(NamedTuple):
    spark: SparkSession
    bootstrap: str
    rows: int

    def read(self, form: str, topic: str, *, stream: bool = False, **options: str) -> DataFrame:
        reader = (self.spark.readStream if stream else self.spark.read).format(form)
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.options(**chosen | options).load()  # type: ignore[return-value]


def to_nowhere(bench: Bench, form: str, topic: str) -> None:
    drain(bench.read(form, topic))


def json_to_nowhere(bench: Bench, form: str, topic: str) -> None:
    """Ours opens values in the source, the other by Spark's own from_json."""
    if form == OURS:
        options = {"value.format": "json", "value.schema": SCHEMA, "columns": "value"}
        drain(bench.read(form, topic, **options).select("value.*"))
    else:
        drain(opened(bench.read(form, topic)))


def opened(rows: DataFrame) -> DataFrame:
    return rows.select(from_json(col("value").cast("string"), SCHEMA, {"mode": "FAILFAST"}).alias("v")).select("v.*")


def to_parquet(bench: Bench, form: str, topic: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        writer = bench.read(form, topic, stream=True).writeStream.format("parquet").option("path", f"{folder}/table")
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        if not query.awaitTermination(DEADLINE_S):
            query.stop()
            raise TimeoutError(f"{topic} to Parquet does not end")
        found = sum(progress["numInputRows"] for progress in query.recentProgress)
        assert found == bench.rows, f"{form}: {found} rows of {bench.rows}"


ROWS = (
    Row("to noop, 300 partitions", 300, 1000, to_nowhere),
    Row("to noop, 64 partitions", 64, 1000, to_nowhere),
    Row("to noop, 8 partitions", 8, 1000, to_nowhere),
    Row("to noop, 1 partition", 1, 1000, to_nowhere),
    Row("to noop, 100 B, 8 partitions", 8, 100, to_nowhere),
    Row("JSON to columns, 1 KB, 8 partitions", 8, 1000, json_to_nowhere),
    Row("JSON to columns, 200 B, 8 partitions", 8, 200, json_to_nowhere),
    Row("to Parquet, 1 KB, 8 partitions", 8, 1000, to_parquet),
    Row("to Parquet, 1 KB, 8 partitions, 5 times the rows", 8, 1000, to_parquet, 5),
    Row("to Parquet, 100 B, 8 partitions, 5 times the rows", 8, 100, to_parquet, 5),
)


def main() -> None:
    options = _options()
    # What Spark's processes leave behind as they die becomes ours, and keeps its times, as nobody waits for it.
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    chosen = [row for row in ROWS if any(word in row.name for word in options.only)]
    jars = ",".join(map(str, bring_jars(POM, "spark-java").glob("*.jar")))
    print(f"load {os.getloadavg()[0]:.1f}, {options.rows:,} rows, median of {options.rounds}")
    print("| CPU s (clock s) | ours | Spark's connector | ratio of CPU (clock) |\n|---|---|---|---|", flush=True)
    with Broker(start_timeout_s=60) as broker:
        spark = session("bench", master="local[2]", settings={"spark.jars": jars, "spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        topics: dict[tuple[int, int, int], str] = {}
        for row in chosen:
            place = options.rows * row.times, row.partitions, row.value_bytes
            if place not in topics:
                topics[place] = fill(broker, *place)
            bench = Bench(spark, broker.bootstrap, options.rows * row.times)
            print(measured(bench, row, topics[place], options.rounds), flush=True)
        spark.stop()


def measured(bench: Bench, row: Row, topic: str, rounds: int) -> str:
    spent: dict[str, list[Spent]] = {form: [] for form in FORMATS}
    for turn in range(rounds + 1):
        for form in FORMATS if turn % 2 else FORMATS[::-1]:
            cpu, clock = cpu_of_parts_s(), time.perf_counter()
            row.run(bench, form, topic)
            if turn:
                clock = time.perf_counter() - clock
                spent[form].append(Spent(clock, {part: at - cpu[part] for part, at in cpu_of_parts_s().items()}))
    ours, theirs = (medians(spent[form]) for form in FORMATS)
    ratio = f"{theirs.cpu_s / ours.cpu_s:.2f} ({theirs.clock_s / ours.clock_s:.2f})"
    return f"| {row.name} | {ours} | {theirs} | {ratio} |\n  ours: {ours.told}; Spark's connector: {theirs.told}"


class Spent(NamedTuple):
    clock_s: float
    parts: Mapping[str, float]

    @property
    def cpu_s(self) -> float:
        return sum(self.parts.values())

    @property
    def told(self) -> str:
        return ", ".join(f"{part} {seconds:.2f}" for part, seconds in self.parts.items())

    def __str__(self) -> str:
        return f"{self.cpu_s:.2f} ({self.clock_s:.2f})"


def medians(each: Sequence[Spent]) -> Spent:
    """The round in the middle by its processor time, and the median of the clock."""
    middle = sorted(each, key=lambda spent: spent.cpu_s)[len(each) // 2]
    return middle._replace(clock_s=statistics.median(spent.clock_s for spent in each))


def drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def fill(broker: Broker, rows: int, partitions: int, value_bytes: int) -> str:
    topic = f"rows-{rows}-{partitions}-{value_bytes}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(DEADLINE_S)
    chance = random.Random(1)
    values = [event(chance, value_bytes) for _ in range(2000)]
    settings = {"linger.ms": 5, "queue.buffering.max.messages": rows + 1, "batch.size": 16384}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    for number in range(rows):
        producer.produce(topic, values[number % len(values)], b"%08d" % number, number % partitions)
    assert producer.flush(DEADLINE_S) == 0
    return topic


def event(chance: random.Random, size: int) -> bytes:
    """JSON of SCHEMA, about `size` bytes long."""
    start = f'{{"id":{chance.randrange(10**9)},"customer":"customer-{chance.randrange(10**6)}"'
    rest = f',"amount":{chance.random() * 1000:.2f},"paid":true,"tags":["new","gift"],"note":"'
    text = "".join(chance.choices("abcdefghij klmnop", k=max(0, size - len(start) - len(rest) - 2)))
    return f'{start}{rest}{text}"}}'.encode()


def cpu_s() -> float:
    """Of this process and all that it has started, the broker and the dead ones included."""
    return sum(cpu_of_parts_s().values())


def cpu_of_parts_s() -> dict[str, float]:
    """The same by what it is: the JVM, the broker, and the rest, which are processes of Python."""
    parents, ticks, names = {}, {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            names[int(entry.name)] = (entry / "cmdline").read_text()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        own, buried = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        ticks[int(entry.name)] = own / os.sysconf("SC_CLK_TCK"), buried / os.sysconf("SC_CLK_TCK")
    parts, waiting = dict.fromkeys(("JVM", "broker", "Python"), 0.0), [os.getpid()]
    while waiting:
        pid = waiting.pop()
        name = names.get(pid, "")
        part = "JVM" if "java" in name.partition("\0")[0] else "broker" if "\0tailrace\0" in name else "Python"
        own, buried = ticks.get(pid, (0.0, 0.0))
        parts[part] += own
        parts["Python"] += buried
        waiting += [child for child, parent in parents.items() if parent == pid]
    return parts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_cpu", description="CPU of queries in Spark.")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median is told (default 3)")
    parser.add_argument("--rows", type=int, default=200_000, help="of each topic (default 200000)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="rows whose name has this in it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
