"""One data folder: who may use it, which logs lie in it, and what it knows about them between two runs.

    meta.properties                    whose data it is: node, cluster, and an id of the folder itself
    .lock                              one process at a time
    .kafka_cleanshutdown               the last stop was clean; taken away right after the start
    .tailrace_running                  in which boot, and as which broker epoch, it is in use (`marks`)
    recovery-point-offset-checkpoint   per log: all below is on the device; after a clean stop the log end
    log-start-offset-checkpoint        per log: what DeleteRecords and retention left
    replication-offset-checkpoint      per log: the high watermark, for the replica's next start
    cleaner-offset-checkpoint          per log: compaction has come this far
    <topic>-<partition>                a log
    <topic>-<partition>.<id>-delete    a deleted log, removed after file.delete.delay.ms or at the next start
    <topic>-<partition>.<id>-future    a copy of a log in another folder, which it is to replace once it has caught up
    <topic>-<partition>.<id>-stray     a log that the metadata does not know: kept until someone looks

A broker with several data folders has several of these. Rules:
  - The clean mark is written last, after every log has been stored and synced: a start that finds it scans nothing.
  - A log that cannot be opened is offline and does not keep the others from opening.
  - Where `fails_as_whole` (there are other folders, or other brokers, to go on with), a device that fails takes the
    folder offline with all its logs, until a restart. Otherwise what still works is better than nothing: only a log
    whose sync has failed goes offline.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tailrace.log import checkpoints, run_marks
from tailrace.log.files.failures import disk_errors, is_device_error
from tailrace.log.files.names import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    parse_folder_name,
    unique_folder_name,
)
from tailrace.log.files.segments import remove_deleted
from tailrace.log.identity import settle_identity, take_lock, unusable
from tailrace.log.log import Log
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.model.ports import Clock, Disk, Lock, Random
from tailrace.model.settings import INT_MAX

_TEMPORARY_SUFFIX = ".tmp"  # a checkpoint that was being replaced
# Deleted logs that the checkpoints still tell of, before these are written anew.
_STALE_MAX = 1000

log = events.logger("log.directory")


class _Removal(NamedTuple):
    due_ms: float  # By the monotonic clock.
    folder: str


class LogDirectory:
    """Opened by `LogDirectory.open`, which takes the lock; `close` gives it back."""

    def __init__(self, disk: Disk, clock: Clock, random: Random, path: str, *, lock: Lock, directory_id: Uuid) -> None:
        self.path = path
        self.directory_id = directory_id
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}  # copies that are being made here (KIP-113)
        self.offline: dict[TopicPartition, str] = {}  # logs that could not be opened, and why
        self.offline_reason: str | None = None  # of the whole folder; its logs are offline with it
        self.fails_as_whole = False
        self.on_offline: Callable[[], None] = lambda: None  # on the loop, once
        self.on_log_broken: Callable[[TopicPartition], None] = lambda _: None  # on the loop, once for each log
        self._disk = disk
        self._clock = clock
        self._random = random
        self._is_closing = False
        self._was_used = False  # a log was opened, or tried to be
        self._lock: Lock | None = lock
        self._removals: list[_Removal] = []
        # Logs that are gone, while the files may still tell of them. Offsets of an old log must not be taken for those
        # of a new one with its name: its records could all lie below the log start offset, and be dropped.
        self._stale: set[TopicPartition] = set()
        self.proof = run_marks.Proof(disk, path)
        self.was_clean = self.proof.last_run.was_clean
        self.previous_broker_epoch = self.proof.last_run.broker_epoch  # -1: nothing proves that all it had is here
        # What the last run left; an entry is replaced by that of the log once it is open.
        self._recovery_point_file = checkpoints.OffsetCheckpoint(disk, path, checkpoints.RECOVERY_POINTS)
        self._log_start_file = checkpoints.OffsetCheckpoint(disk, path, checkpoints.LOG_START_OFFSETS)
        self._cleaner_file = checkpoints.OffsetCheckpoint(disk, path, checkpoints.CLEANER_OFFSETS)
        self._recovery_points = self._recovery_point_file.read()
        self._log_start_offsets = self._log_start_file.read()
        self._cleaned_offsets = self._cleaner_file.read()
        # Called before a log is cut at an offset. A cleaner takes this over, since it knows newer offsets.
        self.before_cuts: list[Callable[[Log, int], None]] = []  # told of each, as a copy of the log must be cut too
        self.lower_cleaned_offset: Callable[[TopicPartition, int], None] = self._lower_cleaned_offset

    @classmethod
    def open(
        cls, disk: Disk, clock: Clock, random: Random, path: str, *, node_id: int, cluster_id: str
    ) -> "LogDirectory":
        """Takes possession of the folder, making it if it is not there. Opens no log yet. Raises StorageError with
        cause and remedy where it cannot be had."""
        lock = take_lock(disk, path)
        try:
            directory_id = settle_identity(disk, random, path, node_id=node_id, cluster_id=cluster_id)
            directory = cls(disk, clock, random, path, lock=lock, directory_id=directory_id)
            directory.proof.begin_run()
            directory._take_stock(disk.list(path))
        except OSError as error:
            lock.release()
            raise unusable(path, error) from error
        except StorageError:
            lock.release()
            raise
        return directory

    @staticmethod
    def stored_cluster_id(disk: Disk, path: str) -> str | None:
        """The cluster id of a folder that was used before; None if it is new, or cannot be read: `open` will tell why.
        StorageError if the file is damaged."""
        try:
            properties = checkpoints.read_meta_properties(disk, path)
        except OSError:
            return None
        return properties.get("cluster.id") if properties else None

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def fail(self, reason: str) -> None:
        """The device has failed: nothing here is served any more until a restart."""
        self.proof.withdraw()
        if self.is_offline or self._is_closing:
            return
        self.offline_reason = reason
        log.error("a data folder went offline", folder=self.path, logs=len(self.logs), cause=reason)
        for each in (*self.logs.values(), *self.futures.values()):
            each.files.take_offline(f"its data folder failed ({reason})")
        self.on_offline()

    def judge(self, error: OSError | StorageError) -> None:
        """Whoever meets an error of the disk tells it here. On the loop."""
        if self.fails_as_whole and is_device_error(error):
            self.fail(str(error))

    def _on_log_offline(self, reason: str) -> None:
        if self.fails_as_whole:
            self.fail(reason)
        else:
            self.proof.withdraw()

    def _on_log_broken(self, topic_partition: TopicPartition) -> None:
        """An invariant does not hold. Until the controller knows (`proof.resume`) the folder proves nothing."""
        try:
            self.proof.suspend()
        except OSError:
            self.proof.withdraw()
        self.on_log_broken(topic_partition)

    def _take_stock(self, names: list[str]) -> None:
        present = {partition for name in names if (partition := parse_folder_name(name)) is not None}
        for offsets in (self._recovery_points, self._log_start_offsets, self._cleaned_offsets):
            for gone in offsets.keys() - present:
                del offsets[gone]
                self._stale.add(gone)
        self._removals.extend(_Removal(0, f"{self.path}/{name}") for name in names if name.endswith(DELETE_SUFFIX))
        for name in names:
            if name.endswith(_TEMPORARY_SUFFIX):
                self._disk.remove(f"{self.path}/{name}")
        if not present:
            # From now on a file that is missing was lost, and an offset that is missing in it is 0.
            self._log_start_file.begin_write({})()

    # Logs

    def partitions_on_disk(self) -> list[TopicPartition]:
        """The partitions that have a folder, open or not."""
        partitions = map(parse_folder_name, self._list())
        return [partition for partition in partitions if partition is not None]

    def _list(self) -> list[str]:
        """OSError, unless the folder went offline with it."""
        try:
            return self._disk.list(self.path)
        except OSError as error:
            self.judge(error)
            if self.is_offline:
                return []
            raise

    def may_hold(self, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the folder holds this topic's log, or nothing: a topic that was deleted and made again has the same
        name but another id."""
        return checkpoints.read_topic_id(self._disk, f"{self.path}/{topic_partition}", topic_id) in (None, topic_id)

    def open_log(
        self,
        topic_partition: TopicPartition,
        config: TopicConfig,
        *,
        topic_id: Uuid | None = None,
        leader_epoch: int = INT_MAX,
    ) -> Log:
        """The open log, or that in the folder, or a new one. Raises StorageError."""
        opened = self.logs.get(topic_partition)
        if opened is not None:
            return opened
        if self.is_offline:
            raise StorageError(f"the data folder {self.path} is offline: {self.offline_reason}")
        self._was_used = True
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
                # Kafka's brokers store it after segments have gone.
                is_start_proved=self._log_start_file.was_found and self.proof.last_run.is_marked_by_us,
                cleaned_offset=self._cleaned_offsets.get(topic_partition, 0),
                is_clean=self.was_clean,
                log_end_hint=recovery_point,
                leader_epoch=leader_epoch,
                before_damage_is_cut=self.proof.suspend,
            )
        except StorageError as error:
            self.offline[topic_partition] = str(error)
            self.judge(error)
            raise
        self.offline.pop(topic_partition, None)
        self._adopt(opened)
        return opened

    def _adopt(self, opened: Log) -> None:
        opened.before_cut = partial(self._before_cut, opened)
        opened.files.on_broken = self._on_log_broken
        opened.files.on_offline = self._on_log_offline
        opened.files.on_disk_error = self.judge
        self.logs[opened.topic_partition] = opened

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
        target = self._set_aside(topic_partition, DELETE_SUFFIX)
        if target is None:
            log.warning("the folder of a deleted log was gone already", folder=folder)
        else:
            self._removals.append(_Removal(self._clock.monotonic_ms() + delay_ms, target))

    def set_stray_aside(self, topic_partition: TopicPartition) -> str | None:
        """A log that the metadata does not know gives up its name but keeps its files, for as well the metadata may
        be what was lost. Gives its new folder. Raises StorageError."""
        return self._set_aside(topic_partition, STRAY_SUFFIX)

    # Copies of logs that move here from another folder

    def partitions_to_come(self) -> list[TopicPartition]:
        """The partitions of which an earlier run began a copy here. OSError."""
        names = [name.rpartition(".")[0] for name in self._list() if name.endswith(FUTURE_SUFFIX)]
        return [partition for partition in map(parse_folder_name, names) if partition is not None]

    def open_future(self, topic_partition: TopicPartition, config: TopicConfig, *, topic_id: Uuid) -> Log:
        """The copy that was begun, or a new one. No checkpoint tells of it: nothing counts as synced. StorageError."""
        if self.is_offline:
            raise StorageError(f"the data folder {self.path} is offline: {self.offline_reason}")
        self._was_used = True
        name = self._find_future(topic_partition) or unique_folder_name(topic_partition, self._random, FUTURE_SUFFIX)
        try:
            opened = Log.open(
                self._disk,
                self._clock,
                f"{self.path}/{name}",
                config,
                topic_partition=topic_partition,
                topic_id=topic_id,
            )
        except StorageError as error:
            self.judge(error)
            raise
        opened.files.on_offline = self._on_log_offline
        opened.files.on_disk_error = self.judge
        self.futures[topic_partition] = opened
        return opened

    def promote_future(self, topic_partition: TopicPartition) -> Log:
        """The copy becomes the log; its new name is synced with its next sync. StorageError, and then it is a copy."""
        future = self.futures[topic_partition]
        with disk_errors(f"{future.folder} cannot be renamed", self.judge):
            if topic_partition in self._stale:
                self._drop_stale()
            self._log_start_offsets[topic_partition] = future.log_start_offset
            self.begin_log_start_checkpoint()()
            future.files.move_to(f"{self.path}/{topic_partition}")
        del self.futures[topic_partition]
        self._adopt(future)
        return future

    def delete_future(self, topic_partition: TopicPartition) -> None:
        """The copy, open or left by an earlier run, is not wanted any more. Raises StorageError."""
        future = self.futures.pop(topic_partition, None)
        if future is not None:
            future.close(clean=False)
        name = self._find_future(topic_partition)
        if name is not None:
            target = f"{self.path}/{unique_folder_name(topic_partition, self._random, DELETE_SUFFIX)}"
            with disk_errors(f"{self.path}/{name} cannot be renamed", self.judge):
                self._disk.rename(f"{self.path}/{name}", target)
            self._removals.append(_Removal(0, target))

    def _find_future(self, topic_partition: TopicPartition) -> str | None:
        with disk_errors(f"{self.path} cannot be read"):
            names = [name for name in self._list() if name.endswith(FUTURE_SUFFIX)]
        return next((name for name in names if parse_folder_name(name.rpartition(".")[0]) == topic_partition), None)

    def _set_aside(self, topic_partition: TopicPartition, suffix: str) -> str | None:
        """None if there was nothing."""
        folder = f"{self.path}/{topic_partition}"
        target = f"{self.path}/{unique_folder_name(topic_partition, self._random, suffix)}"
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
        self.begin_checkpoint()()
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
        self._recovery_points.update(self._offsets_of_logs(lambda each: each.recovery_point))
        return self._recovery_point_file.begin_write(dict(self._recovery_points))

    def begin_log_start_checkpoint(self) -> Callable[[], None]:
        """The other half."""
        self._log_start_offsets.update(self._offsets_of_logs(lambda each: each.log_start_offset))
        moved = {partition: offset for partition, offset in self._log_start_offsets.items() if offset > 0}
        return self._log_start_file.begin_write(moved)

    def _offsets_of_logs(self, offset_of: Callable[[Log], int]) -> dict[TopicPartition, int]:
        """For one that is offline stays what was stored: what it believes since then may be wrong."""
        return {partition: offset_of(each) for partition, each in self.logs.items() if not each.is_offline}

    def _before_cut(self, opened: Log, offset: int) -> None:
        """No checkpoint, stored or on its way, may be ahead of a log: a start would take it for damaged. OSError."""
        for tell in self.before_cuts:
            tell(opened, offset)
        self.lower_cleaned_offset(opened.topic_partition, offset)
        if self._recovery_point_file.highest(opened.topic_partition) > opened.recovery_point:
            self._lower_recovery_points()
        if self._log_start_file.highest(opened.topic_partition) > opened.log_start_offset:
            self.begin_log_start_checkpoint()()

    def _lower_recovery_points(self) -> None:
        """Lowers those of all logs to where their last segments begin. When leaders change, many logs are cut, most of
        them in the last segment: they find this done, and need no write each. Recovery scans whole segments anyway."""
        lowered = self._offsets_of_logs(lambda each: min(each.recovery_point, each.active.base_offset))
        self._recovery_points.update(lowered)
        self._recovery_point_file.begin_write(dict(self._recovery_points))()

    def _lower_cleaned_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """OSError."""
        if self._cleaner_file.highest(topic_partition) > offset:
            self._cleaned_offsets[topic_partition] = offset
            self._cleaner_file.begin_write(dict(self._cleaned_offsets))()

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return checkpoints.read_offsets(self._disk, self.path, checkpoints.HIGH_WATERMARKS)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """OSError."""
        checkpoints.write_offsets(self._disk, self.path, checkpoints.HIGH_WATERMARKS, offsets, sync=False)

    # Housekeeping

    def begin_removal(self, now_ms: float) -> Callable[[], None] | None:
        """Work for Background that removes what was deleted and is due; None if nothing is. What it cannot remove
        (it raises OSError) is left for the next start."""
        due = [each.folder for each in self._removals if each.due_ms <= now_ms]
        self._removals = [each for each in self._removals if each.due_ms > now_ms]
        segments = [segment for each in self.logs.values() for segment in each.files.segments.take_due(now_ms)]
        if not due and not segments:
            return None
        store_log_starts = self.begin_log_start_checkpoint() if segments else None

        def work() -> None:
            if store_log_starts is not None:
                remove_deleted(self._disk, segments, store_log_starts)
            for folder in due:
                self._disk.remove_folder(folder)

        return work

    def close_idle_handles(self) -> int:
        """Closes the handles that nobody used since the last call; returns how many are open."""
        return sum(each.files.segments.close_idle_handles() for each in self.logs.values())

    def begin_storing(self) -> list[Callable[[], None]]:
        """Before a clean close: work for Background, one piece a log, several of which may run at the same time."""
        self._is_closing = True
        return [partial(_store, each) for each in self.logs.values() if not each.files.is_stored]

    def close(self, *, clean: bool = True, broker_epoch: int = run_marks.NO_BROKER_EPOCH) -> None:
        """With `clean`, stores and syncs every log, then says so in the mark, with the epoch of this run; of one that
        was never registered, with that of the run before. A log that fails costs the mark, and nothing else: its next
        start scans. Without `clean` only the handles and the lock are given back; of a start that was refused before it
        opened a log, also the clean mark that it found."""
        if self._lock is None:
            return
        self._is_closing = True
        clean = clean and not self.is_offline
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
            for each in self.futures.values():
                each.close(clean=False)
            if is_stored or (self.was_clean and not self._was_used and not self.is_offline):
                self.proof.end_run(broker_epoch)
        except OSError as error:
            log.error("the data folder could not be closed cleanly", folder=self.path, cause=error)
        finally:
            self._lock.release()
            self._lock = None
            self.logs.clear()
            self.futures.clear()


def _store(opened: Log) -> None:
    with suppress(StorageError):  # `close` tries again, and reports.
        opened.store()
