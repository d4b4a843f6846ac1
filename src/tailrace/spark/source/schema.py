"""The columns of a topic, as Spark's own Kafka connector has them, unless options change some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.options.names import VALUES, check_names
from tailrace.spark.options.read import parse_columns, parse_subscription
from tailrace.spark.options.tier import needs_brokers

if TYPE_CHECKING:
    from tailrace.spark.values import RecordFormat

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


def topic_schema(options: Mapping[str, str]) -> StructType:
    """Raises OptionError for what is wrong in a batch and in a stream alike: Spark asks for the schema when it loads
    the source, and says later which of them it is."""
    check_names(options)
    parse_kafka_settings(options, needs_brokers=needs_brokers(options))
    parse_subscription(options)
    return _schema(parse_columns(options), parse_record_format(options))


def parse_record_format(options: Mapping[str, str]) -> RecordFormat | None:
    """How keys and values are decoded; None if they stay bytes. Raises OptionError."""
    if not any(name.lower() in options for name in VALUES):
        return None
    from tailrace.spark.values import RecordFormat

    found = RecordFormat.parse(options)
    if found is not None:
        found.check_subscription(parse_subscription(options))
    return found


def check_schema(given: StructType, columns: Sequence[str], record_format: RecordFormat | None) -> None:
    """What the caller demanded with schema(), if they did, must be what the options give."""
    ours = _schema(columns, record_format)
    if given.simpleString() != ours.simpleString():
        raise OptionError(
            f"the schema cannot be chosen: it is {ours.simpleString()}, and {given.simpleString()} was asked for; use "
            "the option columns to leave some out, and value.format with value.schema to have values decoded"
        )


def _schema(columns: Sequence[str], record_format: RecordFormat | None) -> StructType:
    types = dict(_TYPES)
    if record_format is not None:
        types |= {name: found for name in ("key", "value") if (found := record_format.spark_type(name)) is not None}
    return StructType([StructField(name, types[name]) for name in columns])
