"""Delta tables by deltalake (delta-rs): no jar, and object stores by its own storage options.

Delta's log has a place for (application, version) in a commit, and knows the last version of each application: the
application is the query, the version the number of its batch. A second entry, of the pipeline's name, holds the
query's id, so that a pipeline that comes with another checkpoint is found out.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from tailrace.spark.pipelines.declaration import TableSink
from tailrace.spark.pipelines.landing.batches import (
    Batch,
    Compacted,
    LandingError,
    foreign_checkpoint,
    other_partitioning,
)
from tailrace.spark.pipelines.landing.files import FileWriter, WrittenFile, arrow_schema
from tailrace.spark.pipelines.landing.partitioning import partition_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_MISSING = "tables of format delta need the package deltalake: pip install 'tailrace[delta]'"


@dataclass(frozen=True)
class DeltaFolder:
    table: str
    storage_options: Mapping[str, str]

    def create(self, name: str) -> tuple[str, BinaryIO]:
        from deltalake.fs import DeltaStorageHandler

        handler = DeltaStorageHandler(self.table, dict(self.storage_options))
        return name, cast(BinaryIO, handler.open_output_stream(name))


class DeltaLakeTable:
    def __init__(self, sink: TableSink) -> None:
        self._sink = sink
        self._columns = [partition.name for partition in sink.partitions]
        self._schema: pa.Schema | None = None
        self._table: DeltaTable | None = None
        try:
            from deltalake import DeltaTable
        except ImportError:
            raise LandingError(_MISSING) from None
        self._library = DeltaTable

    def open(self, rows: DataFrame) -> None:
        from deltalake import Schema

        self._schema = arrow_schema(self.partitioned(rows))
        table = self._table = self._library.create(
            self._sink.table,
            self._schema,
            mode="ignore",
            partition_by=self._columns or None,
            storage_options=dict(self._sink.options) or None,
        )
        there = {field.name: field.type for field in table.schema().fields}
        given = {field.name: field.type for field in Schema.from_arrow(self._schema).fields}
        if there != given:
            raise LandingError(
                f"the table {self._sink.table} has the columns {_listed(there)}; the pipeline gives {_listed(given)}: "
                "let its transform select what the table has, or alter the table"
            )
        if table.metadata().partition_columns != self._columns:
            raise other_partitioning(self._sink.table, table.metadata().partition_columns, self._columns)

    def landed(self, batch: Batch) -> bool:
        table = self._opened()
        owner = table.transaction_version(_owner(batch))
        if owner is not None and owner != _number(batch.query_id):
            raise foreign_checkpoint(self._sink.table, batch.pipeline)
        last = table.transaction_version(_application(batch))
        return last is not None and last >= batch.number

    def partitioned(self, rows: DataFrame) -> DataFrame:
        return partition_rows(rows, self._sink.partitions)

    def file_writer(self) -> FileWriter:
        return FileWriter(DeltaFolder(self._sink.table, self._sink.options), tuple(self._columns))

    def commit(self, files: Sequence[WrittenFile], batch: Batch) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        assert self._schema is not None, "opened before it is written to"
        # If the same query has committed since the table was opened, the log refuses this one.
        self._opened().create_write_transaction(
            [AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.statistics) for file in files],
            mode="append",
            schema=self._schema,
            partition_by=self._columns,
            commit_properties=CommitProperties(
                custom_metadata={"pipeline": batch.pipeline, "query": batch.query_id, "batch": str(batch.number)},
                app_transactions=[
                    Transaction(_application(batch), batch.number),
                    Transaction(_owner(batch), _number(batch.query_id)),
                ],
            ),
        )

    def compact(self, target_bytes: int) -> Compacted:
        done = self._opened().optimize.compact(target_size=target_bytes)
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"])

    def _opened(self) -> DeltaTable:
        if self._table is None:
            self._table = self._library(self._sink.table, storage_options=dict(self._sink.options) or None)
        return self._table


def _application(batch: Batch) -> str:
    return f"tailrace:{batch.query_id}"


def _owner(batch: Batch) -> str:
    return f"tailrace:{batch.pipeline}"


def _number(query_id: str) -> int:
    """A version is a whole number of 64 bits with a sign, and the id a random one of 128."""
    return uuid.UUID(query_id).int >> 65


def _listed(columns: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
