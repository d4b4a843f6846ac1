"""The second half of `make demo`: orders flow through Spark while a broker and a pipeline are killed, and an audit
shows that each one arrived exactly once.

Orders go to a topic; one pipeline lands them in a table, another adds them up by minute into a topic. What is shown are
the files and commands that anyone would write.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from tailrace.testing import Cluster

ORDERS, REVENUE = "orders", "revenue"
PRODUCTS = ("mill wheel", "paddle", "sluice gate")
ORDERS_PER_SECOND = 2_000
# One order for each 50 ms of a working day that began at this time: 1,200 in each minute.
DAY_BEGAN_MS = 1_767_254_400_000
ORDER_MS = 50
PICTURE = Path("build") / "revenue.svg"
WAIT_S = 120.0

LAND = """\
name = "land-orders"
bootstrap = "{bootstrap}"
checkpoint = "{folder}/land-checkpoint"

[sources.orders]
topic = "orders"
format = "json"
schema = "id BIGINT, product STRING, amount DOUBLE, at TIMESTAMP"
group = "land-orders"
batch_records_max = 20000

[transform]
sql = "SELECT value.*, partition, offset FROM orders"

[sink]
table = "{folder}/orders"
format = "parquet"
"""

ADD_UP = """\
name = "add-up-orders"
bootstrap = "{bootstrap}"
checkpoint = "{folder}/revenue-checkpoint"

[sources.orders]
topic = "orders"
format = "json"
schema = "id BIGINT, product STRING, amount DOUBLE, at TIMESTAMP"
time = "value.at"
watermark = "1 minute"

[transform]
sql = '''
SELECT window(event_time, '1 minute').start AS minute, value.product AS product,
       sum(value.amount) AS revenue, count(*) AS orders
FROM orders GROUP BY window(event_time, '1 minute'), value.product
'''

[sink]
topic = "revenue"
format = "json"
key = "product"
"""

Show = Callable[[str], None]
Expect = Callable[[bool, str], None]


class Shop:
    """A client that knows nothing of us sends orders, at a steady rate, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.acked = 0
        self._failed: list[object] = []
        self._is_closed = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        )
        self._thread = threading.Thread(target=self._sell, daemon=True)
        self._thread.start()

    def close(self, expect: Expect) -> int:
        """How many orders were acknowledged, which is all of them."""
        self._is_closed.set()
        self._thread.join()
        expect(self._producer.flush(WAIT_S) == 0, "the producer hangs")
        expect(not self._failed, f"orders were not delivered: {self._failed[:3]}")
        return self.acked

    def _sell(self) -> None:
        number, begun = 0, time.monotonic()
        while not self._is_closed.is_set():
            while number < (time.monotonic() - begun) * ORDERS_PER_SECOND:
                self._producer.produce(ORDERS, order(number), str(number % 97), on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.005)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acked += 1
        else:
            self._failed.append(error)


def order(number: int) -> bytes:
    second, millisecond = divmod(DAY_BEGAN_MS + number * ORDER_MS, 1000)
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{millisecond:03}Z"
    # Dearer in the middle of each hour, so that the picture has a shape.
    amount = (number * 7919 % 100) / 10 + abs((number // 600) % 40 - 20)
    return json.dumps({"id": number, "product": PRODUCTS[number % 3], "amount": amount, "at": at}).encode()


def pipelines_under_fire(cluster: Cluster, folder: Path, show: Show, expect: Expect) -> int:
    """Orders are sold all the while. The landing pipeline is killed, a broker is killed; returns how many there are."""
    shop = Shop(cluster.bootstrap)
    land = folder / "land.toml"
    land.write_text(LAND.format(bootstrap=cluster.bootstrap, folder=folder))
    show(f"$ cat {land.name}\n{LAND.format(bootstrap=cluster.bootstrap, folder='/data').strip()}")
    show(f"$ tailrace pipeline run {land.name}")
    metrics = folder / "metrics.jsonl"
    command = [sys.executable, "-m", "tailrace", "pipeline", "run", str(land), "--metrics", str(metrics)]
    with (folder / "pipeline.log").open("wb") as log:
        pipeline = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: batches_in(metrics) >= 2, lambda: pipeline.poll() is None, expect, folder / "pipeline.log")
        show(f"{batches_in(metrics)} batches are in the table; kill -9 of the pipeline, in the middle of the next")
    finally:
        if pipeline.poll() is None:
            os.killpg(pipeline.pid, signal.SIGKILL)
            pipeline.wait()
    before = shop.acked
    cluster.kill(1)
    show(f"kill -9 of broker 1, after {before:,} acknowledged orders")
    wait_until(lambda: shop.acked > before + 2 * ORDERS_PER_SECOND, lambda: True, expect)
    cluster.start(1)
    acked = shop.close(expect)
    show(f"  the producer went on; broker 1 is back; {acked:,} orders were acknowledged")
    return acked


def finish_and_audit(cluster: Cluster, folder: Path, acked: int, show: Show, expect: Expect) -> None:
    from tailrace.spark import session
    from tailrace.spark.audit import Audit, TableSide, TopicSide, run_audit
    from tailrace.spark.charts import save_chart
    from tailrace.spark.pipelines import Pipeline, load, run

    begun = time.monotonic()
    spark = session("demo", settings={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    show(f"a SparkSession after {time.monotonic() - begun:.1f} s; both pipelines run to the end of the topic:")
    add_up = folder / "add-up.toml"
    add_up.write_text(ADD_UP.format(bootstrap=cluster.bootstrap, folder=folder))
    for file in (folder / "land.toml", add_up):
        pipeline = load(file)
        assert isinstance(pipeline, Pipeline)
        done = run(pipeline, spark, once=True)
        batches = "1 batch" if done.batches == 1 else f"{done.batches} batches"
        show(f"$ tailrace pipeline run {file.name} --once\n  {done.rows:,} records in {batches}")
    audit = Audit(
        TopicSide(ORDERS, cluster.bootstrap, by=("get_json_object(CAST(value AS STRING), '$.id')",), order_by=()),
        TableSide(str(folder / "orders"), by=("CAST(id AS STRING)",), partition="partition", offset="offset"),
        name="orders against the table",
    )
    report = run_audit(audit, spark)
    show(f"$ tailrace audit orders {folder.name}/orders\n{report.text().rstrip()}")
    expect(report.is_clean, "the audit found differences")
    table = spark.read.parquet(str(folder / "orders"))
    expect(table.count() == acked, f"{table.count()} rows in the table, {acked} orders were acknowledged")
    revenue = (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", REVENUE)
        .option("value.format", "json")
        .option("value.schema", "minute TIMESTAMP, product STRING, revenue DOUBLE, orders BIGINT")
        .load()
        .select("value.*")
        .cache()
    )
    told = {(row.minute, row.product): row.orders for row in revenue.collect()}
    rows = table.groupBy("product", (table.at.cast("long") / 60).cast("long").alias("m")).count().collect()
    counted = {(row.m, row.product): row["count"] for row in rows}
    wrong = [key for key, count in told.items() if counted.get((int(key[0].timestamp()) // 60, key[1])) != count]
    expect(bool(told) and not wrong, f"minutes that were added up wrong: {wrong[:3]}")
    PICTURE.parent.mkdir(exist_ok=True)
    save_chart(revenue, PICTURE, value="revenue", time="minute", series="product", title="Revenue by minute")
    show(f"{len(told)} sums of a product and a minute in topic {REVENUE}, each equal to the table's; drawn: {PICTURE}")
    spark.stop()


def batches_in(metrics: Path) -> int:
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def wait_until(
    is_done: Callable[[], bool], is_alive: Callable[[], bool], expect: Expect, log: Path | None = None
) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        told = f"; its log ends with:\n{log.read_text()[-2000:]}" if log else ""
        expect(time.monotonic() < deadline and is_alive(), f"the demo hangs, or a part of it has died{told}")
        time.sleep(0.1)
