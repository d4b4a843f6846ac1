"""How long a record takes from its producer into the sink of a stream: ours beside Spark's own connector.

    python -m bench.spark_latency [--partitions 1 8 64] [--triggers 0 1] [--seconds 20]

Records that hold the time when they were written come evenly, over time and partitions. A stream collects each
micro-batch in foreachBatch: what lies between is planning, the tasks, and their results. Both streams run one after the
other on the same topic and broker, and what comes in the first seconds does not count.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from bench.maven import bring_jars
from bench.spark_cpu import DEADLINE_S, FORMATS, POM, cpu_s
from tailrace.spark import session
from tailrace.testing import Broker

RECORDS_PER_S = 50
WARM_UP_S = 8.0


def main() -> None:
    options = _options()
    jars = ",".join(map(str, bring_jars(POM, "spark-java").glob("*.jar")))
    print(f"load {os.getloadavg()[0]:.1f}, {RECORDS_PER_S} records/s, {options.seconds} s each")
    print("| partitions | trigger | ours p50, p99 ms | Spark's connector p50, p99 ms | CPU s a batch: ours, theirs |")
    print("|---|---|---|---|---|", flush=True)
    with Broker(start_timeout_s=60) as broker:
        spark = session("latency", master="local[2]", settings={"spark.jars": jars, "spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        for partitions in options.partitions:
            topic = f"latency-{partitions}"
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)
            for form in FORMATS:  # The first query of each is slow, as the JVM is cold.
                measured(spark, form, Place(broker.bootstrap, topic, 0, 1))
            for trigger_s in options.triggers:
                place = Place(broker.bootstrap, topic, trigger_s, options.seconds)
                (ours, our_cpu), (theirs, their_cpu) = [measured(spark, form, place) for form in FORMATS]
                row = partitions, f"{trigger_s} s", text(ours), text(theirs), f"{our_cpu:.2f}, {their_cpu:.2f}"
                print(f"| {' | '.join(map(str, row))} |", flush=True)
        spark.stop()


class Place(NamedTuple):
    bootstrap: str
    topic: str
    trigger_s: int
    seconds: float


def measured(spark: SparkSession, form: str, place: Place) -> tuple[list[float], float]:
    """Milliseconds of each record, and CPU seconds of a batch."""
    delays_ms: list[float] = []
    begun = time.time()
    batches = 0

    def take(rows: DataFrame, _: int) -> None:
        nonlocal batches
        # What the sink takes; then when each of its rows was written.
        written = [float(row.value) for row in rows.select("value").collect()]
        now = time.time()
        batches += 1
        delays_ms.extend((now - at) * 1000 for at in written if at > begun + WARM_UP_S)

    settings = {"kafka.bootstrap.servers": place.bootstrap, "subscribe": place.topic}
    rows = spark.readStream.format(form).options(**settings).load()
    with tempfile.TemporaryDirectory(prefix="tailrace-latency-") as folder, _Producing(place.bootstrap, place.topic):
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", folder)
        query = writer.trigger(processingTime=f"{place.trigger_s} seconds").start()
        try:
            time.sleep(WARM_UP_S)
            cpu, before = cpu_s(), batches
            time.sleep(place.seconds)
            cpu, done = cpu_s() - cpu, batches - before
        finally:
            query.stop()
    return delays_ms, cpu / max(1, done)


class _Producing:
    """Records one by one, evenly over time and partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(1 / RECORDS_PER_S):
            self._producer.produce(self._topic, str(time.time()))
            self._producer.poll(0)
        self._producer.flush(DEADLINE_S)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def text(delays_ms: Sequence[float]) -> str:
    if len(delays_ms) < 100:
        return f"{len(delays_ms)} records only"
    return f"{statistics.median(delays_ms):.0f}, {statistics.quantiles(delays_ms, n=100)[98]:.0f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_latency", description="Latency of streams in Spark.")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--triggers", type=int, nargs="+", default=[0, 1], metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=20, help="of each figure (default 20)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
