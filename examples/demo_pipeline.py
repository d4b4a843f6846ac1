"""The second half of `make demo`: orders flow through Spark while a broker and a pipeline are killed, and an audit
shows that each one arrived exactly once.

Orders go to a topic; one pipeline lands them in a table, a second one keeps the last order of each customer in another
table, which gets a column meanwhile, and a third adds them up by minute into a topic. What is shown are the files and
commands that anyone would write.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from tailrace.testing import Cluster

ORDERS, REVENUE = "orders", "revenue"
PRODUCTS = ("mill wheel", "paddle", "sluice gate")
CUSTOMERS = 97
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

KEEP_LAST = """\
name = "keep-last-orders"
bootstrap = "{bootstrap}"
checkpoint = "{folder}/last-checkpoint"

[sources.orders]
topic = "orders"
format = "json"
schema = "id BIGINT, product STRING, amount DOUBLE, at TIMESTAMP"
batch_records_max = 20000

[transform]
sql = "SELECT CAST(key AS STRING) AS customer, {columns}, partition, offset FROM orders"

[sink]
table = "{folder}/last-orders"
format = "delta"
merge_on = ["customer"]
evolve = "add"
omit = ["partition", "offset"]
"""
FIRST_COLUMNS, LATER_COLUMNS = "value.id, value.amount", "value.id, value.amount, value.product"

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
                try:
                    self._producer.produce(ORDERS, order(number), str(number % CUSTOMERS), on_delivery=self._delivered)
                except BufferError:  # The brokers are slower than the shop.
                    break
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
    """Orders are sold all the while. Both pipelines are killed twice, a broker once; gives the number of orders."""
    shop = Shop(cluster.bootstrap)
    land, last = folder / "land.toml", folder / "last.toml"
    land.write_text(LAND.format(bootstrap=cluster.bootstrap, folder=folder))
    show(f"$ cat {land.name}\n{LAND.format(bootstrap=cluster.bootstrap, folder='/data').strip()}")
    keep_last = KEEP_LAST.format(bootstrap=cluster.bootstrap, folder="/data", columns=FIRST_COLUMNS)
    show(f"$ cat {last.name}     # a row for each customer, replaced by the next order\n{keep_last.strip()}")
    declare_last(cluster, folder, FIRST_COLUMNS)
    with running([land, last], expect) as done:
        show(f"{done} batches are in the tables; kill -9 of both pipelines, in the middle of the next")
    declare_last(cluster, folder, LATER_COLUMNS)
    before = shop.acked
    cluster.kill(1)
    show(f"kill -9 of broker 1, after {before:,} acknowledged orders")
    show(f"the orders of {last.name} get a column: {LATER_COLUMNS}")
    with running([land, last], expect) as done:
        show(f"{done} batches more, in a table that has grown; kill -9 of both once more")
    expect(shop.acked > before + 2 * ORDERS_PER_SECOND, "the producer hangs without broker 1")
    cluster.start(1)
    acked = shop.close(expect)
    show(f"  the producer went on; broker 1 is back; {acked:,} orders were acknowledged")
    return acked


def declare_last(cluster: Cluster, folder: Path, columns: str) -> None:
    text = KEEP_LAST.format(bootstrap=cluster.bootstrap, folder=folder, columns=columns)
    (folder / "last.toml").write_text(text)


@contextmanager
def running(files: list[Path], expect: Expect) -> Iterator[int]:
    """Pipelines in one session, once each of them has done two batches; gives how many they have done. At the end they
    are dead, by SIGKILL."""
    folder = files[0].parent
    metrics, log = folder / "metrics.jsonl", folder / "pipeline.log"
    metrics.unlink(missing_ok=True)
    words = [*map(str, files), "--metrics", str(metrics)]
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tailrace", "pipeline", "run", *words]
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + WAIT_S
        while min((batches := batches_in(metrics, len(files))), default=0) < 2:
            is_well = time.monotonic() < deadline and process.poll() is None
            expect(is_well, f"the pipelines hang, or have died; their log ends with:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield sum(batches)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def batches_in(metrics: Path, pipelines: int) -> list[int]:
    """Of each pipeline that has done one, and 0 as long as one has done none."""
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    counts = Counter(json.loads(line)["pipeline"] for line in lines)
    return [*counts.values()] if len(counts) == pipelines else [0]


def finish_and_audit(cluster: Cluster, folder: Path, acked: int, show: Show, expect: Expect) -> None:
    from tailrace.spark import session
    from tailrace.spark.audit import Audit, TableSide, TopicSide, run_audit
    from tailrace.spark.charts import save_chart
    from tailrace.spark.pipelines import Pipeline, load, run

    begun = time.monotonic()
    spark = session("demo", settings={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    show(f"a SparkSession after {time.monotonic() - begun:.1f} s; all three pipelines run to the end of the topic:")
    add_up = folder / "add-up.toml"
    add_up.write_text(ADD_UP.format(bootstrap=cluster.bootstrap, folder=folder))
    for file in (folder / "land.toml", folder / "last.toml", add_up):
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
    check_last_orders(folder / "last-orders", acked, show, expect)
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


def check_last_orders(table: Path, acked: int, show: Show, expect: Expect) -> None:
    """By Delta's own library: the row of each customer is that of the last order, all of its columns."""
    from deltalake import DeltaTable

    found = {row["customer"]: row for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist()}
    last = {}
    for number in range(max(0, acked - CUSTOMERS), acked):
        wanted = json.loads(order(number))
        del wanted["at"]
        last[str(number % CUSTOMERS)] = {"customer": str(number % CUSTOMERS)} | wanted
    wrong = [customer for customer in last.keys() | found.keys() if last.get(customer) != found.get(customer)]
    expect(not wrong, f"customers whose last order is not in the table: {wrong[:3]}")
    show(f"{len(found)} customers in the table of last orders, each with its last one, and the column that came later")
