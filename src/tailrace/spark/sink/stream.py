"""`df.writeStream.format("tailrace")`: as in batch, each task writes and waits until all is acknowledged.

A micro-batch that fails is run again, and what it had written stays: at-least-once. `exactlyOnce` is another writer.
Complete mode adds to the topic too: what it puts out again are newer versions of rows, by key. Update mode is refused
by Spark, for every data source in Python: use foreachBatch and a batch write there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.spark.options.write import WriteOptions
from tailrace.spark.pyspark_api import DataSourceStreamArrowWriter
from tailrace.spark.sink.columns import plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tailrace.spark.sink.written import Written


def stream_writer(schema: StructType, options: WriteOptions) -> DataSourceStreamArrowWriter:
    """Raises SinkSchemaError, when the query is planned."""
    options = plan_columns(schema, options)
    if options.exactly_once:
        from tailrace.spark.sink.exactly_once import writers

        return writers.stream_writer(options)
    return _StreamWriter(options)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from tailrace.spark.sink.task import write_idempotently  # 0.3 s of numpy and Arrow, not for the planner

        return write_idempotently(iterator, self._options)
