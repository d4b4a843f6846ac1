"""The run of a compaction over one log, as a generator of small steps.

`Compaction.steps()` yields None when a step's worth of work is done, so that the loop can turn, and a piece of work
that blocks or releases the GIL (a cold read, a large block to unpack, a sync, a removal) to be run in the background,
whose result is sent back in. A step handles a bounded number of records and bytes: about half a millisecond.

    1. the keys of the dirty segments go into the map, until all are in or it is full; batches are never split
    2. all segments up to there, grouped, are copied without what the map replaces, each group into one new segment
    3. each new segment is synced and takes the place of its group at once; readers keep the file they hold

A log whose keys do not fit is compacted in several runs: each returns the offset where the next begins.
Appending goes on meanwhile: only segments below the active one are touched. If the log loses one of them (retention,
truncation, deletion) the run ends in CompactionAborted; its `.cleaned` files are removed then, as on any error and
when the generator is closed.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from tailrace.log.compaction.keymap import KeyMap
from tailrace.log.compaction.plan import Cleanable, group_segments
from tailrace.log.compaction.rewrite import BatchFilter, empty_header
from tailrace.log.compaction.spans import scan_spans
from tailrace.log.compaction.transactions import CleanedTransactions
from tailrace.log.files.aborted import AbortedTransaction
from tailrace.log.files.damaged import DamagedError
from tailrace.log.files.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment
from tailrace.log.producers import ProducerStates
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ports import Disk
from tailrace.wire.compression import compress, decompress
from tailrace.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    assemble_batch,
    crc_is_valid,
    iterate_headers,
    read_header,
)

# Records of one step; reading and judging one costs about 2 us.
RECORDS_PER_STEP = 250
# A batch costs as much as this many records before any of them is read.
BATCH_COST = 5
# Blocks above this are packed and unpacked in the background. It is low because a few kilobytes may unpack to
# megabytes.
BACKGROUND_BLOCK_BYTES = 2 * 1024
# Batches of one write, and so of one step; noting one in the indexes costs about 1 us.
BATCHES_PER_WRITE = 250

events_log = events.logger("log.compaction")

R = TypeVar("R")
Work = Callable[[], Any]
Steps = Generator[Work | None, Any, R]


class CompactionAborted(Exception):  # noqa: N818 - an outcome, not a fault
    """The log changed below the run. Nothing is lost: a later run begins again."""


class CompactableLog(Protocol):
    """What a run asks of a log."""

    config: TopicConfig
    producers: ProducerStates

    @property
    def folder(self) -> str: ...

    @property
    def segments(self) -> Sequence[Segment]: ...

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Swaps files and segments, crash-safe; the old files are left under `.deleted`. StorageError, and then the
        new segment is gone or kept for the next start."""


class Limits(NamedTuple):
    """Settings of the cleaner: log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.size, max.decompressed.bytes."""

    map_bytes: int
    read_bytes: int
    max_decompressed_bytes: int


class Outcome(NamedTuple):
    first_dirty_offset: int  # where the next run begins
    records_read: int
    records_kept: int


class Compaction:
    def __init__(
        self,
        disk: Disk,
        log: CompactableLog,
        plan: Cleanable,
        *,
        now_ms: int,
        limits: Limits,
        count_io: Callable[[int], None],
    ) -> None:
        self.log = log
        self.plan = plan
        self._disk = disk
        self._now_ms = now_ms
        self._limits = limits
        self._count_io = count_io  # told of every read and write of records, in bytes
        self._keys = KeyMap(limits.map_bytes)
        # Keys of all batches below are in the map.
        self._mapped_end_offset = plan.first_dirty_offset
        self._segments = [segment for segment in log.segments if segment.base_offset < plan.end_offset]
        self._group_end_offset = plan.end_offset
        self._spent = 0
        self._output: list[tuple[bytes | bytearray | memoryview, BatchHeader]] = []
        self._output_bytes = 0
        self._aborted: list[AbortedTransaction] = []  # Those of the whole log, in the order of their markers.
        self._transactions = CleanedTransactions()
        self._records_read = self._records_kept = 0

    def steps(self) -> Steps[Outcome]:
        yield from self._find_aborted()
        yield from self._map_keys()
        cleaned = [segment for segment in self._segments if segment.base_offset < self._mapped_end_offset]
        groups = group_segments(cleaned, self.log.config, end_offset=self.plan.end_offset)
        ends = [group[0].base_offset for group in groups[1:]] + [self._end_of(cleaned)]
        for group, end_offset in zip(groups, ends, strict=True):
            self._group_end_offset = end_offset
            yield from self._clean_group(group)
        yield from self._keys.release()
        return Outcome(self._mapped_end_offset, self._records_read, self._records_kept)

    def _end_of(self, segments: list[Segment]) -> int:
        """The base offset of the segment that follows."""
        following = self._segments[len(segments) :]
        return following[0].base_offset if following else self.plan.end_offset

    def _find_aborted(self) -> Steps[None]:
        """Also of segments that this run leaves alone: the marker of what it cleans may lie there."""
        for segment in list(self.log.segments):
            offset = 0
            while found := list(islice(segment.aborted.from_offset(offset), RECORDS_PER_STEP)):
                self._aborted += found
                for aborted in found:
                    self._transactions.note_aborted(aborted)
                offset = found[-1].last_offset + 1
                yield None
                if segment not in self.log.segments:
                    raise CompactionAborted("the log lost a segment since the run began")

    # The map

    def _map_keys(self) -> Steps[None]:
        for index, segment in enumerate(self._segments):
            is_last = index + 1 == len(self._segments)
            end_offset = self.plan.end_offset if is_last else self._segments[index + 1].base_offset
            if end_offset <= self.plan.first_dirty_offset:
                continue
            is_complete = yield from self._map_segment(segment)
            if not is_complete:
                return
            self._mapped_end_offset = end_offset

    def _map_segment(self, segment: Segment) -> Steps[bool]:
        """False if the map was full before the segment's end."""
        position: int | None = 0
        if segment.base_offset < self.plan.first_dirty_offset:
            position = segment.position_of(self.plan.first_dirty_offset)
        while position is not None and position < segment.size_bytes:
            chunk = yield from self._read_batches(segment, position)
            for at, header in _headers(chunk):
                if self._keys.is_full:
                    return False
                yield from self._map_batch(header, chunk[at : at + header.size_bytes])
                self._mapped_end_offset = header.next_offset
                position += header.size_bytes
        return True

    def _map_batch(self, header: BatchHeader, batch: memoryview) -> Steps[None]:
        if header.is_control or header.record_count == 0 or self._transactions.is_aborted(header):
            return
        block = yield from self._unpack(header, batch)
        base_offset, first_dirty_offset, put = header.base_offset, self.plan.first_dirty_offset, self._keys.put
        position = 0
        while position < len(block):
            spans, position = scan_spans(block, position, RECORDS_PER_STEP)
            for span in spans:
                offset = base_offset + span.offset_delta
                if span.key is not None and offset >= first_dirty_offset:
                    put(span.key, offset)
            yield from self._spend(len(spans))

    # The copy

    def _clean_group(self, group: list[Segment]) -> Steps[None]:
        config = self.log.config
        new = Segment.create(
            self._disk,
            self.log.folder,
            group[0].base_offset,
            config=config,
            created_ms=group[-1].created_ms,
            suffix=CLEANED_SUFFIX,
        )
        try:
            for segment in group:
                yield from self._clean_segment(segment, new)
            self._flush(new)
            self._keep_aborted(group, new)
            yield partial(_make_durable, new)
            self._check_segments()
        except BaseException:
            self._output.clear()
            _remove_quietly(new)
            raise
        # From here on the new segment may be the only whole one, and is the log's to remove.
        self.log.replace_segments(group, new)
        self._segments = [segment for segment in self._segments if segment not in group]
        yield partial(_remove_all, group)

    def _keep_aborted(self, group: list[Segment], new: Segment) -> None:
        """Carries over the transactions whose markers lie in the group and that may have records left."""
        for aborted in self._aborted:
            is_here = group[0].base_offset <= aborted.last_offset < self._group_end_offset
            if is_here and aborted.last_offset >= self._mapped_end_offset:
                new.aborted.add(aborted)

    def _clean_segment(self, segment: Segment, new: Segment) -> Steps[None]:
        position = 0
        while position < segment.size_bytes:
            chunk = yield from self._read_batches(segment, position)
            for at, header in _headers(chunk):
                yield from self._clean_batch(header, chunk[at : at + header.size_bytes])
                position += header.size_bytes
                if self._output_bytes >= self._limits.read_bytes or len(self._output) >= BATCHES_PER_WRITE:
                    self._flush(new)
                    yield None

    def _clean_batch(self, header: BatchHeader, batch: memoryview) -> Steps[None]:
        self._records_read += header.record_count
        if header.base_offset >= self._mapped_end_offset:
            self._keep(batch, header)
            return
        # A control batch of no producer is the barrier that ended a mirror: it holds as long as what lies before it.
        is_kept_marker = header.is_control and (header.producer_id < 0 or header.record_count == 0)
        if is_kept_marker or (header.is_control and self._transactions.end(header)):
            self._keep(batch, header)
            return
        block = yield from self._unpack(header, batch)
        left = BatchFilter(
            header,
            block,
            self._keys,
            now_ms=self._now_ms,
            delete_retention_ms=self.log.config.delete_retention_ms,
            is_aborted=self._transactions.is_aborted(header),
        )
        position = 0
        while position < len(block):
            spans, position = scan_spans(block, position, RECORDS_PER_STEP)
            left.take(spans)
            yield from self._spend(len(spans))
        if left.kept_count == 0:
            if self._must_outlive_its_records(header):
                self._keep(assemble_batch(empty_header(header), b""), empty_header(header))
        elif left.is_unchanged:
            self._keep(batch, header)
        else:
            new_header, records = left.rebuild()
            payload = yield from self._pack(header.compression, records)
            self._keep(assemble_batch(new_header, payload), new_header)

    def _must_outlive_its_records(self, header: BatchHeader) -> bool:
        # The last of each new segment stays, so that segments follow on each other without a gap: recovery takes a gap
        # for a loss.
        if header.next_offset == self._group_end_offset:
            return True
        if header.producer_id < 0:
            return False
        state = self.log.producers.states.get(header.producer_id)
        return state is not None and state.last_data_offset == header.last_offset

    def _keep(self, batch: bytes | bytearray | memoryview, header: BatchHeader) -> None:
        self._transactions.note_kept(header)
        self._records_kept += header.record_count
        self._output.append((batch, header))
        self._output_bytes += len(batch)

    def _flush(self, new: Segment) -> None:
        if not self._output:
            return
        position = new.size_bytes
        data = b"".join([batch for batch, _ in self._output])
        new.write_all((data,), len(data))
        self._count_io(self._output_bytes)
        for batch, header in self._output:
            new.note_batch(position, len(batch), header.last_offset, header.max_timestamp)
            position += len(batch)
        self._output.clear()
        self._output_bytes = 0

    # Reading, and the length of a step

    def _read_batches(self, segment: Segment, position: int) -> Steps[memoryview]:
        """A chunk that begins with a whole batch, all of whose whole batches have a good CRC."""
        self._check_segments()
        size = min(max(self._limits.read_bytes, HEADER_SIZE), segment.size_bytes - position)
        chunk = yield from self._read(segment, position, size)
        try:
            first_size = read_header(chunk).size_bytes
        except KafkaError as error:
            raise DamagedError(
                segment.base_offset, f"{segment.path(LOG_SUFFIX)} is damaged at position {position}: {error.message}"
            ) from error
        if first_size > segment.size_bytes - position:
            raise DamagedError(
                segment.base_offset, f"{segment.path(LOG_SUFFIX)} ends amid the batch at position {position}"
            )
        if first_size > size:
            chunk = yield from self._read(segment, position, first_size)
        return memoryview(chunk)

    def _read(self, segment: Segment, position: int, size: int) -> Steps[bytes]:
        file = segment.file
        self._count_io(size)
        if file.is_resident(position, size):
            yield from self._spend(BATCH_COST)
            return file.read(position, size)
        data: bytes = yield partial(file.read, position, size)
        return data

    def _unpack(self, header: BatchHeader, batch: memoryview) -> Steps[bytes]:
        if not crc_is_valid(batch, 0, header):
            raise DamagedError(
                header.base_offset, f"the CRC of the batch at offset {header.base_offset} does not match"
            )
        yield from self._spend(BATCH_COST)
        payload = batch[HEADER_SIZE:]
        if header.compression is Compression.NONE or not payload:
            return bytes(payload)
        work = partial(decompress, header.compression, payload, self._limits.max_decompressed_bytes)
        try:
            if len(payload) <= BACKGROUND_BLOCK_BYTES:
                return work()
            block: bytes = yield work
            return block
        except KafkaError as error:
            raise StorageError(f"the batch at offset {header.base_offset} does not unpack: {error.message}") from error

    def _pack(self, codec: Compression, records: bytes) -> Steps[bytes]:
        if codec is Compression.NONE:
            return records
        if len(records) <= BACKGROUND_BLOCK_BYTES:
            return compress(codec, records)
        payload: bytes = yield partial(compress, codec, records)
        return payload

    def _spend(self, cost: int) -> Steps[None]:
        self._spent += cost
        if self._spent >= RECORDS_PER_STEP:
            self._spent = 0
            yield None

    def _check_segments(self) -> None:
        """The log still has the segments of this run that are not replaced yet."""
        present = set(self.log.segments)
        if not present.issuperset(self._segments):
            raise CompactionAborted("the log lost a segment since the run began")


def _headers(chunk: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """The headers of the whole batches; the last batch may be cut."""
    try:
        yield from iterate_headers(chunk, allow_partial=True)
    except KafkaError as error:
        raise StorageError(f"a segment holds bytes that are no batch: {error.message}") from error


def _make_durable(segment: Segment) -> None:
    """Data and indexes: recovery does not look at what lies below the recovery point."""
    segment.seal(sync=True)
    segment.sync()


def _remove_all(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove()


def _remove_quietly(segment: Segment) -> None:
    """On the way out with another error. What stays is removed at the next open."""
    try:
        segment.remove()
    except OSError as error:
        events_log.warning("a file of an aborted compaction is left", file=segment.path(LOG_SUFFIX), cause=error)
