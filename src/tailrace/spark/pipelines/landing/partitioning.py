"""The columns by which a table is laid out: parts of a time become columns of their own.

Parquet and Delta know only columns, so `day(created)` is a column `created_day` there. Iceberg computes it itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.declaration import DeclarationError, Partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def partition_rows(rows: DataFrame, partitions: Sequence[Partition]) -> DataFrame:
    check_partitions(rows, partitions)
    for partition in partitions:
        if partition.unit is not None:
            rows = rows.withColumn(partition.name, part_of_time(rows, partition))
    return rows


def part_of_time(rows: DataFrame, partition: Partition) -> Column:
    """The year, month, day or hour of an instant in UTC, as Iceberg has it, whatever the session's time zone. Months
    and hours are texts that sort like the times they stand for."""
    from pyspark.sql import functions as sf

    column = sf.col(partition.column)
    if dict(rows.dtypes)[partition.column] == "timestamp":
        hours = sf.floor(sf.unix_micros(column) / sf.lit(3_600_000_000))
        day = sf.date_add(sf.lit("1970-01-01").cast("date"), sf.floor(hours / 24).cast("int"))
        hour = sf.pmod(hours, sf.lit(24))
    else:
        day, hour = sf.to_date(column), sf.hour(column)
    match partition.unit:
        case "year":
            return sf.year(day)
        case "month":
            return sf.date_format(day, "yyyy-MM")
        case "day":
            return day
    return sf.concat(day.cast("string"), sf.lit("-"), sf.lpad(hour.cast("string"), 2, "0"))


def check_partitions(rows: DataFrame, partitions: Sequence[Partition]) -> None:
    types = dict(rows.dtypes)
    for partition in partitions:
        found = types.get(partition.column)
        if found is None:
            raise DeclarationError(f"no column {partition.column} to partition by: there are {', '.join(types)}")
        if partition.unit is not None and found not in ("timestamp", "timestamp_ntz", "date"):
            raise DeclarationError(f"{partition.unit}({partition.column}) needs a time, and the column is {found}")
