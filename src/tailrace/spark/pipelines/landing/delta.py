"""Delta tables by deltalake (delta-rs): no jar, and object stores by its own storage options.

Delta's log has a place for (application, version) in a commit, and knows the last version of each application: the
application is the query, the version the number of its batch. A second entry, of the pipeline's name, holds the
query's id, so that a pipeline that comes with another checkpoint is found out.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO, cast

from tailrace.spark.pipelines.declaration import TableSink
from tailrace.spark.pipelines.landing.batches import (
    DELETED,
    Batch,
    Compacted,
    LandingError,
    Limits,
    Maintained,
    foreign_checkpoint,
    other_partitioning,
    try_commit,
)
from tailrace.spark.pipelines.landing.evolution import conformed, evolved
from tailrace.spark.pipelines.landing.files import FileWriter, WrittenFile, arrow_schema
from tailrace.spark.pipelines.landing.merging import DELETED_AT, collected, may_be_unavailable
from tailrace.spark.pipelines.landing.partitioning import partition_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

_MISSING = "tables of format delta need the package deltalake: pip install 'tailrace[delta]'"


_FORGETTING = "delta.setTransactionRetentionDuration"


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

    def open(self, rows: DataFrame) -> DataFrame:
        rows = self.partitioned(rows)
        self._schema = arrow_schema(rows.drop(DELETED))
        table = self._table = self._library.create(
            self._sink.table,
            self._schema,
            mode="ignore",
            partition_by=self._columns or None,
            storage_options=dict(self._sink.options) or None,
        )
        if _FORGETTING in table.metadata().configuration:
            raise LandingError(
                f"the table {self._sink.table} has the property {_FORGETTING}: it would forget which batch was the "
                "last, and a batch that comes again would land twice. Take the property off"
            )
        if table.metadata().partition_columns != self._columns:
            raise other_partitioning(self._sink.table, table.metadata().partition_columns, self._columns)
        if self._sink.evolve == "add":
            return self._evolve(rows)
        self._check_columns(table, self._schema)
        return rows

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
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        assert self._schema is not None, "opened before it is written to"
        # If the same query has committed since the table was opened, the log refuses this one.
        self._opened().create_write_transaction(
            [AddAction(file.path, file.size_bytes, file.partition, now_ms, True, file.statistics) for file in files],
            mode="append",
            schema=self._schema,
            partition_by=self._columns,
            commit_properties=_commit_properties(batch),
        )

    def merge(self, rows: DataFrame, batch: Batch, unavailable: Collection[str]) -> None:
        from deltalake.exceptions import CommitFailedError

        assert self._schema is not None, "opened before it is written to"
        coming = collected(rows, self._schema)
        if not coming.num_rows:
            return
        names = [f"`{name}`" for name in self._schema.names]
        values = {name: f"coming.{name}" for name in names}
        kept, new = dict(values), dict(values)
        if unavailable:
            texts = ", ".join("'" + text.replace("'", "''") + "'" for text in sorted(unavailable))
            for column in may_be_unavailable(self._schema, self._sink):
                is_unavailable = f"CAST(coming.`{column}` AS STRING) IN ({texts})"
                name = f"`{column}`"
                kept[name] = f"CASE WHEN {is_unavailable} THEN there.{name} ELSE coming.{name} END"
                new[name] = f"CASE WHEN {is_unavailable} THEN NULL ELSE coming.{name} END"
        same_key = " AND ".join(f"coming.`{name}` = there.`{name}`" for name in self._sink.merge_on)
        version = self._sink.version

        def merge() -> None:
            table = self._opened()
            table.update_incremental()
            if self.landed(batch):  # By a driver that was thought dead.
                return
            merger = table.merge(
                coming,
                same_key,
                source_alias="coming",
                target_alias="there",
                commit_properties=_commit_properties(batch),
            )
            if version is None:
                merger = merger.when_matched_delete(f"coming.{DELETED}").when_matched_update(kept)
                merger = merger.when_not_matched_insert(new, f"NOT coming.{DELETED}")
            else:
                merger = merger.when_matched_update(kept, f"coming.`{version}` >= there.`{version}`")
                merger = merger.when_not_matched_insert(new)
            merger.execute()

        try_commit(self._sink.table, merge, (CommitFailedError,))

    def compact(self, target_bytes: int) -> Compacted:
        done = self._opened().optimize.compact(target_size=target_bytes)
        return Compacted(done["numFilesRemoved"], done["numFilesAdded"])

    def maintain(self, limits: Limits) -> Maintained:
        from deltalake.exceptions import CommitFailedError

        table = self._opened()

        def forget_deleted() -> None:
            table.update_incremental()
            table.delete(f"{DELETED_AT} < '{limits.deleted_before.isoformat()}'")

        if self._sink.version is not None:
            try_commit(self._sink.table, forget_deleted, (CommitFailedError,))
        compacted = Compacted(0, 0)

        def compact() -> None:
            nonlocal compacted
            table.update_incremental()
            compacted = self.compact(limits.file_bytes)

        try_commit(self._sink.table, compact, (CommitFailedError,))
        table.update_incremental()
        hours = max(0, (datetime.now(UTC) - limits.history_before) // timedelta(hours=1))
        # Delta's own limit is a week; ours is checked where it is declared.
        deleted = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.update_incremental()
        table.create_checkpoint()
        table.cleanup_metadata()
        return Maintained(compacted, len(deleted))

    def _check_columns(self, table: DeltaTable, schema: pa.Schema) -> None:
        from deltalake import Schema

        there = {field.name: field.type for field in table.schema().fields}
        given = {field.name: field.type for field in Schema.from_arrow(schema).fields}
        if there != given:
            raise LandingError(
                f"the table {self._sink.table} has the columns {_listed(there)}; the pipeline gives {_listed(given)}: "
                'let its transform select what the table has, alter the table, or let it grow by evolve = "add"'
            )

    def _evolve(self, rows: DataFrame) -> DataFrame:
        """By a commit of its own: a batch that dies after it has left columns that are null, and finds them again."""
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        rows_schema = rows.drop(DELETED).schema
        wanted = StructType()

        def evolve() -> None:
            nonlocal wanted
            table = self._opened()
            table.update_incremental()
            there = StructType.fromJson(json.loads(table.schema().to_json()))
            wanted = evolved(self._sink.table, there, rows_schema)
            known = {field.name: field.dataType for field in there.fields}
            changed = StructType([field for field in wanted.fields if known.get(field.name) != field.dataType])
            if changed.fields:
                arrow = to_arrow_schema(changed.toNullable(), timezone="UTC")
                table.alter.add_columns(list(Schema.from_arrow(arrow).fields))

        try_commit(self._sink.table, evolve, (CommitFailedError,))
        rows = conformed(rows, wanted)
        self._schema = arrow_schema(rows.drop(DELETED))
        return rows

    def _opened(self) -> DeltaTable:
        if self._table is None:
            self._table = self._library(self._sink.table, storage_options=dict(self._sink.options) or None)
        return self._table


def _commit_properties(batch: Batch) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={"pipeline": batch.pipeline, "query": batch.query_id, "batch": str(batch.number)},
        app_transactions=[
            Transaction(_application(batch), batch.number),
            Transaction(_owner(batch), _number(batch.query_id)),
        ],
    )


def _application(batch: Batch) -> str:
    return f"tailrace:{batch.query_id}"


def _owner(batch: Batch) -> str:
    return f"tailrace:{batch.pipeline}"


def _number(query_id: str) -> int:
    """A version is a whole number of 64 bits with a sign, and the id a random one of 128."""
    return uuid.UUID(query_id).int >> 65


def _listed(columns: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
