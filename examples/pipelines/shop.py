"""Transforms of a shop's orders, DataFrame -> DataFrame: of the pipelines here and of examples/declarative."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

ORDER = "id STRING, product STRING, amount DOUBLE, at TIMESTAMP"


def order_rows(records: DataFrame) -> DataFrame:
    """From records of the topic, whose values are decoded, to a table of orders."""
    return records.where("value.amount > 0").select("value.*", "partition", "offset")


def revenue_by_minute(orders: DataFrame) -> DataFrame:
    """An order that comes more than a minute after one with a later time is left out."""
    minutes = orders.withWatermark("at", "1 minute").groupBy(sf.window("at", "1 minute"), "product")
    return minutes.agg(sf.sum("amount").alias("revenue"), sf.count("*").alias("orders")).select(
        sf.col("window.start").alias("minute"), "product", "revenue", "orders"
    )


def revenue(records: DataFrame) -> DataFrame:
    return revenue_by_minute(order_rows(records))
