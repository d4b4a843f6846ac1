"""How far a pipeline came, by its checkpoint alone: read where it lies, without Spark, whether or not anything runs.

Spark writes `offsets/N` before batch N begins and `commits/N` when it is done. So what is done is told by the last
commit, whatever a run said, and however it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.pipelines.beside.history import CUT

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# By these names Hadoop's file systems go to what pyarrow calls otherwise.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class CheckpointError(Exception):
    """The checkpoint cannot be read from here. The message says why."""


class Done(NamedTuple):
    """`batch` is the last one that is done, -1 if none is; `planned` the last that was begun. `offsets` are up to where
    all is done; empty if nothing is."""

    batch: int
    planned: int
    offsets: Mapping[TopicPartition, int]


def read_done(checkpoint: str) -> Done:
    """Raises CheckpointError."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileType

    try:
        files, folder = _open(checkpoint)
        if files.get_file_info(f"{folder}/metadata").type == FileType.NotFound:
            raise OSError("there is no such folder with Spark's file `metadata`, or none yet")
        committed, planned = _numbers(files, f"{folder}/commits"), _numbers(files, f"{folder}/offsets")
        batch = max(committed, default=-1)
        if batch < 0:
            return Done(-1, max(planned, default=-1), {})
        with files.open_input_stream(f"{folder}/offsets/{batch}") as stream:
            text = stream.read().decode()
        return Done(batch, max(planned, default=batch), offsets_of(text.splitlines()))
    except (OSError, ArrowException, ValueError) as error:
        raise CheckpointError(f"the checkpoint {checkpoint} cannot be read from here: {error}") from None


def read_cut(checkpoint: str) -> dict[str, dict[str, int]] | None:
    """Where a pipeline's stream begins and its history ends; None if nothing has begun. Raises CheckpointError."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSelector

    try:
        files, folder = _open(checkpoint)
        for each in files.get_file_info(FileSelector(f"{folder}/{CUT}", allow_not_found=True, recursive=True)):
            # What Spark has not finished to write lies in `_temporary`.
            if each.base_name.startswith("part-") and each.size and "/_temporary/" not in each.path:
                with files.open_input_stream(each.path) as stream:
                    cut: dict[str, dict[str, int]] = json.loads(stream.read())
                return cut
    except (OSError, ArrowException, ValueError) as error:
        raise CheckpointError(f"the checkpoint {checkpoint} cannot be read from here: {error}") from None
    return None


def offsets_of(lines: Sequence[str]) -> dict[TopicPartition, int]:
    """Of a file of Spark's: behind its version and the settings of the batch stands a line for each source. Where two
    read one partition, it is done up to the earlier offset. Raises ValueError."""
    found: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        if not line.startswith("{"):
            continue
        for topic, offsets in json.loads(line).items():
            for index, offset in offsets.items():
                partition = TopicPartition(topic, PartitionIndex(int(index)))
                found[partition] = min(found.get(partition, offset), int(offset))
    return found


def _open(checkpoint: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import FileSystem, LocalFileSystem

    scheme, separator, rest = checkpoint.partition("://")
    if not separator:
        return LocalFileSystem(), checkpoint.removeprefix("file:")
    files, path = FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    return files, path


def _numbers(files: FileSystem, folder: str) -> list[int]:
    """Names of batches; what Spark has not finished to write has others."""
    from pyarrow.fs import FileSelector

    found = files.get_file_info(FileSelector(folder, allow_not_found=True))
    return [int(each.base_name) for each in found if each.base_name.isdecimal()]
