"""A topic as a DataFrame: `spark.read.format("tailrace")`.

Spark keeps what a source in Python has planned for as long as the DataFrame lives that was loaded, filters and all. A
plan that leaves out what a filter does not want would serve other queries of the same DataFrame as well, and two that
are in one query: rows would be missing without a word. So filters change the plan only where the caller says, by the
option `pushFilters`, that this DataFrame has but one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tailrace.spark.blocking import kept_cluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.pyspark_api import HAS_STREAMS, Filter
from tailrace.spark.source.filters import PushedFilters
from tailrace.spark.source.planning import Planning, plan_batch
from tailrace.spark.source.reading import SplitReading, task_inputs
from tailrace.spark.source.schema import check_schema, parse_record_format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TopicReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = ReadOptions.parse(options, is_stream=False)
        self._record_format = parse_record_format(options)
        check_schema(schema, self._options.columns, self._record_format)
        self._filters = PushedFilters()
        if self._options.pushes_filters:
            self.pushFilters = _PushFilters(self._filters)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with kept_cluster(options.kafka) as blocking, closing(Planning(blocking, options)) as planning:
            if self._record_format is not None:
                self._record_format.check_dead_letter_topic(blocking, options.kafka)
            splits = blocking.run(plan_batch(planning.lookup, options, self._filters, planning.tier))
            return task_inputs(splits, options, planning.lookup.known_topics.ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        times = self._filters.timestamps_us
        return SplitReading(self._options, self._record_format, times if times.is_bounded else None).read(partition)


class _PushFilters:
    """Spark refuses to read from a source with a method `pushFilters` unless spark.sql.python.filterPushdown.enabled is
    set, so that no source is surprised. We do without as well: Spark applies the filters itself then. So this looks as
    if it had not been overridden, and is called where filters are pushed."""

    if HAS_STREAMS:  # PySpark 4.0 pushes none.
        __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, filters: PushedFilters) -> None:
        self._filters = filters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Gives back those that Spark has to apply."""
        return [each for each in filters if not self._filters.push(each)]
