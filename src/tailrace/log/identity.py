"""Whose a data folder is: one process at a time (.lock), of one node of one cluster (meta.properties).

A folder that is another's is refused, with the remedy: what would be written there could destroy its data. So is one
that holds data and does not say whose: a new identity would make a stranger of the node, and strays of its logs.
"""

from tailrace.log import checkpoints, run_marks
from tailrace.log.files.failures import is_device_error
from tailrace.log.files.names import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, parse_folder_name
from tailrace.model.errors import StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Disk, Lock, Random

LOCK_FILE = ".lock"

# Whatever a node writes into its folder once it has said whose it is. The lock comes before.
_LEFT_BY_A_NODE = frozenset(
    {
        run_marks.CLEAN_MARK,
        checkpoints.RECOVERY_POINTS,
        checkpoints.LOG_START_OFFSETS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.CLEANER_OFFSETS,
    }
)
_OWN_PREFIX = ".tailrace_"
_ASIDE_SUFFIXES = (DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)
_FIRST_SNAPSHOT = f"{0:020d}-{0:010d}.checkpoint"


def take_lock(disk: Disk, path: str) -> Lock:
    lock_path = f"{path}/{LOCK_FILE}"
    try:
        disk.make_folder(path)
        return disk.lock(lock_path)
    except BlockingIOError as error:
        holder = disk.read(lock_path).decode("ascii", "replace").strip() or "unknown"
        raise StorageError(
            f"The data folder {path} is in use by another process (pid {holder}). "
            "Stop that broker first, or give this one its own folder (log.dirs, --data). Or are two folders of "
            "log.dirs one and the same, by a link?"
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
    stored = checkpoints.read_meta_properties(disk, path)
    if stored is None:
        evidence = find_data(disk, path)
        if evidence is not None:
            raise StorageError(nameless(path, evidence))
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
    return parse_uuid(stored["directory.id"])


def find_data(disk: Disk, path: str) -> str | None:
    """Something in the folder that only a node can have left there; None if there is nothing, or no folder. What a
    `format` leaves that was interrupted does not count: the first voters. OSError."""
    for name in disk.list(path) if disk.is_folder(path) else ():
        if name in _LEFT_BY_A_NODE or name.startswith(_OWN_PREFIX):
            return name
        log_name = name.rpartition(".")[0] if name.endswith(_ASIDE_SUFFIXES) else name
        if not disk.is_folder(f"{path}/{name}"):
            continue
        if parse_folder_name(log_name) is not None:
            return name
        is_metadata = log_name == f"{CLUSTER_METADATA_TOPIC}-0"
        if is_metadata and not all(inner.startswith(_FIRST_SNAPSHOT) for inner in disk.list(f"{path}/{name}")):
            return name
    return None


def nameless(path: str, evidence: str) -> str:
    return (
        f"{path} holds data ({evidence}) but no {checkpoints.META_PROPERTIES}: it does not say whose data that is, so "
        f"nothing is written to it. Restore {checkpoints.META_PROPERTIES} from a backup, or by `tailrace format` with "
        "--cluster-id and --directory-id; or choose another folder (log.dirs, --data)."
    )


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
