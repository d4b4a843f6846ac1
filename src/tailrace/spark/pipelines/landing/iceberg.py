"""Iceberg tables by pyiceberg: no jar, and any catalog that it knows.

A table's properties are changed by the same commit that adds the files, so they hold the query and the number of its
last batch. Snapshots carry the numbers too, for people; they alone would not do, since old snapshots are expired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from tailrace.spark.pipelines.declaration import Partition, TableSink
from tailrace.spark.pipelines.landing.batches import (
    Batch,
    Compacted,
    LandingError,
    foreign_checkpoint,
    other_partitioning,
    try_commit,
)
from tailrace.spark.pipelines.landing.evolution import conformed, evolved
from tailrace.spark.pipelines.landing.files import FileWriter, WrittenFile, arrow_schema
from tailrace.spark.pipelines.landing.partitioning import check_partitions, part_of_time

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
            self._create(rows)
        spec = self._table().spec()
        there = [field.name for field in spec.fields]
        declared = [partition.name for partition in self._sink.partitions]
        if there != declared:
            raise other_partitioning(self._sink.table, there, declared)
        return self._evolve(rows) if self._sink.evolve == "add" else rows

    def landed(self, batch: Batch) -> bool:
        properties = self._table().properties
        last = properties.get(_property(batch))
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
        def add_files() -> None:
            if not self.landed(batch):  # By a driver that was thought dead.
                self._commit(files, batch)

        try:
            self._try_commit(add_files)
        except ValueError as error:
            raise LandingError(f"the table {self._sink.table} cannot take the rows: {error}") from error

    def compact(self, target_bytes: int) -> Compacted:
        removed = added = 0
        for tasks in _bins(self._table(), target_bytes):
            removed += len(tasks)
            added += self._rewrite(tasks)
        return Compacted(removed, added)

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

        rows_schema = rows.schema
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
        table = self._table()
        # pyiceberg would try again by itself, and not see that the batch has landed meanwhile. This changes what is
        # in memory, not the table.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        with table.transaction() as transaction:
            transaction.set_properties({_property(batch): f"{batch.query_id}/{batch.number}"})
            transaction.add_files(
                [file.path for file in files],
                {"tailrace.pipeline": batch.pipeline, "tailrace.batch": str(batch.number)},
                check_duplicate_files=False,  # Their names are random, and looking would read every manifest.
            )

    def _try_commit(self, commit: Callable[[], None]) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try_commit(self._sink.table, commit, (CommitFailedException, ValidationException))

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
            table = self._table()
            with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
                for task in tasks:
                    change.delete_data_file(task.file)
                for file in parquet_files_to_data_files(table.io, table.metadata, iter(paths)):
                    change.append_data_file(file)

        self._try_commit(replace_files)
        return len(paths)

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


def _property(batch: Batch) -> str:
    return f"tailrace.{batch.pipeline}"
