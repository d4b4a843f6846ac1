"""Keys and values of records as columns: JSON, Avro and strings, and what becomes of records that are none of these."""

from tailrace.spark.values.errors import DecodeError
from tailrace.spark.values.record_format import RecordFormat

__all__ = ["DecodeError", "RecordFormat"]
