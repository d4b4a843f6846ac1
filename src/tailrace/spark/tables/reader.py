"""`option("table", NAME)`: one task asks the cluster when the query runs, so a view over it is always of now.

It uses nothing but Kafka's Admin requests, and so works on any Kafka. The rows of one query are not one snapshot: the
cluster goes on while it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.options.names import TABLE, check_names, warn_of_unused
from tailrace.spark.tables.groups import CONSUMER_OFFSETS, GROUPS
from tailrace.spark.tables.table import Row, SystemTable
from tailrace.spark.tables.topics import PARTITIONS, TOPIC_IDS, TOPICS

TABLES: dict[str, SystemTable] = {
    "topics": TOPICS,
    "topic_ids": TOPIC_IDS,
    "partitions": PARTITIONS,
    "groups": GROUPS,
    "consumer_offsets": CONSUMER_OFFSETS,
}


def table_schema(options: Mapping[str, str]) -> StructType:
    """Raises OptionError."""
    return TABLES[_table_name(options)].schema


class TableReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises OptionError."""
        check_names(options)
        warn_of_unused(options, TABLE, purpose="a system table")
        self._name = _table_name(options)
        self._settings = parse_kafka_settings(options)

    def read(self, partition: InputPartition) -> Iterator[Row]:  # noqa: ARG002 (there is only one)
        with BlockingCluster(self._settings) as blocking:
            cluster = blocking.cluster
            read = TABLES[self._name].read
            timeout_ms = self._settings.limits.request_timeout_ms
            rows = blocking.run(cluster.with_retries(lambda: read(cluster), timeout_ms=timeout_ms))
        return iter(rows)


def _table_name(options: Mapping[str, str]) -> str:
    name = options["table"].strip().lower()
    if name in TABLES:
        return name
    nearest = get_close_matches(name, TABLES, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"the tables are {', '.join(TABLES)}."
    raise OptionError(f"option table is {options['table']!r}, and there is no such table: {hint}")
