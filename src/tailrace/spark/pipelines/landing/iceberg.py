"""Iceberg tables by pyiceberg: no jar, and any catalog that it knows.

A table's properties are changed by the same commit that adds the files, so they hold the query and the number of its
last batch. Snapshots carry the numbers too, for people; they alone would not do, since old snapshots are expired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, cast

from tailrace.spark.pipelines.declaration import Partition, TableSink
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
from tailrace.spark.pipelines.landing.orphans import delete_orphans
from tailrace.spark.pipelines.landing.partitioning import check_partitions, part_of_time
from tailrace.spark.pipelines.landing.rewriting import Merge

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql import DataFrame

_MISSING = "tables of format iceberg need the package pyiceberg: pip install 'tailrace[iceberg]'"


@dataclass(frozen=True)
class IcebergFolder:
    location: str
    properties: Mapping[str, str]

    def create(self, name: str) -> tuple[str, BinaryIO]:
        from pyiceberg.io import load_file_io

        path = f"{self.location}/{name}"
        return path, cast(BinaryIO, load_file_io(dict(self.properties), path).new_output(path).create())


class IcebergTable:
    def __init__(self, sink: TableSink) -> None:
        self._sink = sink
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise LandingError(_MISSING) from None
        self._catalog: Catalog = load_catalog(None, **sink.catalog)

    def open(self, rows: DataFrame) -> DataFrame:
        check_partitions(rows, self._sink.partitions)
        if not self._catalog.table_exists(self._sink.table):
            self._create(rows.drop(DELETED))
        spec = self._table().spec()
        there = [field.name for field in spec.fields]
        declared = [partition.name for partition in self._sink.partitions]
        if there != declared:
            raise other_partitioning(self._sink.table, there, declared)
        return self._evolve(rows) if self._sink.evolve == "add" else rows

    def landed(self, batch: Batch) -> bool:
        return self._is_in(self._table(), batch)

    def _is_in(self, table: Table, batch: Batch) -> bool:
        last = table.properties.get(_property(batch))
        if last is None:
            return False
        query_id, _, number = last.partition("/")
        if query_id != batch.query_id:
            raise foreign_checkpoint(self._sink.table, batch.pipeline)
        return int(number) >= batch.number

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """Files of an Iceberg table hold every column; these only keep rows of two partitions apart."""
        from pyspark.sql import functions

        for column, partition in zip(self._columns(), self._sink.partitions, strict=True):
            value = functions.col(partition.column) if partition.unit is None else part_of_time(rows, partition)
            rows = rows.withColumn(column, value)
        return rows

    def file_writer(self) -> FileWriter:
        return FileWriter(self._folder(), self._columns())

    def commit(self, files: Sequence[WrittenFile], batch: Batch) -> None:
        self._try_commit(lambda: self._commit(files, batch))

    def merge(self, rows: DataFrame, batch: Batch, unavailable: Collection[str]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        coming = collected(rows, to_arrow_schema(rows.drop(DELETED).schema.toNullable(), timezone="UTC"))

        if coming.num_rows:
            fillable = may_be_unavailable(coming.schema, self._sink) if unavailable else []
            keys, version = self._sink.merge_on, self._sink.version
            self._try_commit(
                lambda: self._merge(Merge(coming, keys, version, dict.fromkeys(fillable, unavailable)), batch)
            )

    def compact(self, target_bytes: int) -> Compacted:
        removed = added = 0
        for tasks in _bins(self._table(), target_bytes):
            written = self._rewrite(tasks)
            removed += len(tasks) if written else 0
            added += written
        return Compacted(removed, added)

    def maintain(self, limits: Limits) -> Maintained:
        if self._sink.version is not None:
            self._try_commit(lambda: self._forget_deleted(limits.deleted_before))
        compacted = self.compact(limits.file_bytes)
        self._try_commit(lambda: self._forget_snapshots(limits.history_before))
        return Maintained(compacted, delete_orphans(self._table, limits.history_before))

    def _forget_deleted(self, before: datetime) -> None:
        from pyiceberg.expressions import LessThan, Reference
        from pyiceberg.expressions.literals import literal

        table = self._table_of_one_try()
        is_forgotten = LessThan(term=Reference(DELETED_AT), value=literal(before.isoformat()))
        if table.scan(is_forgotten, limit=1).to_arrow().num_rows:
            table.delete(is_forgotten)

    def _forget_snapshots(self, before: datetime) -> None:
        table = self._table_of_one_try()
        if any(snapshot.timestamp_ms < before.timestamp() * 1000 for snapshot in table.snapshots()):
            table.maintenance.expire_snapshots().older_than(before).commit()

    def _create(self, rows: DataFrame) -> None:
        from pyiceberg.catalog import Catalog
        from pyiceberg.exceptions import TableAlreadyExistsError

        self._catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._sink.table))
        try:
            with (
                self._catalog.create_table_transaction(self._sink.table, arrow_schema(rows)) as transaction,
                transaction.update_spec() as spec,
            ):
                for partition in self._sink.partitions:
                    spec.add_field(partition.column, _transform(partition), partition.name)
        except TableAlreadyExistsError:
            pass  # Someone else was quicker; whether it fits is seen next.

    def _evolve(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
        from pyspark.sql.types import StructType

        rows_schema = rows.drop(DELETED).schema
        wanted = StructType()

        def evolve() -> None:
            nonlocal wanted
            table = self._table()
            there = from_arrow_schema(table.schema().as_arrow())
            wanted = evolved(self._sink.table, there, rows_schema, can_widen=True)
            if wanted != there:
                with table.update_schema() as update:
                    update.union_by_name(to_arrow_schema(wanted.toNullable(), timezone="UTC"))

        self._try_commit(evolve)
        return conformed(rows, wanted)

    def _commit(self, files: Sequence[WrittenFile], batch: Batch) -> None:
        table = self._table_of_one_try()
        if self._is_in(table, batch):  # By a driver that was thought dead.
            return
        with table.transaction() as transaction:
            transaction.set_properties({_property(batch): f"{batch.query_id}/{batch.number}"})
            transaction.add_files(
                [file.path for file in files],
                _summary(batch),
                check_duplicate_files=False,  # Their names are random, and looking would read every manifest.
            )

    def _merge(self, merge: Merge, batch: Batch) -> None:
        """Files with rows of these keys are written anew without them, by one commit with the rows that come."""
        import pyarrow.compute as pc
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, parquet_files_to_data_files

        table = self._table_of_one_try()
        if self._is_in(table, batch):
            return
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        removed: list[FileScanTask] = []
        paths: list[str] = []
        for task in table.scan(merge.condition()).plan_files():
            rest = merge.rest(scan.to_table([task]))
            if rest is not None:
                removed.append(task)
                paths += [file.path for file in FileWriter(self._folder()).write(iter(rest.to_batches()))]
        new = merge.in_time()
        if self._sink.version is None:
            new = new.filter(pc.invert(new[DELETED]))
        paths += [file.path for file in self.file_writer().write(iter(new.drop_columns([DELETED]).to_batches()))]
        with table.transaction() as transaction:
            properties = {_property(batch): f"{batch.query_id}/{batch.number}"}
            if table.name_mapping() is None:  # Columns of our files have names, not numbers.
                properties["schema.name-mapping.default"] = table.schema().name_mapping.model_dump_json()
            transaction.set_properties(properties)
            if not removed and not paths:
                return
            with transaction.update_snapshot(_summary(batch)).overwrite() as change:
                for task in removed:
                    change.delete_data_file(task.file)
                for file in parquet_files_to_data_files(table.io, transaction.table_metadata, iter(paths)):
                    change.append_data_file(file)

    def _try_commit(self, commit: Callable[[], None]) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try:
            try_commit(self._sink.table, commit, (CommitFailedException, ValidationException))
        except ValueError as error:
            raise LandingError(f"the table {self._sink.table} cannot take the rows: {error}") from error

    def _rewrite(self, tasks: Sequence[FileScanTask]) -> int:
        """Old files out and new ones in, by one commit."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, parquet_files_to_data_files, schema_to_pyarrow

        table = self._table()
        batches = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_record_batches(tasks)
        # A column that was added, and one that was always there, come in two of Arrow's types for one of Iceberg's.
        whole = schema_to_pyarrow(table.schema(), include_field_ids=False)
        paths = [file.path for file in FileWriter(self._folder()).write(batch.cast(whole) for batch in batches)]

        def replace_files() -> None:
            table = self._table_of_one_try()
            # A batch that was merged meanwhile may have rewritten them: what was read is no longer true.
            there = {task.file.file_path for task in table.scan().plan_files()}
            if any(task.file.file_path not in there for task in tasks):
                paths.clear()
                return
            with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
                for task in tasks:
                    change.delete_data_file(task.file)
                for file in parquet_files_to_data_files(table.io, table.metadata, iter(paths)):
                    change.append_data_file(file)

        self._try_commit(replace_files)
        return len(paths)

    def _table_of_one_try(self) -> Table:
        """pyiceberg would try again by itself, and not see that the batch has landed meanwhile, or that the files are
        gone. This changes what is in memory, not the table."""
        table = self._table()
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table

    def _columns(self) -> tuple[str, ...]:
        return tuple(f"_partition_{index}" for index in range(len(self._sink.partitions)))

    def _folder(self) -> IcebergFolder:
        table = self._table()
        return IcebergFolder(f"{table.location()}/data", table.io.properties)

    def _table(self) -> Table:
        return self._catalog.load_table(self._sink.table)


def _bins(table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    """Small files of one partition that together make about one of the target's size. Files with rows deleted from
    them are left alone."""
    partitions: dict[str, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        is_small = task.file.file_size_in_bytes < target_bytes // 2
        if is_small and not task.delete_files and task.file.spec_id == table.spec().spec_id:
            partitions[str(task.file.partition)].append(task)
    for tasks in partitions.values():
        chosen: list[FileScanTask] = []
        size_bytes = 0
        for task in sorted(tasks, key=lambda task: task.file.file_path):
            if chosen and size_bytes + task.file.file_size_in_bytes > target_bytes:
                if len(chosen) > 1:
                    yield chosen
                chosen, size_bytes = [], 0
            chosen.append(task)
            size_bytes += task.file.file_size_in_bytes
        if len(chosen) > 1:
            yield chosen


def _transform(partition: Partition) -> str:
    return partition.unit or "identity"


def _summary(batch: Batch) -> dict[str, str]:
    return {"tailrace.pipeline": batch.pipeline, "tailrace.batch": str(batch.number)}


def _property(batch: Batch) -> str:
    return f"tailrace.{batch.pipeline}"
