"""The shop as a graph that Spark runs: from a topic a table of orders, a view of it, and a topic of revenue."""

import os
import sys
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

sys.path.insert(0, str(Path(__file__).parents[2] / "pipelines"))

import shop

BOOTSTRAP = os.environ.get("TAILRACE_BOOTSTRAP", "127.0.0.1:9092")


def order_records() -> DataFrame:
    return (
        SparkSession.getActiveSession()
        .readStream.format("tailrace")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("value.format", "json")
        .option("value.schema", shop.ORDER)
        .option("onDecodeError", "null")
        .load()
    )


@dp.table
def orders() -> DataFrame:
    return shop.order_rows(order_records())


@dp.materialized_view
def revenue_by_product() -> DataFrame:
    orders = SparkSession.getActiveSession().read.table("orders")
    return orders.groupBy("product").agg(sf.sum("amount").alias("revenue"))


dp.create_sink("revenue", "tailrace", {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "revenue"})


# From the topic, not from the table: Spark resolves a watermark at once, when the table is not there yet.
@dp.append_flow(target="revenue")
def revenue_by_minute() -> DataFrame:
    minutes = shop.revenue(order_records())
    return minutes.select(sf.col("product").alias("key"), sf.to_json(sf.struct("*")).alias("value"))
