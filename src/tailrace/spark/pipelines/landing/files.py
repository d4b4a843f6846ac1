"""Rows of a batch as Parquet files, written by the executors.

A file holds rows of one partition of the table, and has a name that no other attempt has: a task that runs twice
leaves a file that nobody knows, never a row twice. Memory is bounded: rows wait for a large row group only up to
`BUFFERED_BYTES_MAX`, and at most `OPEN_FILES_MAX` files are open.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame

# Row groups of this size compress and scan well; a task holds no more than this of rows.
BUFFERED_BYTES_MAX = 64 << 20
# Rows of a batch seldom fall into more partitions; beyond it the file that was used longest ago is finished.
OPEN_FILES_MAX = 64
# Longer texts are no use as bounds of a file, and swell the log.
_BOUND_LENGTH_MAX = 64

_DESCRIPTION = "path string, rows long, size_bytes long, partition string, statistics string"


class WrittenFile(NamedTuple):
    path: str
    rows: int
    size_bytes: int
    # Values of the partition's columns, as texts.
    partition: Mapping[str, str | None]
    # Bounds and nulls of columns, as Delta's log has them.
    statistics: str


class Folder(Protocol):
    """Where files of a table go; it is pickled."""

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """A new file, and the path by which the table will know it."""


@dataclass(frozen=True)
class FileWriter:
    folder: Folder
    # Columns that tell partitions apart, and whether they are in the files as well.
    partition_columns: tuple[str, ...] = ()
    compression: str = "zstd"

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WrittenFile]:
        files: dict[tuple[Any, ...], _OpenFile] = {}
        for batch in batches:
            for values, part in _split(batch, self.partition_columns):
                file = files.pop(values, None) or self._open(values)
                file.add(part)
                files[values] = file  # The last one is the one used last.
                if len(files) > OPEN_FILES_MAX:
                    yield files.pop(next(iter(files))).close()
            while sum(file.buffered_bytes for file in files.values()) > BUFFERED_BYTES_MAX:
                max(files.values(), key=lambda file: file.buffered_bytes).flush()
        for file in files.values():
            yield file.close()

    def _open(self, values: tuple[Any, ...]) -> _OpenFile:
        path, stream = self.folder.create(f"{uuid.uuid4()}.parquet")
        partition = dict(zip(self.partition_columns, map(_text, values), strict=True))
        return _OpenFile(path, stream, partition, self.compression)


def arrow_schema(rows: DataFrame) -> pa.Schema:
    """The schema of a table for such rows. All columns are nullable: what a query promises today, the next need not."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")


def write_files(rows: DataFrame, writer: FileWriter) -> list[WrittenFile]:
    """Runs on the executors; only what describes the files comes back."""

    def write_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for file in writer.write(batches):
            row = file._asdict() | {"partition": json.dumps(file.partition)}
            yield pa.RecordBatch.from_pylist([row])

    described = rows.mapInArrow(write_part, _DESCRIPTION).collect()
    return [WrittenFile(**row.asDict() | {"partition": json.loads(row.partition)}) for row in described]


class _OpenFile:
    def __init__(self, path: str, stream: BinaryIO, partition: Mapping[str, str | None], compression: str) -> None:
        self._path = path
        self._stream = stream
        self._partition = partition
        self._compression = compression
        self._batches: list[pa.RecordBatch] = []
        self._writer: pq.ParquetWriter | None = None
        self._metadata: list[pq.FileMetaData] = []
        self.buffered_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.buffered_bytes += batch.nbytes

    def flush(self) -> None:
        """What has waited becomes a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._stream,
                table.schema,
                compression=self._compression,
                metadata_collector=self._metadata,
                # Readers shall see instants in UTC, and not in the time zone of this session.
                store_schema=False,
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._batches, self.buffered_bytes = [], 0

    def close(self) -> WrittenFile:
        self.flush()
        assert self._writer is not None, "a file is opened for a row"
        self._writer.close()
        size_bytes = self._stream.tell()
        self._stream.close()
        (metadata,) = self._metadata
        return WrittenFile(self._path, metadata.num_rows, size_bytes, self._partition, _statistics(metadata))


def _split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each partition, without the columns that say it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if batch.num_rows == 0:
        return
    if not columns:
        yield (), batch
        return
    rows = batch.drop_columns(list(columns))
    keys = pa.table({name: batch.column(name) for name in columns})
    for key in keys.group_by(list(columns)).aggregate([]).to_pylist():
        mask = None
        for name in columns:
            column = batch.column(name)
            equal = pc.is_null(column) if key[name] is None else pc.fill_null(pc.equal(column, key[name]), False)
            mask = equal if mask is None else pc.and_(mask, equal)
        yield tuple(key[name] for name in columns), rows.filter(mask)


def _text(value: Any) -> str | None:
    """A partition's value as Delta's log has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _statistics(metadata: pq.FileMetaData) -> str:
    """The statistics of the whole file, for top-level columns whose bounds are known in every row group."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = chunks[0].path_in_schema
        found = [chunk.statistics for chunk in chunks]
        if "." in name or any(statistics is None or not statistics.has_null_count for statistics in found):
            continue
        nulls[name] = sum(statistics.null_count for statistics in found)
        bounded = [statistics for statistics in found if statistics.has_min_max]
        if not bounded or any(not s.has_min_max and s.num_values for s in found):
            continue
        low, high = min(s.min for s in bounded), max(s.max for s in bounded)
        if _is_bound(low) and _is_bound(high):
            lowest[name], highest[name] = _bound(low), _bound(high)
    return json.dumps({"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _is_bound(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _BOUND_LENGTH_MAX
    return isinstance(value, int | date) and not isinstance(value, bool)


def _bound(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else value
