"""Which batch of which query is in a table: what makes a repeated batch harmless.

Spark gives a query an id that lives in its checkpoint, and numbers its batches; after a restart the last batch may
come again, with the same number and rows. So (query id, number of the batch) goes into the table in the same commit
as the rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailrace.spark.pipelines.checkpoint import note_maintained_at, read_maintained_at, running_query_id
from tailrace.spark.pipelines.declaration import Maintenance, TableSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark.pipelines.landing.files import FileWriter, WrittenFile


# Of rows that are merged: whether they delete their key. No column of a table.
DELETED = "_tailrace_deleted"
# Others commit to the same table; each attempt begins from what they left.
COMMIT_ATTEMPTS_MAX = 10
_COMMIT_PAUSE_S = 0.1


class LandingError(RuntimeError):
    """The table cannot take the batch; nothing of it is in the table."""


class Batch(NamedTuple):
    pipeline: str
    query_id: str
    number: int


class Compacted(NamedTuple):
    """What merging small files has done."""

    removed: int
    added: int


class Limits(NamedTuple):
    """Maintenance of a table at a moment."""

    file_bytes: int
    # What is older is forgotten: versions of the table with the files that only they have, and keys that were deleted.
    history_before: datetime
    deleted_before: datetime


class Maintained(NamedTuple):
    """What maintenance has done."""

    compacted: Compacted
    files_deleted: int


class LakeTable(Protocol):
    """A table whose files are listed in a log or a catalog, so that a commit shows all of a batch or nothing."""

    def open(self, rows: DataFrame) -> DataFrame:
        """The rows as the table takes them. Creates it if it is not there, and makes it evolve if the sink says so.
        Raises LandingError if it cannot take such rows."""

    def landed(self, batch: Batch) -> bool:
        """Whether the batch is there already. Raises LandingError if the pipeline came with another checkpoint."""

    def partitioned(self, rows: DataFrame) -> DataFrame:
        """With the columns by which files are kept apart."""

    def file_writer(self) -> FileWriter:
        """What goes to the executors."""

    def commit(self, files: Sequence[WrittenFile], batch: Batch) -> None:
        """All of the files, and the batch they are."""

    def merge(self, rows: DataFrame, batch: Batch, unavailable: Collection[str]) -> None:
        """Rows of `reduced`, partitioned: each in place of the one of its key, by one commit that names the batch.
        Where a row has one of the texts `unavailable`, the value stays that is there."""

    def compact(self, target_bytes: int) -> Compacted:
        """Merges files that are smaller than the target; readers see the same rows before and after."""

    def maintain(self, limits: Limits) -> Maintained:
        """Forgets what is too old, merges files, and deletes those that no version of the table has. Which batch is the
        last stays known. May end anywhere: each step is a commit, or deletes what is no part of the table."""


def lake_table(sink: TableSink) -> LakeTable:
    if sink.format == "delta":
        from tailrace.spark.pipelines.landing.delta import DeltaLakeTable

        return DeltaLakeTable(sink)
    from tailrace.spark.pipelines.landing.iceberg import IcebergTable

    return IcebergTable(sink)


class Landing:
    """What `foreachBatch` calls. It is pickled: under Spark Connect it runs in a process of the server."""

    def __init__(
        self, pipeline: str, checkpoint: str, sink: TableSink, *, unavailable: Collection[str] = frozenset()
    ) -> None:
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._sink = sink
        # Texts that stand for a value that is what it was: see `changes.debezium`.
        self._unavailable = unavailable
        self._maintained_at: datetime | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        from tailrace.spark.pipelines.landing.files import write_files
        from tailrace.spark.pipelines.landing.merging import check_partitions_stay, reduced

        batch = Batch(self._pipeline, running_query_id(rows.sparkSession, self._checkpoint), number)
        table = lake_table(self._sink)
        if self._sink.merge_on:
            if self._sink.version is None:
                check_partitions_stay(rows.sparkSession, self._checkpoint, number)
            rows = reduced(rows, self._sink, self._unavailable)
        rows = table.open(rows)
        if table.landed(batch):
            # Computed all the same: what windows and joins remember has to follow.
            rows.write.format("noop").mode("append").save()
        elif self._sink.merge_on:
            table.merge(table.partitioned(rows), batch, self._unavailable)
        else:
            files = write_files(table.partitioned(rows), table.file_writer())
            if files:
                table.commit(files, batch)
        if self._sink.maintenance is not None:
            self._maintain(rows.sparkSession, self._sink.maintenance)

    def _maintain(self, spark: SparkSession, maintenance: Maintenance) -> None:
        """If it is time. When it was done last is remembered beside the checkpoint, for the runs that follow."""
        if self._maintained_at is None:
            self._maintained_at = read_maintained_at(spark, self._checkpoint)
        now = datetime.now(UTC)
        if now - self._maintained_at < maintenance.interval:
            return
        limits = Limits(maintenance.file_mb << 20, now - maintenance.history, now - maintenance.deleted)
        lake_table(self._sink).maintain(limits)
        self._maintained_at = now
        note_maintained_at(spark, self._checkpoint, now)


def try_commit(table: str, commit: Callable[[], None], conflicts: tuple[type[Exception], ...]) -> None:
    """Again and again, as long as others are quicker. `commit` has to look at the table anew each time."""
    for attempt in range(1, COMMIT_ATTEMPTS_MAX + 1):
        try:
            return commit()
        except conflicts as error:
            if attempt == COMMIT_ATTEMPTS_MAX:
                raise LandingError(f"others commit to {table} all the time: {error}") from error
            time.sleep(_COMMIT_PAUSE_S * (1 + random.random()))  # noqa: S311
    return None


def foreign_checkpoint(table: str, pipeline: str) -> LandingError:
    return LandingError(
        f"the pipeline {pipeline} has filled the table {table} under another checkpoint: with this one it would begin "
        "anew, and land again what is there. Give it the old checkpoint, or another table; or another name, if "
        "that is what you want"
    )


def other_partitioning(table: str, there: Sequence[str], declared: Sequence[str]) -> LandingError:
    return LandingError(
        f"the table {table} is partitioned by {', '.join(there) or 'nothing'}, and the pipeline says "
        f"{', '.join(declared) or 'nothing'}: declare what the table has"
    )
