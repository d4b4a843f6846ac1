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

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from tailrace.log.files.replay import load_producers, note_producer
from tailrace.log.files.segment import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, Segment
from tailrace.log.files.segments import StuckSwapError
from tailrace.log.plain_batches import PlainBatch
from tailrace.log.retention import decide_expired_segments
from tailrace.log.stored import StoredLog
from tailrace.log.validation import (
    CheckedBatch,
    Origin,
    Steps,
    check_client_batch,
    needs_slices,
    settle_batch,
    validate_batches,
)
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.wire.records import BatchHeader

# Base offset, batch length, leader epoch: what the leader stamps lies before the CRC's range.
_STAMP = Struct(">qii").pack_into
_LOG_OVERHEAD = 12
_EMPTY = memoryview(b"")

events_log = events.logger("log")


class AppendResult(NamedTuple):
    base_offset: int
    next_offset: int
    log_append_time_ms: int  # -1 where the records keep their create time
    duplicate: bool = False  # nothing was written: offsets and time are those of the original


class Log(StoredLog):
    """Opened by `Log.open`."""

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
        segment = self._write(view, next_offset - 1, validated.max_timestamp)
        position, offset = segment.size_bytes - position, base_offset
        for header in headers:
            last_offset = offset + header.last_offset_delta
            segment.note_batch(position, header.batch_length + _LOG_OVERHEAD, last_offset, header.max_timestamp)
            if header.producer_id >= 0:
                # Counted from the end, where view and segment meet.
                batch = view[position - segment.size_bytes :] if header.is_control else _EMPTY
                note_producer(self.producers, segment, header, batch, offset)
            position += header.batch_length + _LOG_OVERHEAD
            offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self.log_end_offset = next_offset
        self.producers.note_written(len(view), next_offset)
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
        segment = self._segment_for(size_bytes, offset - 1, newest)
        position = segment.size_bytes
        try:
            segment.write_all([batch[0] for batch in batches], size_bytes)
        except StorageError as error:
            self._judge(error)
            raise
        self.is_stored = False
        offset = first_offset
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
        segment_bytes = self._roll_policy.segment_bytes
        while len(view) > segment_bytes and len(headers) > 1:
            count, size_bytes = 1, headers[0].size_bytes
            while size_bytes + headers[count].size_bytes <= segment_bytes:
                size_bytes += headers[count].size_bytes
                count += 1
            self._write_run(view[:size_bytes], headers[:count])
            view, headers = view[size_bytes:], headers[count:]
        self._write_run(view, headers)

    def _write_run(self, view: memoryview, headers: list[BatchHeader]) -> None:
        newest = max([header.max_timestamp for header in headers])
        segment = self._write(view, headers[-1].last_offset, newest, is_numbered=True)
        start = position = segment.size_bytes - len(view)
        note_batch, epochs = segment.note_batch, self.epochs
        for header in headers:
            size_bytes = header.batch_length + _LOG_OVERHEAD
            note_batch(position, size_bytes, header.base_offset + header.last_offset_delta, header.max_timestamp)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                note_producer(self.producers, segment, header, view[position - start :])
            position += size_bytes
        self.log_end_offset = headers[-1].next_offset
        self.producers.note_written(len(view), self.log_end_offset)

    def _write(self, view: memoryview, last_offset: int, max_timestamp: int, *, is_numbered: bool = False) -> Segment:
        """One write at the end of the log."""
        segment = self._segment_for(len(view), last_offset, max_timestamp, is_numbered=is_numbered)
        try:
            segment.write_all((view,), len(view))
        except StorageError as error:
            self._judge(error)
            raise
        self.is_stored = False
        return segment

    def _segment_for(
        self, size_bytes: int, last_offset: int, max_timestamp: int, *, is_numbered: bool = False
    ) -> Segment:
        """The active segment, or a new one where the active one has had its time. What a leader has numbered was let in
        there, and goes into a segment of its own if segment.bytes has become smaller since."""
        if self.offline_reason is not None:
            raise StorageError(f"the log of {self.topic_partition} is offline: {self.offline_reason}")
        active, policy = self._segments.active, self._roll_policy
        if (
            active.size_bytes + size_bytes > policy.segment_bytes
            or max_timestamp > policy.newest_timestamp
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.is_index_full
        ):
            if not is_numbered:
                policy.check_fits(size_bytes)
            with self._disk_errors(f"{self.folder} cannot be read"):
                is_due = policy.is_due(active, size_bytes, last_offset, max_timestamp)
            if is_due:
                return self.roll()
        return active

    def roll(self) -> Segment:
        """Closes the active segment and begins a new one at the log end. An empty one is kept. StorageError."""
        active = self._segments.active
        if active.base_offset == self.log_end_offset:
            return active
        with self._disk_errors(f"{self.folder} cannot be given a new segment"):
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

    # Cutting

    def truncate(self, offset: int) -> None:
        """The log ends at `offset` at the latest: a batch that reaches to it goes as a whole, and what is left ends
        where its last batch does, so that segments follow on each other without a gap. StorageError."""
        if offset >= self.log_end_offset:
            # An epoch that this broker led without a record has an entry at the end, which the new leader may not know.
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._lower(offset)
        segments = self._segments
        with self._disk_errors(f"{self.folder} cannot be truncated"):
            segments.delete([each for each in segments.all if each.base_offset > offset], due_ms=self._due_ms)
            segments.active.truncate(offset)
            offset = segments.active.read_next_offset()
        self._cut_to(offset)
        self.epochs.truncate_from_end(offset)
        load_producers(self.producers, self._snapshots, segments.all, end_offset=offset, now_ms=self._clock.wall_ms())

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Nothing is left; the next record gets `offset`. StorageError."""
        self._lower(offset)
        with self._disk_errors(f"{self.folder} cannot be truncated"):
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
            if self.damaged_ranges:
                self.settle_damaged_ranges()

    def expire_segments(self, now_ms: int, high_watermark: int) -> int:
        """Retention: moves the log start behind segments that have had their time, and gives how many lie before it.
        They go by `delete_expired_segments`, once the log start is stored: a start that finds them missing, and an
        earlier log start, would take them for lost. StorageError."""
        with self._disk_errors(f"{self.folder} cannot lose its expired segments"):
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
        events_log.info("segments expire", partition=self.topic_partition, segments=expired.count, cause=expired.reason)
        return expired.count

    def delete_expired_segments(self) -> int:
        """Those that lie before the log start; returns how many. StorageError."""
        count = max(0, self._segments.floor(self.log_start_offset))
        if count == 0:
            return 0
        with self._disk_errors(f"{self.folder} cannot lose its expired segments"):
            self._segments.delete(self._segments.all[:count], due_ms=self._due_ms)
            self._prune_snapshots()
        self._durability.note_names_changed()
        self.is_stored = False
        events_log.info("deleted expired segments", partition=self.topic_partition, segments=count)
        return count

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Compaction: `new` takes the place of `old`, or is removed. It is still .cleaned, and synced: recovery does
        not look at what lies below the recovery point. StorageError."""
        try:
            with self._disk_errors(f"{self.folder} cannot take a cleaned segment"):
                self._segments.replace(old, new)
        except StorageError as error:
            if isinstance(error.__cause__, StuckSwapError):
                self._go_offline(f"a compaction was stopped halfway ({error}); restart once the disk is sound")
            raise
        self._durability.note_names_changed()
        self.is_stored = False
        self.settle_damaged_ranges()

    def take_due_segments(self, now_ms: int) -> list[Segment]:
        """Deleted segments whose delay has passed: the caller removes their files."""
        return self._segments.take_due(now_ms)

    @property
    def _due_ms(self) -> int:
        return self._clock.wall_ms() + self.config.file_delete_delay_ms

    def _lower(self, offset: int) -> None:
        """Takes back what is known of the log from `offset` on, before it is cut there: a start that found a checkpoint
        ahead of the log would take the log for damaged."""
        if offset < self.log_end_offset:
            # The segment that is cut has to be synced anew as a whole, or its old end could come back.
            number = self._segments.floor(offset)
            self._durability.lower(self._segments.all[number].base_offset if number >= 0 else offset)
            self.log_start_offset = min(self.log_start_offset, offset)
        if self.before_cut is not None:
            with self._disk_errors(f"{self.folder} cannot be truncated"):
                self.before_cut(offset)

    def _cut_to(self, log_end_offset: int) -> None:
        self.log_end_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)  # It may have lain amid the batch that went.
        self._durability.note_names_changed()
        self._roll_policy.rearm()
        self.is_stored = False
        self._prune_snapshots()
        self.settle_damaged_ranges()


def _parted(sent: str, here: str, log: Log) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The leader sent {sent} but the log of {log.topic_partition} {here}: the logs have parted, and this one must "
        "be truncated first.",
    )
