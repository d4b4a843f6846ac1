"""What a reader at read_committed sees of a log, against a model: after restarts, crashes, cuts and deletions too.

The reader does what Kafka's consumers do: it takes the batches it was given, keeps track of the producers that the
aborted transactions name, and passes over their records until their marker comes.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.wire.markers import Marker, build_marker, read_marker
from tailrace.wire.records import iterate_headers
from tests.unit.log.storage import World, make_batch, sync

PRODUCERS = st.integers(1, 4)
CONFIG = TopicConfig(internal_segment_bytes=600, index_interval_bytes=150, message_timestamp_before_max_ms=1 << 60)


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

    # ---- what happens to it

    @rule(count=st.integers(1, 3), producer_id=PRODUCERS)
    def write(self, count: int, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        batch = make_batch(count, producer_id=producer_id, sequence=sequence, transactional=True)
        result = self.log.append_as_leader(batch, leader_epoch=0, origin=Origin.COORDINATOR)
        self.batches.append(Written(result.base_offset, count, producer_id))

    @rule(count=st.integers(1, 3))
    def write_plain(self, count: int) -> None:
        result = self.log.append_as_leader(make_batch(count), leader_epoch=0)
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
        start, end = self.log.log_start_offset, self.log.log_end_offset
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
        assert slice_ is not None
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in log.find_aborted(slice_, position, end_offset=end_offset)
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
            elif not (header.is_transactional and header.producer_id in passed_over):
                seen += [offset for offset in range(header.base_offset, header.next_offset) if offset >= start]
    return seen


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
