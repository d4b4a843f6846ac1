"""Whose a data folder is: one process at a time (.lock), of one node of one cluster (meta.properties).

A folder that is another's is refused, with the remedy: what would be written there could destroy its data.
"""

from tailrace.log import checkpoints
from tailrace.log.files.failures import is_device_error
from tailrace.model.errors import StorageError
from tailrace.model.ids import Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Disk, Lock, Random

LOCK_FILE = ".lock"


def take_lock(disk: Disk, path: str) -> Lock:
    lock_path = f"{path}/{LOCK_FILE}"
    try:
        disk.make_folder(path)
        return disk.lock(lock_path)
    except BlockingIOError as error:
        holder = disk.read(lock_path).decode("ascii", "replace").strip() or "unknown"
        raise StorageError(
            f"The data folder {path} is in use by another process (pid {holder}). "
            "Stop that broker first, or give this one its own folder (log.dirs, --data)."
        ) from error
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"The data folder {path} cannot be used: {error}. Make it a folder that this user may write to, "
        "with space left, or choose another one (log.dirs, --data)."
    )


def settle_identity(disk: Disk, random: Random, path: str, *, node_id: int, cluster_id: str) -> Uuid:
    """Checks that the folder is this node's, or makes it so; returns its directory id."""
    file = f"{path}/{checkpoints.META_PROPERTIES}"
    try:
        stored = checkpoints.read_meta_properties(disk, path)
    except StorageError as error:
        raise StorageError(f"{file} is damaged ({error}): restore it, or remove the folder to start anew.") from error
    if stored is None:
        stored = {"version": "1", "node.id": str(node_id), "cluster.id": cluster_id}
        _sync_name(disk, path)
    for key, expected in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
        if stored.get(key, expected) != expected:
            raise StorageError(
                f"The data folder {path} belongs to {key}={stored[key]}, but this broker has {key}={expected}. "
                f"Point log.dirs (--data) to this broker's own folder, or set {key}={stored[key]}."
            )
    if "directory.id" not in stored:
        stored["directory.id"] = uuid_text(Uuid(random.uuid()))
        checkpoints.write_meta_properties(disk, path, stored)
    try:
        return parse_uuid(stored["directory.id"])
    except ValueError as error:
        raise StorageError(f"{file} is damaged ({error}): restore it, or remove the folder to start anew.") from error


def _sync_name(disk: Disk, path: str) -> None:
    """A new folder, and those above it that were made with it, must outlast a power loss: a vote may lie in it."""
    while "/" in path.strip("/"):
        path = path.rstrip("/").rpartition("/")[0]
        try:
            disk.sync_folder(path)
        except OSError as error:
            # Others mean a folder of someone else, or of a file system that syncs none: it was there before.
            if is_device_error(error):
                raise
