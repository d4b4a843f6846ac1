"""What Spark finds under format("tailrace"): tells by the options which of our readers and writers is meant.

Spark makes one of these in each process that plans or runs a part of a query, so it keeps nothing but the options, and
imports only what its caller needs. Option names arrive in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from tailrace.spark.options.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamWriter, DataSourceWriter, InputPartition
    from pyspark.sql.types import StructType

# When a table in a catalog is created, Spark 4.3 hands all its properties, such as its provider, to `schema`. When the
# table is read, it hands none of its options to `reader`.
_NO_CREATE_TABLE = (
    "CREATE TABLE ... USING tailrace cannot work: Spark loses the options of such a table if its source is written in "
    "Python; use CREATE TEMPORARY VIEW name USING tailrace OPTIONS (...) instead"
)


_NO_STREAM = (
    "streams from topics need PySpark 4.2 or newer, and this is {}: it asks sources in Python for their latest offsets "
    "without saying where the last batch ended and how much the next may take. Batch queries (spark.read) and writing "
    "work here"
)


class OldSparkStream(DataSourceStreamReader):
    """In the place of a reader that this PySpark has no API for."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 (Spark's names)
        raise self._error

    def latestOffset(self, *_: object) -> dict[str, object]:  # noqa: N802
        raise self._error

    def partitions(self, *_: object) -> Sequence[InputPartition]:
        raise self._error

    def read(self, *_: object) -> Iterator[tuple[object, ...]]:
        raise self._error

    @property
    def _error(self) -> OptionError:
        return OptionError(_NO_STREAM.format(pyspark.__version__))


class TailraceDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tailrace"

    def schema(self) -> StructType:
        options = dict(self.options)
        if "provider" in options:
            raise OptionError(_NO_CREATE_TABLE)
        if "table" in options:
            from tailrace.spark.tables import table_schema

            return table_schema(options)
        from tailrace.spark.source.schema import topic_schema

        return topic_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = dict(self.options)
        if "table" in options:
            from tailrace.spark.tables import TableReader

            return TableReader(options)
        from tailrace.spark.source.batch import TopicReader

        return TopicReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        if find_spec("pyspark.sql.streaming.datasource") is None:
            return OldSparkStream()
        from tailrace.spark.source.stream import RefusedStream, TopicStreamReader

        try:
            return TopicStreamReader(dict(self.options), schema)
        except OptionError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tailrace.spark.options.write import WriteOptions
        from tailrace.spark.sink.batch import batch_writer

        return batch_writer(schema, WriteOptions.parse(dict(self.options)), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 (Spark's)
        from tailrace.spark.options.write import WriteOptions
        from tailrace.spark.pyspark_api import HAS_STREAMS
        from tailrace.spark.sink.stream import stream_writer

        if not HAS_STREAMS:
            raise OptionError(_NO_STREAM.format(pyspark.__version__))

        # In complete mode Spark asks for the old output to be replaced; in a topic newer records stand for that.
        return stream_writer(schema, WriteOptions.parse(dict(self.options)))
