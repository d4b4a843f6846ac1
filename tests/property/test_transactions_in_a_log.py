"""What a reader at read_committed sees of a log, against a model: after restarts, crashes, cuts and deletions too.

The reader does what Kafka's consumers do: it takes the batches it was given, keeps track of the producers that the
aborted transactions name, and passes over their records until their marker comes.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.log.compaction.cleaner import Cleaner
from tailrace.log.compaction.run import Limits
from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.wire.markers import Marker, build_marker, read_marker
from tailrace.wire.records import Record, build_batch, iterate_headers
from tests.unit.log.storage import World, sync

PRODUCERS = st.integers(1, 4)
CONFIG = TopicConfig(
    internal_segment_bytes=600,
    index_interval_bytes=150,
    message_timestamp_before_max_ms=1 << 60,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)
LIMITS = Limits(map_bytes=1 << 16, read_bytes=4096, max_decompressed_bytes=1 << 20)


class Written:
    """A batch of the model. `is_committed` is None while its transaction is open."""

    def __init__(self, offset: int, count: int, producer_id: int) -> None:
        self.offset = offset
        self.next_offset = offset + count
        self.producer_id = producer_id  # -1: plain
        self.is_committed: bool | None = None if producer_id >= 0 else True
        self.marker_offset: int | None = None


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(CONFIG)
        self.log: Log = self.world.open()
        self.batches: list[Written] = []
        self.sequences: dict[int, int] = {}
        self.count = 0  # How many batches there were, for keys that differ.
        self.stable_offset = 0  # What is compacted is committed, and is not cut.

    def batch(self, count: int, **options: Any) -> memoryview:
        records = [
            Record(index, 1000, f"{self.log.log_end_offset}.{index}.{self.count}".encode(), b"value")
            for index in range(count)
        ]
        self.count += 1
        return memoryview(bytearray(build_batch(records, **options)))

    # ---- what happens to it

    @rule(count=st.integers(1, 3), producer_id=PRODUCERS)
    def write(self, count: int, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        batch = self.batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        result = self.log.append_as_leader(batch, leader_epoch=0, origin=Origin.COORDINATOR)
        self.batches.append(Written(result.base_offset, count, producer_id))

    @rule(count=st.integers(1, 3))
    def write_plain(self, count: int) -> None:
        result = self.log.append_as_leader(self.batch(count), leader_epoch=0)
        self.batches.append(Written(result.base_offset, count, -1))

    @rule(producer_id=PRODUCERS, is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        marker = build_marker(Marker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=1000)
        view = memoryview(bytearray(marker))
        offset = self.log.append_as_leader(view, leader_epoch=0, origin=Origin.COORDINATOR).base_offset
        for batch in self.batches:
            if batch.producer_id == producer_id and batch.is_committed is None:
                batch.is_committed, batch.marker_offset = is_commit, offset

    @rule()
    def sync(self) -> None:
        sync(self.log)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.log = self.world.reopen_after_clean_close(self.log)
        else:
            sync(self.log)
            self.log = self.world.reopen_after_crash(self.log)

    @precondition(lambda self: self.log.log_end_offset > self.log.log_start_offset)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        start, end = max(self.log.log_start_offset, self.stable_offset), self.log.log_end_offset
        self.log.truncate(start + int(share * (end - start)))
        end = self.log.log_end_offset
        self.batches = [batch for batch in self.batches if batch.offset < end]
        for batch in self.batches:
            if batch.marker_offset is not None and batch.marker_offset >= end:
                batch.is_committed = batch.marker_offset = None
        self.sequences = {id_: state.next_sequence for id_, state in self.log.producers.states.items()}

    @rule(share=st.floats(0, 0.5))
    def delete_records(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.advance_start(start + int(share * (end - start)))

    @rule(expires=st.booleans())
    def compact(self, expires: bool) -> None:
        """No two records have the same key: only what was aborted may go, and what nothing needs any more."""
        if expires:
            self.world.clock.advance_ms(CONFIG.delete_retention_ms)
        self.log.roll()
        sync(self.log)
        cleaner = Cleaner(self.world.disk, "/data", LIMITS)
        self.stable_offset = self.log.last_stable_offset(self.log.log_end_offset)
        steps = cleaner.begin([(self.log, self.stable_offset)], self.world.clock.wall_ms())
        result = None
        while steps is not None:
            try:
                work = steps.send(result)
            except StopIteration:
                break
            result = None if work is None else work()

    # ---- what must hold

    @invariant()
    def the_last_stable_offset_is_that_of_the_first_undecided(self) -> None:
        end = self.log.log_end_offset
        undecided = [batch.offset for batch in self.batches if batch.is_committed is None]
        assert self.log.last_stable_offset(end) == max(min([*undecided, end]), self.log.log_start_offset)

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        log = self.log
        stable = log.last_stable_offset(log.log_end_offset)
        for start in {log.log_start_offset, (log.log_start_offset + stable) // 2}:
            expected = [
                offset
                for batch in self.batches
                if batch.is_committed
                for offset in range(batch.offset, batch.next_offset)
                if start <= offset < stable
            ]
            assert read_committed(log, start, stable) == expected


def read_committed(log: Log, start: int, end_offset: int) -> list[int]:
    seen: list[int] = []
    position = start
    while position < end_offset:
        slice_ = log.read(position, 300, end_offset=end_offset)
        if slice_ is None:
            break  # Compaction has removed all that was left.
        aborted = sorted(
            (each.first_offset, each.producer_id)
            for each in log.files.find_aborted(slice_, position, end_offset=end_offset)
        )
        data, passed_over = slice_.read(), set()
        for at, header in iterate_headers(data, allow_partial=True):
            while aborted and aborted[0][0] <= header.last_offset:
                passed_over.add(aborted.pop(0)[1])
            position = max(position, header.next_offset)
            if header.is_control:
                marker = read_marker(header, data[at : at + header.size_bytes])
                if marker is not None and not marker.is_commit:
                    passed_over.discard(header.producer_id)
            elif header.record_count and not (header.is_transactional and header.producer_id in passed_over):
                seen += [offset for offset in range(header.base_offset, header.next_offset) if offset >= start]
    return seen


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
