"""The state of a cluster as tables: topics, partitions, groups and the offsets that groups have committed."""

from tailrace.spark.tables.reader import TableReader, table_schema

__all__ = ["TableReader", "table_schema"]
