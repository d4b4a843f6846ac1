"""One data folder: who may use it, which logs lie in it, and what it knows about them between two runs.

    meta.properties                    whose data it is: node, cluster, and an id of the folder itself
    .lock                              one process at a time
    .kafka_cleanshutdown               the last stop was clean; taken away right after the start
    recovery-point-offset-checkpoint   per log: all below is on the device; after a clean stop the log end
    log-start-offset-checkpoint        per log: what DeleteRecords and retention left
    replication-offset-checkpoint      per log: the high watermark, for the replica's next start
    cleaner-offset-checkpoint          per log: compaction has come this far
    <topic>-<partition>                a log
    <topic>-<partition>.<id>-delete    a deleted log, removed after file.delete.delay.ms or at the next start
    <topic>-<partition>.<id>-stray     a log that the metadata does not know: kept until someone looks

A broker with several data folders has several of these. Rules: the mark is written last, after every log has been
stored and synced; a log that cannot be opened is offline and does not keep the others from opening.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tailrace.log import checkpoints
from tailrace.log.log import Log
from tailrace.log.segments import disk_errors
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, PartitionIndex, TopicPartition, Uuid, parse_uuid, uuid_text
from tailrace.model.ports import Clock, Disk, Lock, Random

LOCK_FILE = ".lock"
_DELETE_SUFFIX = "-delete"
_TEMPORARY_SUFFIX = ".tmp"  # a checkpoint that was being replaced
_STRAY_SUFFIX = "-stray"
# Of a file name, on every file system that matters.
_NAME_LENGTH_MAX = 255
# Deleted logs that the checkpoints still tell of, before these are written anew.
_STALE_MAX = 1000

log = events.logger("log.directory")


class _Removal(NamedTuple):
    due_ms: int
    folder: str


class LogDirectory:
    """Opened by `LogDirectory.open`, which takes the lock; `close` gives it back."""

    def __init__(self, disk: Disk, clock: Clock, random: Random, path: str, *, lock: Lock, directory_id: Uuid) -> None:
        self.path = path
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, str] = {}  # logs that could not be opened, and why
        self._disk = disk
        self._clock = clock
        self._random = random
        self._lock: Lock | None = lock
        self._removals: list[_Removal] = []
        self._asked: dict[str, tuple[int, Mapping[TopicPartition, int]]] = {}  # of each checkpoint: version, content
        # Logs that are gone, while the files may still tell of them. Offsets of an old log must not be taken for those
        # of a new one with its name: its records could all lie below the log start offset, and be dropped.
        self._stale: set[TopicPartition] = set()
        mark = checkpoints.read_clean_mark(disk, path)
        self.was_clean = mark is not None
        broker_epoch = mark.get("brokerEpoch") if mark else None
        self.previous_broker_epoch = broker_epoch if isinstance(broker_epoch, int) else -1
        # What the last run left; an entry is replaced by that of the log once it is open.
        self._recovery_points = checkpoints.read_offsets(disk, path, checkpoints.RECOVERY_POINTS)
        self._log_start_offsets = checkpoints.read_offsets(disk, path, checkpoints.LOG_START_OFFSETS)
        self._cleaned_offsets = checkpoints.read_offsets(disk, path, checkpoints.CLEANER_OFFSETS)

    @classmethod
    def open(
        cls, disk: Disk, clock: Clock, random: Random, path: str, *, node_id: int, cluster_id: str
    ) -> "LogDirectory":
        """Takes possession of the folder, making it if it is not there. Opens no log yet. Raises StorageError with
        cause and remedy where it cannot be had."""
        lock = _take_lock(disk, path)
        try:
            directory_id = _settle_identity(disk, random, path, node_id=node_id, cluster_id=cluster_id)
            directory = cls(disk, clock, random, path, lock=lock, directory_id=directory_id)
            # From here on a kill is an unclean stop.
            checkpoints.remove_clean_mark(disk, path)
            directory._take_stock(disk.list(path))
        except OSError as error:
            lock.release()
            raise _unusable(path, error) from error
        except StorageError:
            lock.release()
            raise
        return directory

    @staticmethod
    def stored_cluster_id(disk: Disk, path: str) -> str | None:
        """Of a folder that was used before; None if it is new."""
        properties = checkpoints.read_meta_properties(disk, path)
        return properties.get("cluster.id") if properties else None

    def _take_stock(self, names: list[str]) -> None:
        present = {partition for name in names if (partition := _parse_folder_name(name)) is not None}
        for offsets in (self._recovery_points, self._log_start_offsets, self._cleaned_offsets):
            for gone in offsets.keys() - present:
                del offsets[gone]
                self._stale.add(gone)
        self._removals.extend(_Removal(0, f"{self.path}/{name}") for name in names if name.endswith(_DELETE_SUFFIX))
        for name in names:
            if name.endswith(_TEMPORARY_SUFFIX):
                self._disk.remove(f"{self.path}/{name}")

    # Logs

    def partitions_on_disk(self) -> list[TopicPartition]:
        """Of which there is a folder, open or not."""
        partitions = map(_parse_folder_name, self._disk.list(self.path))
        return [partition for partition in partitions if partition is not None]

    def may_hold(self, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the folder holds this topic's log, or nothing: a topic that was deleted and made again has the same
        name but another id."""
        return checkpoints.read_topic_id(self._disk, f"{self.path}/{topic_partition}") in (None, topic_id)

    def open_log(self, topic_partition: TopicPartition, config: TopicConfig, *, topic_id: Uuid | None = None) -> Log:
        """The open log, or that in the folder, or a new one. Raises StorageError."""
        opened = self.logs.get(topic_partition)
        if opened is not None:
            return opened
        recovery_point = self._recovery_points.get(topic_partition)
        try:
            if topic_partition in self._stale:
                with disk_errors(f"the checkpoints in {self.path} still tell of an earlier {topic_partition}"):
                    self._drop_stale()
            opened = Log.open(
                self._disk,
                self._clock,
                f"{self.path}/{topic_partition}",
                config,
                topic_partition=topic_partition,
                topic_id=topic_id,
                recovery_point=recovery_point or 0,
                log_start_offset=self._log_start_offsets.get(topic_partition, 0),
                cleaned_offset=self._cleaned_offsets.get(topic_partition, 0),
                is_clean=self.was_clean,
                log_end_hint=recovery_point,
            )
        except StorageError as error:
            self.offline[topic_partition] = str(error)
            raise
        self.offline.pop(topic_partition, None)
        opened.on_fall = self._checkpoint_now
        self.logs[topic_partition] = opened
        return opened

    def report_recovery(self) -> None:
        """Once the logs of the last run are open: says what it took, if that run did not stop cleanly."""
        recovered = [each.recovery for each in self.logs.values() if each.recovery is not None]
        if recovered:
            log.info(
                "recovered after an unclean stop",
                folder=self.path,
                logs=len(recovered),
                scanned_bytes=sum(each.scanned_bytes for each in recovered),
                cut_bytes=sum(each.cut_bytes for each in recovered),
                ms=round(sum(each.duration_ms for each in recovered)),
            )

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """The name is free at once; the files go after file.delete.delay.ms. Raises StorageError."""
        folder = f"{self.path}/{topic_partition}"
        opened = self.logs.pop(topic_partition, None)
        delay_ms = 0
        if opened is not None:
            delay_ms = opened.config.file_delete_delay_ms
            opened.close(clean=False)
        target = self._set_aside(topic_partition, _DELETE_SUFFIX)
        if target is None:
            log.warning("the folder of a deleted log was gone already", folder=folder)
        else:
            self._removals.append(_Removal(self._clock.wall_ms() + delay_ms, target))

    def set_stray_aside(self, topic_partition: TopicPartition) -> str | None:
        """A log that the metadata does not know gives up its name but keeps its files, for as well the metadata may
        be what was lost. Gives its new folder. Raises StorageError."""
        return self._set_aside(topic_partition, _STRAY_SUFFIX)

    def _set_aside(self, topic_partition: TopicPartition, suffix: str) -> str | None:
        """None if there was nothing."""
        folder = f"{self.path}/{topic_partition}"
        ending = f"-{topic_partition.partition}.{self._random.uuid().hex()}{suffix}"
        target = f"{self.path}/{topic_partition.topic[: _NAME_LENGTH_MAX - len(ending)]}{ending}"
        try:
            self._disk.rename(folder, target)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{folder} cannot be renamed: {error}") from error
        finally:
            self.offline.pop(topic_partition, None)
            self._recovery_points.pop(topic_partition, None)
            self._log_start_offsets.pop(topic_partition, None)
            self._cleaned_offsets.pop(topic_partition, None)
            self._stale.add(topic_partition)
            if len(self._stale) > _STALE_MAX:
                with suppress(OSError):
                    self._drop_stale()
        return target

    def _drop_stale(self) -> None:
        """Durably, on the loop: a log is seldom made right after one of its name was deleted. OSError."""
        self._checkpoint_now()
        cleaned = checkpoints.read_offsets(self._disk, self.path, checkpoints.CLEANER_OFFSETS)
        if not self._stale.isdisjoint(cleaned):
            left = {partition: offset for partition, offset in cleaned.items() if partition not in self._stale}
            checkpoints.write_offsets(self._disk, self.path, checkpoints.CLEANER_OFFSETS, left)
        self._stale.clear()

    # Checkpoints

    def begin_checkpoint(self) -> Callable[[], None]:
        """Work for Background that stores recovery points and log start offsets as they are now. It raises OSError."""
        write_recovery_points = self.begin_recovery_point_checkpoint()
        write_log_start_offsets = self.begin_log_start_checkpoint()

        def work() -> None:
            write_recovery_points()
            write_log_start_offsets()

        return work

    def begin_recovery_point_checkpoint(self) -> Callable[[], None]:
        """The one half of `begin_checkpoint`."""
        self._recovery_points.update({partition: each.recovery_point for partition, each in self.logs.items()})
        return self._writer(checkpoints.RECOVERY_POINTS, dict(self._recovery_points))

    def begin_log_start_checkpoint(self) -> Callable[[], None]:
        """The other half."""
        self._log_start_offsets.update({partition: each.log_start_offset for partition, each in self.logs.items()})
        moved = {partition: offset for partition, offset in self._log_start_offsets.items() if offset > 0}
        return self._writer(checkpoints.LOG_START_OFFSETS, moved)

    def _checkpoint_now(self) -> None:
        self.begin_checkpoint()()

    def _writer(self, name: str, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Work that stores a checkpoint, or a later one of its name that has been asked for meanwhile: work in
        Background may come late, and an old recovery point could be ahead of a log that was cut."""
        self._asked[name] = self._asked.get(name, (0, offsets))[0] + 1, offsets

        def work() -> None:
            stored = 0
            while (asked := self._asked[name])[0] != stored:
                stored = asked[0]
                checkpoints.write_offsets(self._disk, self.path, name, asked[1])

        return work

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return checkpoints.read_offsets(self._disk, self.path, checkpoints.HIGH_WATERMARKS)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """OSError."""
        checkpoints.write_offsets(self._disk, self.path, checkpoints.HIGH_WATERMARKS, offsets, sync=False)

    # Housekeeping

    def begin_removal(self, now_ms: int) -> Callable[[], None] | None:
        """Work for Background that removes what was deleted and is due; None if nothing is. What it cannot remove
        (it raises OSError) is left for the next start."""
        due = [each.folder for each in self._removals if each.due_ms <= now_ms]
        self._removals = [each for each in self._removals if each.due_ms > now_ms]
        segments = [segment for each in self.logs.values() for segment in each.take_due_segments(now_ms)]
        if not due and not segments:
            return None

        def work() -> None:
            for segment in segments:
                segment.remove()
            for folder in due:
                self._disk.remove_folder(folder)

        return work

    def close_idle_handles(self) -> int:
        """Closes the handles that nobody used since the last call; returns how many are open."""
        return sum(each.close_idle_handles() for each in self.logs.values())

    def begin_storing(self) -> list[Callable[[], None]]:
        """Before a clean close: work for Background, one piece a log, several of which may run at the same time."""
        return [partial(_store, each) for each in self.logs.values() if not each.is_stored]

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """With `clean`, stores and syncs every log, then says so in the mark. A log that fails costs the mark, and
        nothing else: its next start scans. Without `clean` only the handles and the lock are given back."""
        if self._lock is None:
            return
        try:
            is_stored = clean and not self.offline
            for each in self.logs.values():
                try:
                    each.close(clean=clean)
                    is_stored = is_stored and not each.is_offline
                except StorageError as error:
                    is_stored = False
                    log.error(
                        "a log could not be stored: the next start scans it",
                        partition=each.topic_partition,
                        cause=error,
                    )
            if clean:
                self.begin_checkpoint()()
            if is_stored:
                checkpoints.write_clean_mark(self._disk, self.path, broker_epoch=broker_epoch)
        except OSError as error:
            log.error("the data folder could not be closed cleanly", folder=self.path, cause=error)
        finally:
            self._lock.release()
            self._lock = None
            self.logs.clear()


def _store(opened: Log) -> None:
    with suppress(StorageError):  # `close` tries again, and reports.
        opened.store()


def _take_lock(disk: Disk, path: str) -> Lock:
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
        raise _unusable(path, error) from error


def _unusable(path: str, error: OSError) -> StorageError:
    return StorageError(
        f"The data folder {path} cannot be used: {error}. Make it a folder that this user may write to, "
        "with space left, or choose another one (log.dirs, --data)."
    )


def _settle_identity(disk: Disk, random: Random, path: str, *, node_id: int, cluster_id: str) -> Uuid:
    """Checks that the folder is this node's, or makes it so; returns its directory id."""
    file = f"{path}/{checkpoints.META_PROPERTIES}"
    try:
        stored = checkpoints.read_meta_properties(disk, path)
    except StorageError as error:
        raise StorageError(f"{file} is damaged ({error}): restore it, or remove the folder to start anew.") from error
    if stored is None:
        stored = {"version": "1", "node.id": str(node_id), "cluster.id": cluster_id}
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


def _parse_folder_name(name: str) -> TopicPartition | None:
    topic, dash, partition = name.rpartition("-")
    # The metadata log lies beside the others but belongs to the quorum: as a stray it would be deleted.
    if not topic or not dash or not partition.isdecimal() or topic == CLUSTER_METADATA_TOPIC:
        return None
    return TopicPartition(topic, PartitionIndex(int(partition)))
