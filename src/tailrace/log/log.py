"""The log of one partition: segments in order, appended at the end, read from any offset, cut at either end.

    log_start_offset <= last_stable_offset <= high_watermark (the replica's) <= log_end_offset
    recovery_point   <= log_end_offset; all below it is on the device
    segments         never empty; the last is the active one, the only one that is written

An append is one write of all its batches. When it returns, the bytes are the kernel's: a killed process loses
nothing. When it raises StorageError (a full disk, a broken one) nothing has changed; the next append first cuts off
what the failed one left behind, so the log is whole again as soon as the disk is. A failed sync is worse, because
the kernel may have dropped what it could not write: the log then stays offline until it is recovered by a restart.

Owns the offsets, the configuration and what is known of producers; `log_files.LogFiles` owns the rest, and does what
touches files. Single-threaded. What blocks for long (`begin_sync`'s work) is handed out to be run in Background.
Where its topic has remote storage this is the local end of a longer log, and only the epochs reach back farther.
Never knows of leaders, followers or high watermarks beyond what it is told.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple, Unpack

from tailrace.log.files.damaged import DamagedRange
from tailrace.log.files.failures import disk_errors, trusted
from tailrace.log.files.replay import note_producer
from tailrace.log.files.segment import NO_TIMESTAMP, Segment
from tailrace.log.files.segments import Found
from tailrace.log.log_files import LogFiles
from tailrace.log.plain_batches import PlainBatch
from tailrace.log.recovery import KnownOfLog, LoadedLog, LogLoader
from tailrace.log.validation import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    CheckedBatch,
    Origin,
    Steps,
    check_client_batch,
    needs_slices,
    settle_batch,
    validate_batches,
)
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import Clock, Disk, FileSlice
from tailrace.wire.records import BatchHeader

# Base offset, batch length, leader epoch: what the leader stamps lies before the CRC's range.
_STAMP = Struct(">qii").pack_into
_LOG_OVERHEAD = 12
_EMPTY = memoryview(b"")
_NOWHERE = 1 << 62

events_log = events.logger("log")


class AppendResult(NamedTuple):
    base_offset: int
    next_offset: int
    log_append_time_ms: int  # -1 where the records keep their create time
    duplicate: bool = False  # nothing was written: offsets and time are those of the original


class Log:
    """Opened by `Log.open`."""

    def __init__(self, files: LogFiles, clock: Clock, config: TopicConfig, loaded: LoadedLog) -> None:
        self.topic_partition = loaded.topic_partition
        self.topic_id = loaded.topic_id
        self.config = config
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.producers = loaded.producers
        self.epochs = files.epochs
        self.files = files
        self.recovery = loaded.recovery  # what it took to open it; None after a clean stop, and of a new one
        self.damage = loaded.damage  # what was found missing when it was opened
        self.gapless_from = loaded.gapless_from  # before it Kafka's cleaner may have left gaps between segments
        self.is_mended = False  # a segment is being rewritten: it is not compacted meanwhile
        # What one batch may unpack to, where it must be unpacked.
        self.max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
        # Called before the log is cut at an offset, and after its recovery point and log start offset have fallen with
        # it: no checkpoint may ever be ahead of the log.
        self.before_cut: Callable[[int], None] | None = None
        self._clock = clock
        self._check()
        self.settle_damaged_ranges()
        if self.damaged_ranges:
            files.damage.suspect(self.damaged_ranges[0].start_offset, is_whole_segment=True)

    @classmethod
    def open(cls, disk: Disk, clock: Clock, folder: str, config: TopicConfig, **known: Unpack[KnownOfLog]) -> "Log":
        """Opens or creates. Raises StorageError where the disk fails or the folder is another topic's."""
        try:
            with disk_errors(f"{folder} cannot be opened"):
                loaded = LogLoader(disk, clock, folder, config, known).load()
            return cls(LogFiles(disk, clock, folder, config, loaded), clock, config, loaded)
        except AssertionError as error:
            events_log.error("what must hold of a log does not", trace=True, folder=folder, invariant=error)
            raise StorageError(f"{folder} cannot be opened: an invariant of it is broken ({error})") from error

    @property
    def folder(self) -> str:
        return self.files.folder

    @property
    def segments(self) -> Sequence[Segment]:
        return self.files.segments.all

    @property
    def active(self) -> Segment:
        return self.files.segments.active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def give_up(self, error: AssertionError) -> StorageError:
        return self.files.give_up(error)

    def __repr__(self) -> str:
        offsets = f"[{self.log_start_offset}, {self.log_end_offset}) recovery_point={self.recovery_point}"
        bases = [segment.base_offset for segment in self.segments]
        return f"<Log {self.topic_partition} {offsets} epoch={self.epochs.latest} first={min(bases, default=None)}>"

    def _check(self) -> None:
        """After every change of the segments. An append checks what it adds; a sync may end while a cut that the disk
        has stopped halfway is still to be tried again."""
        assert self.segments[0].base_offset <= self.log_start_offset <= self.log_end_offset, f"{self}"
        assert max(self.active.base_offset, self.recovery_point) <= self.log_end_offset, f"{self}"

    @property
    def is_offline(self) -> bool:
        return self.files.offline_reason is not None

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.files.configure(config)

    def adopt_producers(self, other: "Log") -> None:
        """Takes over what another copy of this log knows of its producers: more than the batches that are left tell."""
        self.producers = other.producers
        self.files.note_changed()

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
                    self.files.check_online()  # What a log that is offline remembers is no answer.
                    return AppendResult(duplicate.base_offset, duplicate.last_offset + 1, duplicate.timestamp, True)
        view = validated.view
        if view.readonly:
            view = memoryview(bytearray(view))
        base_offset = next_offset = self.log_end_offset
        position = 0
        for header in headers:
            _STAMP(view, position, next_offset, header.batch_length, leader_epoch)
            position += header.batch_length + _LOG_OVERHEAD
            next_offset += header.last_offset_delta + 1
        size_bytes, newest = len(view), validated.max_timestamp
        # Before it is written: nothing lies between the batches or behind them, offsets grow, and no epoch comes back.
        assert position == size_bytes, f"{position} of {size_bytes} bytes are batches: {self}"
        assert next_offset > base_offset, f"offsets end at {next_offset}: {self}"
        assert leader_epoch >= self.epochs.latest, f"a leader of epoch {leader_epoch}: {self}"
        segment = self.files.write((view,), size_bytes, base_offset, next_offset - 1, newest, producers=self.producers)
        position, offset = segment.size_bytes - position, base_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            segment.note_batch(position, header.batch_length + _LOG_OVERHEAD, last_offset, header.max_timestamp)
            if header.producer_id >= 0 or header.is_control:
                # Counted from the end, where view and segment meet.
                batch = view[position - segment.size_bytes :] if header.is_control else _EMPTY
                note_producer(self.producers, segment, header, batch, offset)
            position += header.batch_length + _LOG_OVERHEAD
            offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = next_offset
        self.producers.note_written(size_bytes, next_offset)
        return AppendResult(base_offset, next_offset, validated.log_append_time_ms)

    def append_plain(self, batches: Sequence[PlainBatch], *, leader_epoch: int) -> int:
        """Batches that `read_plain` has let in, and `producers` where they have one, all in one write. Gives the offset
        of the first; the others follow it without a gap. Raises StorageError, and then nothing has changed."""
        first_offset = offset = self.log_end_offset
        size_bytes, newest = 0, NO_TIMESTAMP
        for view, batch_size, last_offset_delta, max_timestamp, _header in batches:
            _STAMP(view, 0, offset, batch_size - _LOG_OVERHEAD, leader_epoch)
            offset += last_offset_delta + 1
            size_bytes += batch_size
            if max_timestamp > newest:  # noqa: PLR1730 - a call of max() for each batch costs more
                newest = max_timestamp
        views = [batch[0] for batch in batches]
        assert sum(map(len, views)) == size_bytes, f"{size_bytes} bytes are batches: {self}"
        assert offset > first_offset, f"offsets end at {offset}: {self}"
        assert leader_epoch >= self.epochs.latest, f"a leader of epoch {leader_epoch}: {self}"
        segment = self.files.write(views, size_bytes, first_offset, offset - 1, newest, producers=self.producers)
        position, offset = segment.size_bytes - size_bytes, first_offset
        for _view, batch_size, last_offset_delta, max_timestamp, header in batches:
            segment.note_batch(position, batch_size, offset + last_offset_delta, max_timestamp)
            if header is not None:
                self.producers.update(header, offset)
            position += batch_size
            offset += last_offset_delta + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, first_offset)
        self.log_end_offset = offset
        self.producers.note_written(size_bytes, offset)
        return first_offset

    @trusted
    def append_as_follower(self, batches: memoryview, *, leader_epoch: int | None = None) -> AppendResult:
        """Writes what a leader has numbered, as it is. Left out are a batch cut short at the end, and batches of a
        later epoch than `leader_epoch`, in which they were fetched: the logs may have parted since. Raises KafkaError
        for what is damaged or does not follow on this log, and then nothing is written; StorageError."""
        validated = validate_batches(batches, self.config, now_ms=self._clock.wall_ms(), origin=Origin.REPLICATION)
        headers, view = validated.headers, validated.view
        if leader_epoch is not None and headers and headers[-1].leader_epoch > leader_epoch:
            headers = [header for header in headers if header.leader_epoch <= leader_epoch]
            view = view[: sum(header.size_bytes for header in headers)]
        if not headers:
            return AppendResult(self.log_end_offset, self.log_end_offset, -1)
        first = headers[0]
        if -1 < first.leader_epoch < self.epochs.latest:
            raise _parted(f"a batch of leader epoch {first.leader_epoch}", f"is in epoch {self.epochs.latest}", self)
        if first.base_offset >= self.log_end_offset:
            self._write_numbered(view, headers)
        elif self.log_start_offset == self.log_end_offset <= first.last_offset:
            self._begin_within(view, headers)
        else:
            raise _parted(f"offset {first.base_offset}", f"ends at {self.log_end_offset}", self)
        return AppendResult(first.base_offset, self.log_end_offset, -1)

    def _begin_within(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """The leader's log starts amid a batch, after DeleteRecords. An empty log takes the whole batch, as the leader
        has it, and starts at the same offset."""
        start_offset = self.log_start_offset
        self.truncate_fully_and_start_at(headers[0].base_offset)
        try:
            self._write_numbered(view, headers)
        except StorageError:
            self.truncate_fully_and_start_at(start_offset)
            raise
        self.advance_start(start_offset)

    def _write_numbered(self, view: memoryview, headers: list[BatchHeader]) -> None:
        """One write, unless a segment holds less. If a later one fails, what was written before it stays."""
        segment_bytes = self.files.segment_bytes
        while len(view) > segment_bytes and len(headers) > 1:
            count, size_bytes = 1, headers[0].size_bytes
            while size_bytes + headers[count].size_bytes <= segment_bytes:
                size_bytes += headers[count].size_bytes
                count += 1
            self._write_run(view[:size_bytes], headers[:count])
            view, headers = view[size_bytes:], headers[count:]
        self._write_run(view, headers)

    def _write_run(self, view: memoryview, headers: list[BatchHeader]) -> None:
        batches_bytes = sum([header.batch_length for header in headers]) + len(headers) * _LOG_OVERHEAD
        assert batches_bytes == len(view), f"{batches_bytes} of {len(view)} bytes are batches: {self}"
        next_offset = headers[-1].next_offset
        assert next_offset > self.log_end_offset, f"offsets end at {next_offset}: {self}"
        newest = max([header.max_timestamp for header in headers])
        segment = self.files.write(
            (view,),
            len(view),
            self.log_end_offset,
            headers[-1].last_offset,
            newest,
            producers=self.producers,
            is_numbered=True,
        )
        start = position = segment.size_bytes - len(view)
        note_batch, epochs = segment.note_batch, self.epochs
        for header in headers:
            size_bytes = header.batch_length + _LOG_OVERHEAD
            note_batch(position, size_bytes, header.base_offset + header.last_offset_delta, header.max_timestamp)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0 or header.is_control:
                note_producer(self.producers, segment, header, view[position - start :])
            position += size_bytes
        self.log_end_offset = next_offset
        self.producers.note_written(len(view), self.log_end_offset)

    @trusted
    def roll(self) -> Segment:
        """Closes the active segment and begins a new one at the log end. An empty one is kept. StorageError."""
        return self.files.roll(self.log_end_offset, self.producers)

    # Cutting

    @trusted
    def truncate(self, offset: int) -> None:
        """The log ends at `offset` at the latest: a batch that reaches to it goes as a whole, and what is left ends
        where its last batch does, so that segments follow on each other without a gap. StorageError."""
        if offset >= self.log_end_offset:
            # An epoch that this broker led without a record has an entry at the end, which the new leader may not know.
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._lower(offset)
        self._cut_to(self.files.cut(offset, self.producers))

    @trusted
    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Nothing is left; the next record gets `offset`. StorageError."""
        self._lower(offset)
        self.files.start_anew(offset)
        self.log_start_offset = offset
        self._cut_to(offset)
        self.producers.clear()

    @trusted
    def advance_start(self, offset: int) -> None:
        """DeleteRecords: what lies before `offset` is not read any more. Its segments go with the next retention."""
        if not offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} ends at {self.log_end_offset}.")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if not self.config.remote_storage_enable:
                self.epochs.truncate_from_start(offset)
            self.files.note_changed()
            if self.damaged_ranges:
                self.settle_damaged_ranges()

    @trusted
    def delete_expired_segments(self) -> int:
        """Those that lie before the log start; returns how many. StorageError."""
        count = self.files.delete_before(self.log_start_offset, self.log_end_offset)
        if count:
            self._check()
            events_log.info("deleted expired segments", partition=self.topic_partition, segments=count)
        return count

    @trusted
    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Compaction: `new` takes the place of `old`, or is removed. It is still .cleaned, and synced: recovery does
        not look at what lies below the recovery point. StorageError."""
        self.files.replace(old, new)
        self._check()
        self.settle_damaged_ranges()

    def _lower(self, offset: int) -> None:
        """Takes back what is known of the log from `offset` on, before it is cut there: a start that found a checkpoint
        ahead of the log would take the log for damaged."""
        if offset < self.log_end_offset:
            # The segment that is cut has to be synced anew as a whole, or its old end could come back.
            number = self.files.segments.floor(offset)
            self.files.durability.lower(self.segments[number].base_offset if number >= 0 else offset)
            self.log_start_offset = min(self.log_start_offset, offset)
        if self.before_cut is not None:
            with self.files.disk_errors(f"{self.folder} cannot be truncated"):
                self.before_cut(offset)

    def _cut_to(self, log_end_offset: int) -> None:
        self.log_end_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)  # It may have lain amid the batch that went.
        self._check()
        self.settle_damaged_ranges()

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
        return self.files.read(
            offset,
            max_bytes,
            end_offset=end_offset,
            log_end_offset=self.log_end_offset,
            gapless_from=_NOWHERE if "compact" in self.config.cleanup_policy else self.gapless_from,
            at_least_one_batch=at_least_one_batch,
        )

    def last_stable_offset(self, high_watermark: int) -> int:
        """A transaction whose beginning was deleted holds back what is left of it."""
        stable = max(self.producers.last_stable_offset(high_watermark), min(self.log_start_offset, high_watermark))
        assert stable <= high_watermark, f"stable up to {stable}, above the high watermark {high_watermark}: {self}"
        return stable

    def offset_by_timestamp(self, timestamp: int, *, end_offset: int) -> Found | None:
        """Timestamp, offset and leader epoch of the first record whose timestamp is >= `timestamp`."""
        found = self.files.find_timestamp(timestamp, self.log_start_offset, self.max_decompressed_bytes)
        return found if found is not None and found[1] < end_offset else None

    def max_timestamp_offset(self, *, end_offset: int) -> Found | None:
        """Timestamp, offset and leader epoch of the first record that has the largest timestamp."""
        found = self.files.find_timestamp(None, self.log_start_offset, self.max_decompressed_bytes)
        return found if found is not None and found[1] < end_offset else None

    # Damage

    @property
    def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        return self.files.damage.ranges

    def suspect(self, offset: int, *, is_whole_segment: bool = False) -> None:
        self.files.damage.suspect(offset, is_whole_segment=is_whole_segment)

    def note_damaged_ranges(self, segment: Segment, damage: tuple[DamagedRange, ...]) -> None:
        """What a check of the segment has found; nothing, if it is sound."""
        segment.damaged_ranges = damage
        self.settle_damaged_ranges()

    def settle_damaged_ranges(self) -> None:
        self.files.damage.settle(self.segments, self.log_start_offset)

    # Syncing and closing

    @property
    def recovery_point(self) -> int:
        return self.files.durability.recovery_point

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.files.durability.recovery_point

    @trusted
    def begin_sync(self) -> tuple[Callable[[], None], int]:
        """Work for Background (it raises OSError or StorageError) and the offset up to which all is durable once it is
        done. Then `mark_synced`, or `mark_sync_failed`. Raises OSError; a closed segment whose file is gone is left out
        once that is known (`damaged_ranges`)."""
        return self.files.begin_sync(self.log_end_offset), self.log_end_offset

    @trusted
    def mark_synced(self, end_offset: int) -> None:
        self.files.mark_synced(end_offset)
        assert self.recovery_point <= self.log_end_offset, f"{self}"

    def mark_sync_failed(self, end_offset: int, error: Exception) -> None:
        self.files.mark_sync_failed(end_offset, error)

    def store(self) -> None:
        """Puts everything into files and syncs what is not synced, so that the next start need not look. Blocks, but
        touches this log alone: those of a broker that stops are stored side by side. StorageError, and then there is no
        second try: it might find synced what the first has lost."""
        self.files.store(self.log_end_offset, self.producers)

    def close(self, clean: bool) -> None:
        """With `clean`, stores everything first. StorageError."""
        try:
            if clean:
                self.store()
        finally:
            self.files.close()


def _parted(sent: str, here: str, log: Log) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The leader sent {sent} but the log of {log.topic_partition} {here}: the logs have parted, and this one must "
        "be truncated first.",
    )
