"""The log of one partition: segments in order, appended at the end, read from any offset, cut at either end.

    log_start_offset <= high_watermark (the replica's) <= log_end_offset
    recovery_point   <= log_end_offset; all below it is on the device
    segments         never empty; the last is the active one, the only one that is written

An append is one write of all its batches. When it returns, the bytes are the kernel's: a killed process loses
nothing. When it raises StorageError (a full disk, a broken one) nothing has changed; the next append first cuts off
what the failed one left behind, so the log is whole again as soon as the disk is. A failed sync is worse, because
the kernel may have dropped what it could not write: the log then stays offline until it is recovered by a restart.

Single-threaded. What blocks for long (`begin_sync`'s work) is handed out to be run in Background. Never knows of
leaders, followers or high watermarks beyond what it is told.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.log.plain import PlainBatch
from tailrace.log.recovery import LoadedLog, LogLoader, coordinator_epoch, load_producers
from tailrace.log.retention import decide_expired_segments
from tailrace.log.segment import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, Found, Segment
from tailrace.log.segments import Durability, RollPolicy, Segments, StuckSwapError, disk_errors
from tailrace.log.validation import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    CheckedBatch,
    Origin,
    Steps,
    ValidatedBatches,
    check_client_batch,
    needs_slices,
    settle_batch,
    validate_batches,
)
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import TopicPartition, Uuid
from tailrace.model.ports import Clock, Disk, FileSlice

# Base offset, batch length, leader epoch: what the leader stamps lies before the CRC's range.
_STAMP = Struct(">qii").pack_into
_LOG_OVERHEAD = 12

events_log = events.logger("log")


class AppendResult(NamedTuple):
    base_offset: int
    next_offset: int
    log_append_time_ms: int  # -1 where the records keep their create time
    duplicate: bool = False  # nothing was written: the offsets are those of the original


class Log:
    """Opened by `Log.open`."""

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
        # What one batch may unpack to, where it must be unpacked.
        self.max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
        self.offline_reason: str | None = None
        # Called when the recovery point or the log start offset falls, before anything goes: their checkpoints must
        # never be ahead of the log.
        self.on_fall: Callable[[], None] | None = None
        self._disk = disk
        self._clock = clock
        self._snapshots = loaded.snapshots
        self._durability = Durability(disk, folder, self.epochs, recovery_point=loaded.recovery_point)
        self._segments = Segments(loaded.segments)
        self._roll_policy = RollPolicy(config, clock)
        self.is_stored = loaded.is_stored  # a start would find all that is to be known
        self._is_closed = False

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
        cleaned_offset: int = 0,
        is_clean: bool = False,
        log_end_hint: int | None = None,
    ) -> "Log":
        """Opens or creates. Raises StorageError where the disk fails or the folder is another topic's."""
        loader = LogLoader(disk, clock, folder, config, topic_partition=topic_partition)
        with disk_errors(f"{folder} cannot be opened"):
            loaded = loader.load(
                topic_id=topic_id,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
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

    # Appending

    def needs_slices(self, batch: memoryview) -> bool:
        """Whether a client's batch takes so long to check that it should be done by `check`, before it is appended."""
        return needs_slices(batch, self.config, now_ms=self._clock.wall_ms())

    def check(self, batch: memoryview) -> Steps[CheckedBatch]:
        """The checks of a client's batch in steps, under the configuration of now."""
        now_ms = self._clock.wall_ms()
        return check_client_batch(batch, self.config, now_ms=now_ms, max_decompressed_bytes=self.max_decompressed_bytes)

    def append_as_leader(
        self,
        batches: memoryview,
        *,
        leader_epoch: int,
        origin: Origin = Origin.CLIENT,
        checked: CheckedBatch | None = None,
    ) -> AppendResult:
        """Gives the batches their offsets and writes them. The view is changed in place if it is writable. What was
        `checked` under this configuration is not checked again. Raises KafkaError for what the topic does not take,
        StorageError if the disk does not."""
        if checked is not None and checked.config is self.config:
            validated = settle_batch(checked, now_ms=self._clock.wall_ms())
        else:
            validated = validate_batches(
                batches,
                self.config,
                now_ms=self._clock.wall_ms(),
                origin=origin,
                max_decompressed_bytes=self.max_decompressed_bytes,
            )
        headers = validated.headers
        for header in headers:
            if header.producer_id >= 0:
                duplicate = self.producers.check(header, origin=origin)
                if duplicate is not None:
                    return AppendResult(duplicate.base_offset, duplicate.last_offset + 1, -1, True)
        view = validated.view
        if view.readonly:
            view = memoryview(bytearray(view))
        base_offset = next_offset = self.log_end_offset
        position = 0
        for header in headers:
            _STAMP(view, position, next_offset, header.batch_length, leader_epoch)
            position += header.batch_length + _LOG_OVERHEAD
            next_offset += header.last_offset_delta + 1
        segment = self._write(view, next_offset - 1, validated)
        position, offset = segment.size_bytes - position, base_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            segment.note_batch(position, header.batch_length + _LOG_OVERHEAD, last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                self.producers.update(header, offset, coordinator_epoch=coordinator_epoch(header, view))
            position += header.batch_length + _LOG_OVERHEAD
            offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = next_offset
        return AppendResult(base_offset, next_offset, validated.log_append_time_ms)

    def append_plain(self, batches: Sequence[PlainBatch], *, leader_epoch: int) -> int:
        """Batches that `read_plain` has let in, all in one write. Gives the offset of the first; the others follow it
        without a gap. Raises StorageError, and then nothing has changed."""
        first_offset = offset = self.log_end_offset
        size_bytes, newest = 0, NO_TIMESTAMP
        for view, batch_size, last_offset_delta, max_timestamp in batches:
            _STAMP(view, 0, offset, batch_size - _LOG_OVERHEAD, leader_epoch)
            offset += last_offset_delta + 1
            size_bytes += batch_size
            if max_timestamp > newest:  # noqa: PLR1730 - a call of max() for each batch costs more
                newest = max_timestamp
        segment = self._segment_for(size_bytes, offset - 1, newest)
        position = segment.size_bytes
        segment.write_all([batch[0] for batch in batches], size_bytes)
        self.is_stored = False
        offset = first_offset
        for _view, batch_size, last_offset_delta, max_timestamp in batches:
            segment.note_batch(position, batch_size, offset + last_offset_delta, max_timestamp)
            position += batch_size
            offset += last_offset_delta + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        self.log_end_offset = offset
        return first_offset

    def append_as_follower(self, batches: memoryview) -> AppendResult:
        """Writes what a leader has numbered, as it is. A batch cut short at the end is left out."""
        validated = validate_batches(batches, self.config, now_ms=self._clock.wall_ms(), origin=Origin.REPLICATION)
        headers, view = validated.headers, validated.view
        if not headers:
            return AppendResult(self.log_end_offset, self.log_end_offset, -1)
        if headers[0].base_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The leader sent offset {headers[0].base_offset} but the log of {self.topic_partition} already ends "
                f"at {self.log_end_offset}: the logs have parted and must be truncated first.",
            )
        segment = self._write(view, headers[-1].last_offset, validated)
        start = position = segment.size_bytes - len(view)
        for header in headers:
            segment.note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                batch = view[position - start :]
                self.producers.update(header, coordinator_epoch=coordinator_epoch(header, batch))
            position += header.size_bytes
        self.log_end_offset = headers[-1].next_offset
        return AppendResult(headers[0].base_offset, self.log_end_offset, -1)

    def _write(self, view: memoryview, last_offset: int, validated: ValidatedBatches) -> Segment:
        """One write at the end of the log."""
        segment = self._segment_for(len(view), last_offset, validated.max_timestamp)
        segment.write_all((view,), len(view))
        self.is_stored = False
        return segment

    def _segment_for(self, size_bytes: int, last_offset: int, max_timestamp: int) -> Segment:
        """The active segment, or a new one where the active one has had its time."""
        if self.offline_reason is not None:
            raise StorageError(f"the log of {self.topic_partition} is offline: {self.offline_reason}")
        active, policy = self._segments.active, self._roll_policy
        if (
            active.size_bytes + size_bytes > policy.segment_bytes
            or max_timestamp > policy.newest_timestamp
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.is_index_full
        ):
            with disk_errors(f"{self.folder} cannot be read"):
                is_due = policy.is_due(active, size_bytes, last_offset, max_timestamp)
            if is_due:
                return self.roll()
        return active

    def roll(self) -> Segment:
        """Closes the active segment and begins a new one at the log end. An empty one is kept. StorageError."""
        active = self._segments.active
        if active.base_offset == self.log_end_offset:
            return active
        with disk_errors(f"{self.folder} cannot be given a new segment"):
            active.seal()
            self._snapshots.write(self.log_end_offset, self.producers.snapshot())
            segment = self._create_segment(self.log_end_offset)
        self._segments.add(segment)
        self._durability.note_names_changed()
        self._roll_policy.rearm()
        self.is_stored = False
        return segment

    def _create_segment(self, base_offset: int) -> Segment:
        now_ms = self._clock.wall_ms()
        return Segment.create(self._disk, self.folder, base_offset, config=self.config, created_ms=now_ms)

    # Reading

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
        with disk_errors(f"{self.folder} cannot be read"):
            return self._segments.read(
                offset,
                max_bytes,
                end_offset=end_offset,
                log_end_offset=self.log_end_offset,
                at_least_one_batch=at_least_one_batch,
            )

    def offset_by_timestamp(self, timestamp: int, *, end_offset: int) -> Found | None:
        """Timestamp, offset and leader epoch of the first record whose timestamp is >= `timestamp`."""
        with disk_errors(f"{self.folder} cannot be read"):
            found = self._segments.find_timestamp(timestamp, self.log_start_offset, self.max_decompressed_bytes)
        return found if found is not None and found[1] < end_offset else None

    def max_timestamp_offset(self, *, end_offset: int) -> Found | None:
        """Timestamp, offset and leader epoch of the first record that has the largest timestamp."""
        with disk_errors(f"{self.folder} cannot be read"):
            found = self._segments.find_max_timestamp(self.log_start_offset, self.max_decompressed_bytes)
        return found if found is not None and found[1] < end_offset else None

    # Cutting

    def truncate(self, offset: int) -> None:
        """The log ends at `offset` at the latest: a batch that reaches to it goes as a whole, and what is left ends
        where its last batch does, so that segments follow on each other without a gap. StorageError."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        segments = self._segments
        # The segment that is cut has to be synced anew as a whole, or its old end could come back.
        self._lower(segments.all[segments.floor(offset)].base_offset, log_start_offset=offset)
        with disk_errors(f"{self.folder} cannot be truncated"):
            segments.delete([each for each in segments.all if each.base_offset > offset], due_ms=self._due_ms)
            segments.active.truncate(offset)
            offset = segments.active.read_next_offset()
        self._cut_to(offset)
        self.epochs.truncate_from_end(offset)
        load_producers(self.producers, self._snapshots, segments.all, end_offset=offset, now_ms=self._clock.wall_ms())

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Nothing is left; the next record gets `offset`. StorageError."""
        self._lower(offset, log_start_offset=offset)
        with disk_errors(f"{self.folder} cannot be truncated"):
            self._segments.delete(self._segments.all, due_ms=self._due_ms)
            self._segments.start_anew(self._create_segment(offset))
            self._snapshots.clear()
        self.log_start_offset = offset
        self._durability.recovery_point = offset
        self._cut_to(offset)
        self.epochs.clear()
        self.producers.clear()

    def advance_start(self, offset: int) -> None:
        """DeleteRecords: what lies before `offset` is not read any more. Its segments go with the next retention."""
        if not offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} ends at {self.log_end_offset}.")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.is_stored = False

    def delete_expired_segments(self, now_ms: int, high_watermark: int) -> int:
        """Retention; returns how many segments went. StorageError."""
        with disk_errors(f"{self.folder} cannot lose its expired segments"):
            expired = decide_expired_segments(
                self._segments.all,
                self.config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
            )
            if expired.count == 0:
                return 0
            if expired.count == len(self._segments.all):
                self.roll()
            self.advance_start(self._segments.all[expired.count].base_offset)
            self._segments.delete(self._segments.all[: expired.count], due_ms=self._due_ms)
            self._prune_snapshots()
        self._durability.note_names_changed()
        self.is_stored = False
        events_log.info(
            "deleted expired segments", partition=self.topic_partition, segments=expired.count, cause=expired.reason
        )
        return expired.count

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Compaction: `new` (synced, still .cleaned) takes the place of `old`, or is removed. StorageError."""
        try:
            with disk_errors(f"{self.folder} cannot take a cleaned segment"):
                self._segments.replace(old, new)
        except StorageError as error:
            if isinstance(error.__cause__, StuckSwapError):
                self._go_offline(f"a compaction was stopped halfway ({error}); restart once the disk is sound")
            raise
        self._durability.note_names_changed()
        self.is_stored = False

    def take_due_segments(self, now_ms: int) -> list[Segment]:
        """Deleted segments whose delay has passed: the caller removes their files."""
        return self._segments.take_due(now_ms)

    @property
    def _due_ms(self) -> int:
        return self._clock.wall_ms() + self.config.file_delete_delay_ms

    def _lower(self, recovery_point: int, *, log_start_offset: int) -> None:
        fell = self._durability.lower(recovery_point) or log_start_offset < self.log_start_offset
        self.log_start_offset = min(self.log_start_offset, log_start_offset)
        if fell and self.on_fall is not None:
            with disk_errors(f"{self.folder} cannot be truncated"):
                self.on_fall()

    def _cut_to(self, log_end_offset: int) -> None:
        self.log_end_offset = log_end_offset
        self._durability.note_names_changed()
        self._roll_policy.rearm()
        self.is_stored = False
        self._prune_snapshots()

    def _prune_snapshots(self) -> None:
        bases = {segment.base_offset for segment in self._segments.all}
        self._snapshots.prune(bases, end_offset=self.log_end_offset)

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
        done. Then `mark_synced`, or `mark_sync_failed`."""
        return self._durability.begin(self._segments, self.log_end_offset), self.log_end_offset

    def mark_synced(self, end_offset: int) -> None:
        self._durability.end(end_offset)
        self.last_flush_ms = self._clock.wall_ms()

    def mark_sync_failed(self, end_offset: int, error: OSError | StorageError) -> None:
        """An OSError takes the log offline: the kernel may have dropped what it could not write, so a second sync that
        succeeds would prove nothing."""
        self._durability.fail(end_offset)
        if isinstance(error, OSError) and not self._is_closed:
            self._go_offline(f"a sync failed ({error}); restart the broker once the disk is sound")

    def _go_offline(self, reason: str) -> None:
        self.offline_reason = reason
        events_log.error("a log went offline", partition=self.topic_partition, cause=reason)

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
            if not self._durability.is_complete(self.log_end_offset):
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
