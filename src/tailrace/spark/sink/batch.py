"""`df.write.format("tailrace")`: each task writes its rows and waits until they are acknowledged.

A task that fails raises, and Spark runs it again: what its first attempt has written stays, so this sink is
at-least-once. Within an attempt every record is stored once (an idempotent producer). `exactlyOnce` is another writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.sink.columns import plan_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tailrace.spark.sink.written import Written


def batch_writer(schema: StructType, options: WriteOptions, *, overwrite: bool) -> DataSourceArrowWriter:
    """Raises SinkSchemaError and OptionError, when the query is planned."""
    if overwrite:
        raise OptionError(
            "save mode overwrite is not possible: a topic is only ever added to. Use .mode('append'), and delete and "
            "create the topic first if it is to be written anew"
        )
    options = plan_columns(schema, options)
    if options.exactly_once:
        from tailrace.spark.sink.exactly_once import writers

        return writers.batch_writer(options)
    return _BatchWriter(options)


class _BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        from tailrace.spark.sink.task import write_idempotently  # 0.3 s of numpy and Arrow, not for the planner

        return write_idempotently(iterator, self._options)
