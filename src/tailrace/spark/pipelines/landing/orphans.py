"""Files in the folders of an Iceberg table that no version of it has: what crashes and forgotten versions leave behind.

pyiceberg forgets versions, and deletes nothing. A file is deleted if it is older than a limit, lies in the table's
`data` or `metadata`, and is named by nothing that the table knows. What it knows is asked after the folders were
listed: a file that came in between is too young, or known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.landing.batches import LandingError

if TYPE_CHECKING:
    from pyiceberg.table import Table

_ENDINGS = (".parquet", ".avro", ".metadata.json")


def delete_orphans(load: Callable[[], Table], before: datetime) -> int:
    """How many were deleted."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    table = load()
    if not isinstance(table.io, PyArrowFileIO):
        raise LandingError(
            f"the files of the table {'.'.join(table.name())} cannot be listed by {type(table.io).__name__}: give its "
            'catalog py-io-impl = "pyiceberg.io.pyarrow.PyArrowFileIO", or leave maintenance out'
        )
    scheme, netloc, _ = PyArrowFileIO.parse_location(table.location(), table.io.properties)
    files = table.io.fs_by_scheme(scheme, netloc)
    old = [path for name in ("data", "metadata") for path in _older(table, name, before)]
    if not old:
        return 0
    known = {PyArrowFileIO.parse_location(path)[2] for path in _known(load())}
    orphans = [path for path in old if path not in known]
    for path in orphans:
        files.delete_file(path)
    return len(orphans)


def _older(table: Table, folder: str, before: datetime) -> Iterator[str]:
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    assert isinstance(table.io, PyArrowFileIO)
    scheme, netloc, path = PyArrowFileIO.parse_location(f"{table.location()}/{folder}", table.io.properties)
    selector = FileSelector(path, allow_not_found=True, recursive=True)
    for info in table.io.fs_by_scheme(scheme, netloc).get_file_info(selector):
        if info.type == FileType.File and info.path.endswith(_ENDINGS) and info.mtime < before:
            yield info.path


def _known(table: Table) -> Iterator[str]:
    """All that the table's metadata names, of every version that it has."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (each.statistics_path for each in metadata.statistics)
    yield from (each.statistics_path for each in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
