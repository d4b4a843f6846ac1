"""What of PySpark's API differs between the versions that we run on.

PySpark 4.0 pushes no filters, so a class stands in for theirs that nothing is an instance of; and streams are refused
there before their writer is made (`datasource`).
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

HAS_STREAMS = hasattr(datasource, "DataSourceStreamArrowWriter")

if TYPE_CHECKING or HAS_STREAMS:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        IsNotNull,
        LessThan,
        LessThanOrEqual,
        Not,
        StringContains,
        StringEndsWith,
        StringStartsWith,
    )
else:
    DataSourceStreamArrowWriter = datasource.DataSourceStreamWriter
    Filter = type("Filter", (), {})
    EqualNullSafe = EqualTo = GreaterThan = GreaterThanOrEqual = In = IsNotNull = Filter
    LessThan = LessThanOrEqual = Not = StringContains = StringEndsWith = StringStartsWith = Filter

# Until 4.1 times are in UTC unless one says otherwise.
_IN_UTC = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}


def arrow_type_of(spark_type: DataType) -> pa.DataType:
    """With instants in UTC."""
    return to_arrow_type(spark_type, **_IN_UTC)  # type: ignore[arg-type]


__all__ = [
    "HAS_STREAMS",
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "IsNotNull",
    "LessThan",
    "LessThanOrEqual",
    "Not",
    "StringContains",
    "StringEndsWith",
    "StringStartsWith",
    "arrow_type_of",
]
