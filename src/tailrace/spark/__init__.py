"""The data pipeline on Spark: topics as DataFrames, exactly-once tables and topics, backfill, audit."""

from tailrace.spark.session import session

__all__ = ["session"]
