"""The files of one log as a whole: how they are written, read and cut, how much is on the device, and how they end.

Owns the segments, the snapshots of producers, the leader epochs, the recovery point, what is known of damage, and
whether the log can be used at all (`offline_reason`). Which offsets there are is `log.Log`'s: it tells them.

Rules:
  - A failed sync takes the log offline until a restart recovers it: the kernel may have dropped what it could not
    write, so a second sync that succeeds would prove nothing.
  - Whatever the disk refuses is told to `on_disk_error` first: a device that has failed is more than this log's matter.
  - A broken invariant takes the log offline as well (`give_up`): what is in memory may be wrong while the files are
    right, so nothing of it may get into them, and no reader may see it.
  - Where damage is known a read ends before it, and one that begins in it gets CORRUPT_MESSAGE (`files.damaged`).
"""

from collections.abc import Callable, Sequence

from tailrace.log.files.aborted import AbortedTransaction
from tailrace.log.files.damaged import DamagedError, KnownDamage
from tailrace.log.files.durability import Durability
from tailrace.log.files.failures import disk_errors
from tailrace.log.files.replay import load_producers
from tailrace.log.files.segment import LOG_SUFFIX, MAX_RELATIVE_OFFSET, Segment
from tailrace.log.files.segments import Found, RollPolicy, Segments, StuckSwapError
from tailrace.log.producers import ProducerStates
from tailrace.log.recovery import LoadedLog
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Clock, Disk, FileSlice

events_log = events.logger("log")


class LogFiles:
    def __init__(self, disk: Disk, clock: Clock, folder: str, config: TopicConfig, loaded: LoadedLog) -> None:
        self.disk = disk
        self.folder = folder
        self.segments = Segments(loaded.segments, loaded.deleted)
        self.snapshots = loaded.snapshots
        self.epochs = loaded.epochs
        self.durability = Durability(disk, folder, self.epochs, loaded.ledger, recovery_point=loaded.recovery_point)
        self.damage = KnownDamage(loaded.topic_partition)
        self.is_stored = loaded.is_stored  # a start would find all that is to be known
        self.last_flush_ms = clock.monotonic_ms()
        self.offline_reason: str | None = None
        self.on_offline: Callable[[str], None] | None = None  # with the reason; once
        self.on_disk_error: Callable[[OSError], None] | None = None
        self.on_broken: Callable[[TopicPartition], None] | None = None  # after an invariant was found broken; once
        self._topic_partition = loaded.topic_partition
        self._clock = clock
        self._config = config
        self._roll_policy = RollPolicy(config, clock)
        self._is_closed = False

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def configure(self, config: TopicConfig) -> None:
        self._config = config
        self.segments.active.configure(config)
        self._roll_policy = RollPolicy(config, self._clock)

    def move_to(self, folder: str) -> None:
        """Renames the folder. Nothing may be under way in Background. OSError, and then nothing has changed."""
        self.disk.rename(self.folder, folder)
        self.folder = folder
        self.segments.move_to(folder)
        self.durability.move_to(folder)
        self.snapshots.move_to(folder)
        self.epochs.move_to(folder)

    # Writing

    def write(
        self,
        views: Sequence[memoryview],
        size_bytes: int,
        end_offset: int,
        last_offset: int,
        max_timestamp: int,
        *,
        producers: ProducerStates,
        is_numbered: bool = False,
    ) -> Segment:
        """One write at the end of the log: to the active segment, or to a new one where that has had its time. What a
        leader has numbered was let in there, and goes into a segment of its own if segment.bytes has become smaller
        since. If it raises StorageError nothing has changed."""
        if self.offline_reason is not None:
            self.check_online()
        active, policy = self.segments.active, self._roll_policy
        if (
            active.size_bytes + size_bytes > policy.segment_bytes
            or max_timestamp > policy.newest_timestamp
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.is_index_full
        ):
            if not is_numbered:
                policy.check_fits(size_bytes)
            with self.disk_errors(f"{self.folder} cannot be read"):
                is_due = policy.is_due(active, size_bytes, last_offset, max_timestamp)
            if is_due:
                active = self.roll(end_offset, producers)
        try:
            active.write_all(views, size_bytes)
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and self.on_disk_error is not None:
                self.on_disk_error(error.__cause__)
            raise
        self.is_stored = False
        return active

    def note_changed(self) -> None:
        """Something that the files do not tell: they have to be stored before a start can do without a look."""
        self.is_stored = False

    def check_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"the log of {self._topic_partition} is offline: {self.offline_reason}")

    @property
    def segment_bytes(self) -> int:
        """What a segment may hold."""
        return self._roll_policy.segment_bytes

    def roll(self, end_offset: int, producers: ProducerStates) -> Segment:
        """Closes the active segment and begins a new one at the log end. An empty one is kept. StorageError."""
        active = self.segments.active
        if active.base_offset == end_offset:
            return active
        with self.disk_errors(f"{self.folder} cannot be given a new segment"):
            active.seal()
            self.snapshots.write(end_offset, producers.snapshot())
            segment = self._create_segment(end_offset)
        self.segments.add(segment)
        self.durability.note_names_changed()
        self._roll_policy.rearm()
        self.is_stored = False
        return segment

    def _create_segment(self, base_offset: int) -> Segment:
        now_ms = self._clock.wall_ms()
        return Segment.create(self.disk, self.folder, base_offset, config=self._config, created_ms=now_ms)

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        log_end_offset: int,
        gapless_from: int,
        at_least_one_batch: bool,
    ) -> FileSlice | None:
        """As `Log.read`, of an offset that is in the log."""
        damage = self.damage
        if damage.ranges:
            end_offset = damage.end_before(offset, end_offset)
        if offset < self.segments.active.base_offset:
            damage.note_read(offset)
        try:
            with self.disk_errors(f"{self.folder} cannot be read"):
                return self.segments.read(
                    offset,
                    max_bytes,
                    end_offset=end_offset,
                    log_end_offset=log_end_offset,
                    gapless_from=gapless_from,
                    at_least_one_batch=at_least_one_batch,
                )
        except DamagedError as error:
            raise damage.corrupt(error) from error

    def find_aborted(self, slice_: FileSlice, offset: int, *, end_offset: int) -> list[AbortedTransaction]:
        """What a reader at read_committed has to pass over in a slice that was read from `offset` on, up to
        `end_offset`. StorageError."""
        with self.disk_errors(f"{self.folder} cannot be read"):
            return self.segments.find_aborted(slice_, offset, end_offset=end_offset)

    def find_aborted_before(self, end_offset: int, *, from_offset: int) -> list[AbortedTransaction]:
        """Those of this log that began before `end_offset`, for a reader who was given older records. StorageError."""
        with self.disk_errors(f"{self.folder} cannot be read"):
            found: list[AbortedTransaction] = []
            for segment in self.segments.all:
                for aborted in segment.aborted.from_offset(from_offset):
                    if aborted.first_offset < end_offset:
                        found.append(aborted)
                    if aborted.last_stable_offset >= end_offset:
                        return found  # Whatever was aborted later began later.
            return found

    def find_timestamp(self, timestamp: int | None, start_offset: int, max_decompressed_bytes: int) -> Found | None:
        """The first record whose timestamp is >= `timestamp`; without one, the first that has the largest of all."""
        try:
            with self.disk_errors(f"{self.folder} cannot be read"):
                if timestamp is None:
                    return self.segments.find_max_timestamp(start_offset, max_decompressed_bytes)
                return self.segments.find_timestamp(timestamp, start_offset, max_decompressed_bytes)
        except DamagedError as error:
            raise self.damage.corrupt(error) from error

    # Cutting

    def cut(self, offset: int, producers: ProducerStates) -> int:
        """The log ends at `offset` at the latest, which lies in a segment. Gives where it ends. StorageError."""
        segments = self.segments
        with self.disk_errors(f"{self.folder} cannot be truncated"):
            segments.delete([each for each in segments.all if each.base_offset > offset], due_ms=self._due_ms)
            segments.active.truncate(offset)
            end_offset = segments.active.read_next_offset()
        self._settle_cut(end_offset)
        self.epochs.truncate_from_end(end_offset)
        load_producers(producers, self.snapshots, segments.all, end_offset=end_offset, now_ms=self._clock.wall_ms())
        return end_offset

    def start_anew(self, offset: int) -> None:
        """Nothing is left; the log starts and ends at `offset`. StorageError."""
        with self.disk_errors(f"{self.folder} cannot be truncated"):
            self.segments.delete(self.segments.all, due_ms=self._due_ms)
            self.segments.start_anew(self._create_segment(offset))
            self.snapshots.clear()
        self.durability.start_anew(offset)
        self._settle_cut(offset)
        if self._config.remote_storage_enable:
            self.epochs.truncate_from_end(offset)  # What lies in the store has its history here.
        else:
            self.epochs.clear()

    def _settle_cut(self, end_offset: int) -> None:
        self.durability.note_names_changed()
        self._roll_policy.rearm()
        self.is_stored = False
        self._prune_snapshots(end_offset)

    def delete_before(self, start_offset: int, end_offset: int) -> int:
        """Segments that lie before the log start as a whole; gives how many. StorageError."""
        count = max(0, self.segments.floor(start_offset))
        if count == 0:
            return 0
        with self.disk_errors(f"{self.folder} cannot lose its expired segments"):
            self.segments.delete(self.segments.all[:count], due_ms=self._due_ms)
            self._prune_snapshots(end_offset)
        self.durability.note_names_changed()
        self.is_stored = False
        return count

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """As `Log.replace_segments`. StorageError."""
        try:
            with self.disk_errors(f"{self.folder} cannot take a cleaned segment"):
                self.segments.replace(old, new)
        except StorageError as error:
            if isinstance(error.__cause__, StuckSwapError):
                self._go_offline(f"a compaction was stopped halfway ({error}); restart once the disk is sound")
            raise
        self.durability.note_names_changed()
        self.is_stored = False

    @property
    def _due_ms(self) -> float:
        return self._clock.monotonic_ms() + self._config.file_delete_delay_ms

    def _prune_snapshots(self, end_offset: int) -> None:
        bases = {segment.base_offset for segment in self.segments.all}
        self.snapshots.prune(bases, end_offset=end_offset)

    # Syncing and closing

    @property
    def has_unsynced_closed_segments(self) -> bool:
        """A roll leaves one behind: it is to be synced soon, so that recovery has little to scan."""
        return self.durability.recovery_point < self.segments.active.base_offset

    def begin_sync(self, end_offset: int) -> Callable[[], None]:
        """As `Log.begin_sync`."""
        try:
            return self.durability.begin(self.segments, end_offset)
        except FileNotFoundError as error:
            lost = next((each for each in self.segments.all if each.path(LOG_SUFFIX) == error.filename), None)
            if lost is not None:
                self.damage.suspect(lost.base_offset, is_whole_segment=True)
            raise

    def mark_synced(self, end_offset: int) -> None:
        self.durability.end(end_offset)
        self.last_flush_ms = self._clock.monotonic_ms()

    def mark_sync_failed(self, end_offset: int, error: Exception) -> None:
        """An OSError takes the log offline: the kernel may have dropped what it could not write, so a second sync that
        succeeds would prove nothing."""
        self.durability.fail(end_offset)
        if isinstance(error, AssertionError):
            self.give_up(error)
        elif isinstance(error, OSError) and not self._is_closed:
            self._go_offline(f"a sync failed ({error}); restart the broker once the disk is sound")

    def take_offline(self, reason: str) -> None:
        """Its data folder has failed, which is reported there."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def _go_offline(self, reason: str) -> None:
        if self.offline_reason is None:
            self.offline_reason = reason
            events_log.error("a log went offline", partition=self._topic_partition, cause=reason)
            if self.on_offline is not None:
                self.on_offline(reason)

    def give_up(self, error: AssertionError) -> StorageError:
        """What must always hold of this log does not: a bug of ours, or memory that fails. Nothing is read, written or
        stored any more until a restart has checked the files. Gives what the caller may raise."""
        if self.offline_reason is None:
            self.offline_reason = f"an invariant of it is broken ({error}); restart the broker, which checks the log"
            events_log.error(
                "a partition went offline on this broker: what must hold of its log does not. Restart the broker: it "
                "checks the files then. If it happens again, remove the folder of this partition while the broker is "
                "stopped, and it is filled again from the other replicas",
                trace=error,
                partition=self._topic_partition,
                invariant=error,
                folder=self.folder,
            )
            if self.on_broken is not None:
                self.on_broken(self._topic_partition)
        return StorageError(f"the log of {self._topic_partition} is offline: {self.offline_reason}")

    def disk_errors(self, problem: str) -> disk_errors:
        return disk_errors(problem, self.on_disk_error)

    def store(self, end_offset: int, producers: ProducerStates) -> None:
        """As `Log.store`."""
        if self.is_stored or self.offline_reason is not None:
            return
        try:
            # The next start judges the segment by its indexes, and the producers by their snapshot: both are synced.
            self.segments.active.seal(sync=True)
            self.snapshots.write(end_offset, producers.snapshot(), sync=True)
            self._prune_snapshots(end_offset)
            if not self.durability.is_complete(self.segments, end_offset):
                work = self.begin_sync(end_offset)
                work()
                self.mark_synced(end_offset)
        except (OSError, StorageError, AssertionError) as error:
            self._go_offline(f"it could not be stored: {error}")
            raise StorageError(f"{self.folder} cannot be closed cleanly: {error}") from error
        self.is_stored = True

    def close(self) -> None:
        self._is_closed = True
        self.segments.release()
