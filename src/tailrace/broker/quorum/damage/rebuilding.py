"""Makes a sound metadata log of what is left of a damaged one, and keeps the damaged one beside it.

    __cluster_metadata-0.<id>-delete   being built; a start removes what was never finished
    __cluster_metadata-0.<id>-stray    the damaged one, untouched: Kafka and its tools pass over such names

The new folder is complete and on the device before it takes the name. A stop between the two renames leaves no folder
of that name and a finished one beside it: `finish` gives it the name. The synced end falls only then, so that a stop at
any moment leaves either the damage to be found again, or a log that is whole.

Quorum-state is kept, so that no vote is given twice; of a voter whose rest lacks what was synced it says so
(`QuorumState.must_catch_up`).
"""

from __future__ import annotations

from contextlib import suppress

from tailrace.broker.quorum.damage.inspection import Inspection, inspect
from tailrace.broker.quorum.damage.synced_end import read_synced_end, store_synced_end
from tailrace.broker.quorum.snapshots import file_name
from tailrace.broker.quorum.state_file import read_quorum_state, write_quorum_state
from tailrace.log.checkpoints import PARTITION_METADATA
from tailrace.log.files.failures import disk_errors
from tailrace.log.files.names import DELETE_SUFFIX, STRAY_SUFFIX, unique_folder_name
from tailrace.log.files.segment import LOG_SUFFIX
from tailrace.model.errors import StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, PartitionIndex, TopicPartition
from tailrace.model.ports import Disk, Random
from tailrace.raft.messages import QuorumState

PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, PartitionIndex(0))
_FINISHED_FILE = ".tailrace_rebuilt"
_COPY_BYTES = 1 << 20


def read_damage(disk: Disk, metadata_folder: str, *, must_be_whole: bool = True) -> Inspection:
    """Inspects the metadata log in a data folder, after a rebuilding that was interrupted is finished. Without
    `must_be_whole` nothing was promised. StorageError."""
    folder = f"{metadata_folder}/{PARTITION}"
    with disk_errors(f"{metadata_folder} cannot be read"):
        finish(disk, metadata_folder)
        synced_end = read_synced_end(disk, metadata_folder) if must_be_whole else 0
    return inspect(disk, folder, synced_end=synced_end, epoch=_known_epoch(disk, folder))


def rebuild(
    disk: Disk, random: Random, metadata_folder: str, found: Inspection, *, must_catch_up: bool, keeps_one: bool
) -> str:
    """Blocks. Gives the folder in which the damaged log is kept; with `keeps_one` earlier ones go. StorageError, and
    then the log is as it was. `must_catch_up` needs a quorum-state that can be read."""
    folder = found.folder
    state = _state(disk, folder, must_catch_up=must_catch_up)
    building = f"{metadata_folder}/{unique_folder_name(PARTITION, random, DELETE_SUFFIX)}"
    kept = f"{metadata_folder}/{unique_folder_name(PARTITION, random, STRAY_SUFFIX)}"
    with disk_errors(f"{folder} cannot be rebuilt"):
        earlier = _find(disk, metadata_folder, STRAY_SUFFIX) if keeps_one else []
        disk.make_folder(building)
        _copy_rest(disk, found, building)
        if state is not None:
            write_quorum_state(disk, building, state)
        disk.replace(f"{building}/{_FINISHED_FILE}", b"")
        disk.sync_folder(metadata_folder)
        with suppress(FileNotFoundError):
            # All of it may be gone.
            disk.rename(folder, kept)
        finish(disk, metadata_folder)
        store_synced_end(disk, metadata_folder, found.rest.end_offset)
        for each in earlier:
            disk.remove_folder(each)
    return kept


def give_voice(disk: Disk, folder: str) -> bool:
    """A voter that was to catch up votes again with what it has: whoever asks for it accepts the loss. Whether that
    changed anything. StorageError."""
    state = read_quorum_state(disk, folder)
    if state is None or not state.must_catch_up:
        return False
    with disk_errors(f"{folder} cannot be written"):
        write_quorum_state(disk, folder, state._replace(must_catch_up=False))
    return True


def finish(disk: Disk, metadata_folder: str) -> None:
    """OSError."""
    folder = f"{metadata_folder}/{PARTITION}"
    if disk.is_folder(folder) or not disk.is_folder(metadata_folder):
        return
    for building in _find(disk, metadata_folder, DELETE_SUFFIX):
        if _FINISHED_FILE in disk.list(building):
            disk.rename(building, folder)
            disk.sync_folder(metadata_folder)
            return


def _copy_rest(disk: Disk, found: Inspection, building: str) -> None:
    rest, folder = found.rest, found.folder
    names = disk.list(folder) if disk.is_folder(folder) else []
    for name in (PARTITION_METADATA, *map(file_name, rest.snapshots)):
        if name in names:
            size = disk.size(f"{folder}/{name}")
            _copy(disk, [(f"{folder}/{name}", 0, size)], f"{building}/{name}")
    if rest.run is not None:
        pieces = [(each.path, each.position, each.end_position) for each in rest.run.extents]
        _copy(disk, pieces, f"{building}/{rest.run.start_offset:020d}{LOG_SUFFIX}")


def _copy(disk: Disk, pieces: list[tuple[str, int, int]], target: str) -> None:
    copy = disk.open(target, create=True)
    for path, position, end in pieces:
        file = disk.open(path)
        for start in range(position, end, _COPY_BYTES):
            copy.append((file.read(start, min(_COPY_BYTES, end - start)),))
    copy.sync()


def _state(disk: Disk, folder: str, *, must_catch_up: bool) -> QuorumState | None:
    """As it is to be written; None if there is none, or none that can be read, and none is needed."""
    try:
        state = read_quorum_state(disk, folder)
    except StorageError:
        if must_catch_up:
            raise
        return None
    if state is None and must_catch_up:
        raise StorageError(
            f"{folder} has lost its quorum-state: this voter no longer knows how it has voted. Format the folder anew "
            "(--no-initial-controllers) and add the node to the quorum again."
        )
    return None if state is None else state._replace(must_catch_up=must_catch_up or state.must_catch_up)


def _known_epoch(disk: Disk, folder: str) -> int | None:
    try:
        state = read_quorum_state(disk, folder)
    except StorageError:
        return None
    return None if state is None else state.epoch


def _find(disk: Disk, metadata_folder: str, suffix: str) -> list[str]:
    names = [name for name in disk.list(metadata_folder) if name.startswith(f"{PARTITION}.") and name.endswith(suffix)]
    return [f"{metadata_folder}/{name}" for name in names]
