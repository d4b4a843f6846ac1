"""CPU of Avro values in Spark: read by a schema registry, beside Spark's own from_avro with a fixed schema.

`python -m bench.spark_avro`. Both read the same topic by the same source, into nowhere; from_avro has the five bytes of
Confluent's prefix cut off first. What is told is processor time of this process, the JVM and the Python workers
together, for a row; the bytes alone are measured too, so that the decoding can be told apart. Rounds take turns, and
the first one does not count.
"""

import json
import os
import random
import statistics
from io import BytesIO
from pathlib import Path

from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import expr

from bench.maven import bring_jars
from tailrace.real.registry.client import RegistryAddress, RegistryClient
from tailrace.schemas.framing import write_prefix
from tailrace.spark import session
from tailrace.testing import Broker

ROWS = 400_000
ROUNDS = 5
TOPIC = "orders"
POM = Path(__file__).with_name("spark_avro_pom.xml")
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "count", "type": "int"},
            {"name": "paid", "type": "boolean"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)


def main() -> None:
    jars = ",".join(map(str, bring_jars(POM, "spark-avro").glob("*.jar")))
    with Broker(registry=True, start_timeout_s=60) as broker:
        fill(broker)
        spark = session("bench", master="local[2]", settings={"spark.jars": jars, "spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        queries = {
            "bytes alone": lambda: source(spark, broker),
            "by the registry": lambda: by_registry(spark, broker),
            "from_avro": lambda: source(spark, broker).select(
                from_avro(expr("substring(value, 6)"), SCHEMA).alias("v")
            ),
        }
        spent: dict[str, list[float]] = {name: [] for name in queries}
        for turn in range(ROUNDS + 1):
            for name, query in queries.items():
                before = cpu_s()
                query().write.format("noop").mode("overwrite").save()
                if turn:
                    spent[name].append((cpu_s() - before) / ROWS * 1e6)
        spark.stop()
    medians = {name: statistics.median(each) for name, each in spent.items()}
    for name, each in spent.items():
        print(f"{name:16} {medians[name]:6.2f} us of CPU a row ({min(each):.2f} to {max(each):.2f})")
    plain = medians["bytes alone"]
    ours, theirs = medians["by the registry"] - plain, medians["from_avro"] - plain
    whole = medians["by the registry"] / medians["from_avro"]
    print(
        f"decoding alone: {ours:.2f} us by the registry, {theirs:.2f} us by from_avro; whole queries: {whole:.2f} times"
    )


def source(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    everything = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC, "columns": "value"}
    return spark.read.format("tailrace").options(**everything | options).load()


def by_registry(spark: SparkSession, broker: Broker) -> DataFrame:
    options = {"value.format": "avro", "schemaRegistryUrl": broker.registry_url}
    return source(spark, broker, **options).select("value.*")


def fill(broker: Broker) -> None:
    client = RegistryClient(RegistryAddress(broker.registry_url))
    prefix = write_prefix(client.register(f"{TOPIC}-value", "AVRO", SCHEMA))
    schema, chance = parse_schema(json.loads(SCHEMA)), random.Random(1)
    values = []
    for number in range(2000):
        stream = BytesIO()
        order = {
            "id": number,
            "customer": f"customer-{chance.randrange(10**6)}",
            "amount": chance.random() * 1000,
            "count": chance.randrange(100),
            "paid": chance.random() < 0.5,
            "note": None if chance.random() < 0.5 else "please ring twice",
            "at": 1_767_225_600_000_000 + number,
            "tags": ["new", "gift"][: chance.randrange(3)],
        }
        schemaless_writer(stream, schema, order)
        values.append(prefix + stream.getvalue())
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 2 * ROWS}
    )
    for number in range(ROWS):
        producer.produce(TOPIC, values[number % len(values)])
    assert producer.flush(120) == 0


def cpu_s() -> float:
    """Of this process and all that it has started, the dead ones included; the broker is left out."""
    parents, ticks = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = 0 if b"tailrace\0up" in command else sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += [child for child, parent in parents.items() if parent == pid and ticks[child]]
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
