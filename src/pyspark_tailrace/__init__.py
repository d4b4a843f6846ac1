"""Spark looks for a package of this name when a query says format("tailrace"), and for this name in it."""

from tailrace.spark.datasource import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
