"""The columns by which a table is laid out: parts of a time become columns of their own.

Parquet and Delta know only columns, so `day(created)` is a column `created_day` there. Iceberg computes it itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.declaration import DeclarationError, Partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Months and hours are texts that sort like the times they stand for.
_FORMATS = {"month": "yyyy-MM", "hour": "yyyy-MM-dd-HH"}


def partition_rows(rows: DataFrame, partitions: Sequence[Partition]) -> DataFrame:
    check_partitions(rows, partitions)
    for partition in partitions:
        if partition.unit is not None:
            rows = rows.withColumn(partition.name, part_of_time(partition))
    return rows


def part_of_time(partition: Partition) -> Column:
    from pyspark.sql import functions

    if partition.unit == "day":
        return functions.to_date(partition.column)
    if partition.unit == "year":
        return functions.year(partition.column)
    return functions.date_format(partition.column, _FORMATS[str(partition.unit)])


def check_partitions(rows: DataFrame, partitions: Sequence[Partition]) -> None:
    types = dict(rows.dtypes)
    for partition in partitions:
        found = types.get(partition.column)
        if found is None:
            raise DeclarationError(f"no column {partition.column} to partition by: there are {', '.join(types)}")
        if partition.unit is not None and found not in ("timestamp", "timestamp_ntz", "date"):
            raise DeclarationError(f"{partition.unit}({partition.column}) needs a time, and the column is {found}")
