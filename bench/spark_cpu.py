"""Processor time of queries in Spark: ours beside Spark's own connector, JVM, Python and broker together.

    python -m bench.spark_cpu [--rounds 3] [--rows 200000] [--only PART_OF_A_NAME ...]

A figure is CPU seconds of this process, the broker and all that both have started, for a whole query. Ours and Spark's
take turns on the same topic and broker, and the first round does not count. Time that a busy machine takes away from a
query is not in it, so it holds where the clock does not.
"""

import argparse
import ctypes
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
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
    Row("to Parquet, 100 B, 8 partitions", 8, 100, to_parquet),
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
        bench = Bench(spark, broker.bootstrap, options.rows)
        topics: dict[tuple[int, int], str] = {}
        for row in chosen:
            place = row.partitions, row.value_bytes
            if place not in topics:
                topics[place] = fill(broker, options.rows, *place)
            print(measured(bench, row, topics[place], options.rounds), flush=True)
        spark.stop()


def measured(bench: Bench, row: Row, topic: str, rounds: int) -> str:
    spent: dict[str, list[tuple[float, float]]] = {form: [] for form in FORMATS}
    for turn in range(rounds + 1):
        for form in FORMATS:
            cpu, clock = cpu_s(), time.perf_counter()
            row.run(bench, form, topic)
            if turn:
                spent[form].append((cpu_s() - cpu, time.perf_counter() - clock))
    (ours, our_s), (theirs, their_s) = (
        [statistics.median(each) for each in zip(*spent[form], strict=True)] for form in FORMATS
    )
    ratio = f"{theirs / ours:.2f} ({their_s / our_s:.2f})"
    return f"| {row.name} | {ours:.2f} ({our_s:.2f}) | {theirs:.2f} ({their_s:.2f}) | {ratio} |"


def drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def fill(broker: Broker, rows: int, partitions: int, value_bytes: int) -> str:
    topic = f"rows-{partitions}-{value_bytes}"
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
    parents, ticks = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += [child for child, parent in parents.items() if parent == pid]
    return total / os.sysconf("SC_CLK_TCK")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_cpu", description="CPU of queries in Spark.")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median is told (default 3)")
    parser.add_argument("--rows", type=int, default=200_000, help="of each topic (default 200000)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="rows whose name has this in it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
