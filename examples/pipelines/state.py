"""Transforms that remember, or look something up: of named.toml and spending.toml."""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import TimerValues

BROKERS = "127.0.0.1:9092"


def last_values(spark: SparkSession, topic: str) -> DataFrame:
    """What a compacted topic holds now for each key. A stream that joins it sees what it held when the run began."""
    options = {"kafka.bootstrap.servers": BROKERS, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.read.format("tailrace").options(**options).load()
    last = records.groupBy("key").agg(sf.max_by("value", "offset").alias("value"))
    return last.where("value IS NOT NULL").select(
        sf.col("key").cast("string").alias("key"), sf.col("value").cast("string").alias("value")
    )


def named_orders(orders: DataFrame) -> DataFrame:
    """A product that is not known yet is null, and stays so: the order is written when it comes."""
    names = last_values(orders.sparkSession, "products").withColumnsRenamed({"key": "product", "value": "name"})
    return orders.select("value.*").join(names, "product", "left")


class Spending(StatefulProcessor):
    """The sum for a customer, changed by each order."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total DOUBLE")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        total = self._total.get()[0] if self._total.exists() else 0.0
        total += sum(row.amount for row in rows)
        self._total.update((total,))
        yield Row(customer=key[0], total=total)

    def close(self) -> None:
        pass


def spending(orders: DataFrame) -> DataFrame:
    return (
        orders.select("value.*")
        .groupBy("customer")
        .transformWithState(Spending(), "customer STRING, total DOUBLE", outputMode="Update", timeMode="None")
    )
