"""A log as its files: what is in it, how it is read, how much of it is on the device, and how it ends.

Owns the state that `log.Log` appends to and cuts; changes no offset itself.

Rules:
  - A failed sync takes the log offline until a restart recovers it: the kernel may have dropped what it could not
    write, so a second sync that succeeds would prove nothing.
  - Whatever the disk refuses is told to `on_disk_error` first: a device that has failed is more than this log's matter.
  - Where damage is known a read ends before it, and one that begins in it gets CORRUPT_MESSAGE. Where a read meets
    bytes that are no batch, or is repeated as if its reader could not use what it got, the offset is noted in
    `suspects` for whoever checks segments (`scrub`).
"""

from collections.abc import Callable, Sequence
from typing import Self

from tailrace.log.files.aborted import AbortedTransaction
from tailrace.log.files.damaged import DamagedError, DamagedRange, Suspect
from tailrace.log.files.durability import Durability
from tailrace.log.files.failures import disk_errors
from tailrace.log.files.kept import CUT_SUFFIX, keep
from tailrace.log.files.segment import LOG_SUFFIX, Segment
from tailrace.log.files.segments import Found, RollPolicy, Segments
from tailrace.log.recovery import LoadedLog, LogLoader
from tailrace.log.scrub.rereads import Rereads
from tailrace.log.validation import DEFAULT_MAX_DECOMPRESSED_BYTES
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.model.ports import Clock, Disk, FileSlice
from tailrace.model.settings import INT_MAX

events_log = events.logger("log")

_NOWHERE = 1 << 62


class StoredLog:
    """Opened by `open`."""

    def __init__(self, disk: Disk, clock: Clock, folder: str, config: TopicConfig, loaded: LoadedLog) -> None:
        self.topic_partition = loaded.topic_partition
        self.topic_id = loaded.topic_id
        self.config = config
        self.folder = folder
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.last_flush_ms = clock.wall_ms()
        self.recovery = loaded.recovery  # what it took to open it; None after a clean stop, and of a new one
        self.damage = loaded.damage  # what was found missing when it was opened
        # What one batch may unpack to, where it must be unpacked.
        self.max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
        self.offline_reason: str | None = None
        # Called before the log is cut at an offset, and after its recovery point and log start offset have fallen with
        # it: no checkpoint may ever be ahead of the log.
        self.before_cut: Callable[[int], None] | None = None
        self.on_offline: Callable[[str], None] | None = None  # with the reason; once
        self.on_disk_error: Callable[[OSError], None] | None = None
        self._disk = disk
        self._clock = clock
        self._snapshots = loaded.snapshots
        self._durability = Durability(disk, folder, self.epochs, loaded.ledger, recovery_point=loaded.recovery_point)
        self._segments = Segments(loaded.segments)
        self._roll_policy = RollPolicy(config, clock)
        self.is_stored = loaded.is_stored  # a start would find all that is to be known
        self._is_closed = False
        self.damaged_ranges: tuple[DamagedRange, ...] = ()  # of all segments, in order
        self.is_mended = False  # a segment is being rewritten: it is not compacted meanwhile
        self.gapless_from = loaded.gapless_from  # before it Kafka's cleaner may have left gaps between segments
        # What is to be checked, by partition; shared by all logs of a broker.
        self.suspects: dict[TopicPartition, Suspect] = {}
        self._rereads = Rereads()
        self.settle_damaged_ranges()
        if self.damaged_ranges:
            self.suspect(self.damaged_ranges[0].start_offset, is_whole_segment=True)

    @classmethod
    def open(
        cls,
        disk: Disk,
        clock: Clock,
        folder: str,
        config: TopicConfig,
        *,
        topic_partition: TopicPartition,
        topic_id: Uuid | None = None,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_start_proved: bool = False,
        cleaned_offset: int = 0,
        is_clean: bool = False,
        log_end_hint: int | None = None,
        leader_epoch: int = INT_MAX,
        before_damage_is_cut: Callable[[], None] | None = None,
    ) -> Self:
        """Opens or creates. Raises StorageError where the disk fails or the folder is another topic's."""
        loader = LogLoader(
            disk,
            clock,
            folder,
            config,
            topic_partition=topic_partition,
            leader_epoch=leader_epoch,
            before_damage_is_cut=before_damage_is_cut,
        )
        with disk_errors(f"{folder} cannot be opened"):
            loaded = loader.load(
                topic_id=topic_id,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                is_start_proved=is_start_proved,
                cleaned_offset=cleaned_offset,
                is_clean=is_clean,
                log_end_hint=log_end_hint,
            )
        return cls(disk, clock, folder, config, loaded)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments.all

    @property
    def active(self) -> Segment:
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments.all)

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.active.configure(config)
        self._roll_policy = RollPolicy(config, self._clock)

    def move_to(self, folder: str) -> None:
        """Renames the folder. Nothing may be under way in Background. OSError, and then nothing has changed."""
        self._disk.rename(self.folder, folder)
        self.folder = folder
        self._segments.move_to(folder)
        self._durability.move_to(folder)
        self._snapshots.move_to(folder)
        self.epochs.move_to(folder)

    def adopt_producers(self, other: "StoredLog") -> None:
        """Takes over what another copy of this log knows of its producers: more than the batches that are left tell."""
        self.producers = other.producers
        self.is_stored = False

    # Reading

    def begin_keeping(
        self, offset: int, end_offset: int, *, leader_epoch: int, max_bytes: int
    ) -> Callable[[], str | None]:
        """Before what lies between the offsets is cut: work for Background that keeps the first `max_bytes` of it in a
        file (`files.kept`). It gives the path, None if nothing was to be kept, and raises OSError. StorageError."""
        slices: list[FileSlice] = []
        start_offset, room = max(offset, self.log_start_offset), max_bytes
        for segment in self._segments.all[max(0, self._segments.floor(start_offset)) :]:
            if segment.base_offset >= end_offset or room <= 0:
                break
            piece = self.read(
                max(start_offset, segment.base_offset), room, end_offset=end_offset, at_least_one_batch=False
            )
            # Where a segment has no records from there on, the next one is read, which then comes again.
            if piece is not None and piece.size and not (slices and slices[-1].file is piece.file):
                slices.append(piece)
                room -= piece.size
        path = f"{self.folder}/{offset:020d}.{leader_epoch}{CUT_SUFFIX}"

        def work() -> str | None:
            if not slices:
                return None
            keep(self._disk, path, slices, max_bytes=max_bytes)
            return path

        return work

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool = True
    ) -> FileSlice | None:
        """From the batch that holds `offset` (or the next there is) to the end of its segment, `max_bytes` or
        `end_offset`, whichever comes first. None if there is nothing to give."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is not within [{self.log_start_offset}, "
                f"{self.log_end_offset}].",
            )
        if offset >= end_offset:
            if offset == self.log_end_offset:
                self.active.hint(offset, self.active.size_bytes)
            return None
        if self.damaged_ranges:
            end_offset = self._end_before_damage(offset, end_offset)
        if offset < self._segments.active.base_offset and self._rereads.note(offset):
            self.suspect(offset)
        try:
            with self._disk_errors(f"{self.folder} cannot be read"):
                return self._segments.read(
                    offset,
                    max_bytes,
                    end_offset=end_offset,
                    log_end_offset=self.log_end_offset,
                    gapless_from=_NOWHERE if "compact" in self.config.cleanup_policy else self.gapless_from,
                    at_least_one_batch=at_least_one_batch,
                )
        except DamagedError as error:
            raise self._corrupt(error) from error

    def find_aborted(self, slice_: FileSlice, offset: int, *, end_offset: int) -> list[AbortedTransaction]:
        """What a reader at read_committed has to pass over in a slice that was read from `offset` on, up to
        `end_offset`. StorageError."""
        with self._disk_errors(f"{self.folder} cannot be read"):
            return self._segments.find_aborted(slice_, offset, end_offset=end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """A transaction whose beginning was deleted holds back what is left of it."""
        return max(self.producers.last_stable_offset(high_watermark), min(self.log_start_offset, high_watermark))

    def offset_by_timestamp(self, timestamp: int, *, end_offset: int) -> Found | None:
        """Timestamp, offset and leader epoch of the first record whose timestamp is >= `timestamp`."""
        try:
            with self._disk_errors(f"{self.folder} cannot be read"):
                found = self._segments.find_timestamp(timestamp, self.log_start_offset, self.max_decompressed_bytes)
        except DamagedError as error:
            raise self._corrupt(error) from error
        return found if found is not None and found[1] < end_offset else None

    def max_timestamp_offset(self, *, end_offset: int) -> Found | None:
        """Timestamp, offset and leader epoch of the first record that has the largest timestamp."""
        try:
            with self._disk_errors(f"{self.folder} cannot be read"):
                found = self._segments.find_max_timestamp(self.log_start_offset, self.max_decompressed_bytes)
        except DamagedError as error:
            raise self._corrupt(error) from error
        return found if found is not None and found[1] < end_offset else None

    # Damage

    def suspect(self, offset: int, *, is_whole_segment: bool = False) -> None:
        """Something is wrong with what is read there, or with the segment that holds it: it is to be checked."""
        known = self.suspects.get(self.topic_partition)
        if known is None or (is_whole_segment and not known.is_whole_segment):
            self.suspects[self.topic_partition] = Suspect(offset, is_whole_segment)

    def _corrupt(self, error: DamagedError) -> KafkaError:
        self.suspect(error.offset, is_whole_segment=True)
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{error}; the segment will be checked.")

    def share_suspects(self, suspects: dict[TopicPartition, Suspect]) -> None:
        suspects.update(self.suspects)
        self.suspects = suspects

    def note_damaged_ranges(self, segment: Segment, damage: tuple[DamagedRange, ...]) -> None:
        """What a check of the segment has found; nothing, if it is sound."""
        segment.damaged_ranges = damage
        self.settle_damaged_ranges()

    def settle_damaged_ranges(self) -> None:
        """Segments have come or gone, or were cut: what is known of damage is what they know. What lies before the log
        start is not read any more."""
        self.damaged_ranges = tuple(
            each
            for segment in self.segments
            for each in segment.damaged_ranges
            if each.end_offset > self.log_start_offset
        )

    def _end_before_damage(self, offset: int, end_offset: int) -> int:
        for each in self.damaged_ranges:
            if each.start_offset <= offset < each.end_offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"Offsets {each.start_offset} to {each.end_offset - 1} of {self.topic_partition} are damaged in "
                    f"{each.file} ({each.cause}). They are repaired once an in-sync replica can be asked for them.",
                )
            if offset < each.start_offset:
                return min(end_offset, each.start_offset)
        return end_offset

    # Syncing and closing

    @property
    def recovery_point(self) -> int:
        return self._durability.recovery_point

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self._durability.recovery_point

    @property
    def has_unsynced_closed_segments(self) -> bool:
        """A roll leaves one behind: it is to be synced soon, so that recovery has little to scan."""
        return self._durability.recovery_point < self._segments.active.base_offset

    def begin_sync(self) -> tuple[Callable[[], None], int]:
        """Work for Background (it raises OSError or StorageError) and the offset up to which all is durable once it is
        done. Then `mark_synced`, or `mark_sync_failed`. Raises OSError; a closed segment whose file is gone is left out
        once that is known (`damaged_ranges`)."""
        try:
            return self._durability.begin(self._segments, self.log_end_offset), self.log_end_offset
        except FileNotFoundError as error:
            lost = next((each for each in self.segments if each.path(LOG_SUFFIX) == error.filename), None)
            if lost is not None:
                self.suspect(lost.base_offset, is_whole_segment=True)
            raise

    def mark_synced(self, end_offset: int) -> None:
        self._durability.end(end_offset)
        self.last_flush_ms = self._clock.wall_ms()

    def mark_sync_failed(self, end_offset: int, error: OSError | StorageError) -> None:
        """An OSError takes the log offline: the kernel may have dropped what it could not write, so a second sync that
        succeeds would prove nothing."""
        self._durability.fail(end_offset)
        if isinstance(error, OSError) and not self._is_closed:
            self._go_offline(f"a sync failed ({error}); restart the broker once the disk is sound")

    def take_offline(self, reason: str) -> None:
        """Its data folder has failed, which is reported there."""
        if self.offline_reason is None:
            self.offline_reason = reason

    def _disk_errors(self, problem: str) -> disk_errors:
        return disk_errors(problem, self.on_disk_error)

    def _judge(self, error: StorageError) -> None:
        if isinstance(error.__cause__, OSError) and self.on_disk_error is not None:
            self.on_disk_error(error.__cause__)

    def _go_offline(self, reason: str) -> None:
        if self.offline_reason is None:
            self.offline_reason = reason
            events_log.error("a log went offline", partition=self.topic_partition, cause=reason)
            if self.on_offline is not None:
                self.on_offline(reason)

    def store(self) -> None:
        """Puts everything into files and syncs what is not synced, so that the next start need not look. Blocks, but
        touches this log alone: those of a broker that stops are stored side by side. StorageError, and then there is no
        second try: it might find synced what the first has lost."""
        if self.is_stored or self.is_offline:
            return
        try:
            # The next start judges the segment by its indexes, and the producers by their snapshot: both are synced.
            self.active.seal(sync=True)
            self._snapshots.write(self.log_end_offset, self.producers.snapshot(), sync=True)
            self._prune_snapshots()
            if not self._durability.is_complete(self._segments, self.log_end_offset):
                work, end_offset = self.begin_sync()
                work()
                self.mark_synced(end_offset)
        except (OSError, StorageError) as error:
            self._go_offline(f"it could not be stored: {error}")
            raise StorageError(f"{self.folder} cannot be closed cleanly: {error}") from error
        self.is_stored = True

    def close(self, clean: bool) -> None:
        """With `clean`, stores everything first. StorageError."""
        try:
            if clean:
                self.store()
        finally:
            self._is_closed = True
            self._segments.release()

    def close_idle_handles(self) -> int:
        """Closes the handles that nobody used since the last call; returns how many are open."""
        return self._segments.close_idle_handles()

    def _prune_snapshots(self) -> None:
        bases = {segment.base_offset for segment in self._segments.all}
        self._snapshots.prune(bases, end_offset=self.log_end_offset)
