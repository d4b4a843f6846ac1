"""The log against a list of batches: whatever is done to it, in whatever order, it holds what the list holds.

The machine appends as a leader and as a follower, syncs, rolls, truncates, moves the start, lets segments expire,
closes, is killed and loses power. After each step every read and every search agrees with the list.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.log.directory import LogDirectory
from tailrace.log.log import Log
from tailrace.log.retention import expire_segments
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.records import Compression, Record, build_batch, iterate_headers, iterate_records

PARTITION = TopicPartition("t", PartitionIndex(0))
BOMB = 1 << 20


class Batch:
    """One batch of the model: where it begins, what its records' timestamps are, and which sequence comes next."""

    def __init__(self, base_offset: int, timestamps: list[int], epoch: int, *, producer: int, sequence: int) -> None:
        self.base_offset = base_offset
        self.timestamps = timestamps
        self.epoch = epoch
        self.producer = producer
        self.next_sequence = sequence + len(timestamps)

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.timestamps)

    def records(self) -> list[tuple[int, int, int]]:
        return [(timestamp, self.base_offset + i, self.epoch) for i, timestamp in enumerate(self.timestamps)]


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock(wall_ms=1_000_000)
        self.disk = SimDisk(self.clock)
        self.batches: list[Batch] = []
        self.start = self.end = 0
        self.synced_end = 0  # what a power loss must leave
        self.has_unsynced_cut = False
        self.epoch = 0
        self.sequences: dict[int, int] = {}

    @initialize(
        segment_bytes=st.sampled_from([400, 900, 3000]),
        interval=st.sampled_from([0, 100, 400]),
        kept_every_bytes=st.sampled_from([1, 500, 1 << 30]),
    )
    def begin(self, segment_bytes: int, interval: int, kept_every_bytes: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("tailrace.log.producers.KEPT_EVERY_BYTES", kept_every_bytes)
        self.config = TopicConfig(
            internal_segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            message_timestamp_before_max_ms=1 << 60,
            message_timestamp_after_max_ms=1 << 60,
            retention_ms=-1,
        )
        self.start_broker()
        self.sync()
        self.disk.sync_folder("/data")

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    def start_broker(self) -> None:
        self.directory = LogDirectory.open(self.disk, self.clock, SimRandom(1), "/data", node_id=1, cluster_id="c")
        self.log: Log = self.directory.open_log(PARTITION, self.config)

    # What is done to it

    @rule(
        timestamps=st.lists(st.integers(0, 60), min_size=1, max_size=4),
        codec=st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP]),
        producer=st.integers(-1, 2),
    )
    def append(self, timestamps: list[int], codec: Compression, producer: int) -> None:
        batch = self.make_batch(timestamps, codec, producer)
        result = self.log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=self.epoch)
        assert (result.base_offset, result.next_offset) == (self.batches[-1].base_offset, self.end)

    @rule(
        lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6),
        producer=st.integers(-1, 2),
        elects=st.booleans(),
    )
    def follow(self, lengths: list[int], producer: int, elects: bool) -> None:
        first_offset = self.end
        sent = b""
        for number, length in enumerate(lengths):
            if elects and number == 1:
                self.elect()
            base_offset = self.end
            sent += self.make_batch(
                [30] * length, Compression.NONE, producer, base_offset=base_offset, leader_epoch=self.epoch
            )
        result = self.log.append_as_follower(memoryview(sent), leader_epoch=self.epoch)
        assert (result.base_offset, result.next_offset) == (first_offset, self.end)

    def make_batch(self, timestamps: list[int], codec: Compression, producer: int, **numbers: int) -> bytes:
        """The next one, which the model has from now on."""
        sequence = self.sequences.get(producer, 0)
        model = Batch(self.end, timestamps, self.epoch, producer=producer, sequence=sequence)
        self.batches.append(model)
        self.end = model.next_offset
        if producer >= 0:
            self.sequences[producer] = model.next_sequence
        base_offset = numbers.get("base_offset", 0)
        return build_batch(
            [Record(base_offset + i, timestamp, None, b"v" * 30, ()) for i, timestamp in enumerate(timestamps)],
            compression=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            **numbers,
        )

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        work, end_offset = self.log.begin_sync()
        work()
        self.log.mark_synced(end_offset)
        self.directory.begin_checkpoint()()
        self.synced_end = self.end
        self.has_unsynced_cut = False

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        if not self.batches:
            return
        number = int(share * len(self.batches))
        end = self.batches[number].base_offset if number < len(self.batches) else self.end
        if end < self.log.segments[0].base_offset:
            self.batches = []  # Below all that is left the log begins anew.
        self.log.truncate(end)
        self.cut(end)
        # Until the next sync a power loss may bring back what was cut.
        self.has_unsynced_cut = True

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.start + int(share * (self.end - self.start))
        self.log.advance_start(start)
        self.directory.begin_log_start_checkpoint()()
        self.start = start
        expire_segments(self.log, now_ms=self.clock.wall_ms(), high_watermark=self.end)
        self.log.delete_expired_segments()

    @rule()
    def close_handles(self) -> None:
        self.log.files.segments.close_idle_handles()

    @rule()
    def restart(self) -> None:
        self.directory.close()
        self.disk.crash()
        self.start_broker()
        self.synced_end = self.end
        self.has_unsynced_cut = False

    @rule()
    def kill(self) -> None:
        self.disk.crash()
        self.start_broker()

    @precondition(lambda self: not self.has_unsynced_cut)
    @rule(seed=st.integers(0, 1 << 30))
    def lose_power(self, seed: int) -> None:
        self.disk.power_loss(SimRandom(seed))
        self.start_broker()
        assert self.synced_end <= self.log.log_end_offset <= self.end
        assert self.log.log_start_offset == self.start
        # Only a snapshot tells of batches that were deleted, and it may not have been synced yet.
        first_offset = self.log.segments[0].base_offset
        known = {producer_id: state.last_sequence + 1 for producer_id, state in self.log.producers.states.items()}
        self.batches = [
            batch
            for batch in self.batches
            if batch.next_offset > first_offset or batch.next_sequence <= known.get(batch.producer, 0)
        ]
        self.cut(self.log.log_end_offset)

    # Less than half of the batch: an append first takes back what a failed one before it has left, which makes room.
    @rule(room=st.integers(0, 150))
    def fill_the_disk(self, room: int) -> None:
        self.disk.capacity_bytes = 1 << 40
        used_bytes = (1 << 40) - self.disk.free_bytes("/data")
        self.disk.capacity_bytes = used_bytes + room
        batch = build_batch([Record(0, 5, None, b"v" * 310, ())])
        with pytest.raises(StorageError):
            self.log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=self.epoch)
        self.disk.heal()

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]
        self.end = end
        self.synced_end = min(self.synced_end, end)
        self.start = min(self.start, end)
        self.epoch = max(self.epoch, 0)
        self.sequences = {batch.producer: batch.next_sequence for batch in self.batches if batch.producer >= 0}

    # What must hold

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert [offset for _, offset, _ in self.visible()] == self.read_all()

    @invariant()
    def remembers_epochs_and_producers(self) -> None:
        firsts: dict[int, int] = {}
        for batch in self.batches:
            if batch.next_offset > self.start:
                firsts.setdefault(batch.epoch, max(batch.base_offset, self.start))
        assert dict(self.log.epochs.entries).items() >= firsts.items()
        assert {producer_id: state.last_sequence + 1 for producer_id, state in self.log.producers.states.items()} == {
            producer: sequence for producer, sequence in self.sequences.items() if sequence
        }

    @rule(offset_share=st.floats(0, 1), max_bytes=st.integers(1, 2000), end_share=st.floats(0, 1))
    def read(self, offset_share: float, max_bytes: int, end_share: float) -> None:
        offset = self.start + int(offset_share * (self.end - self.start))
        ends = [batch.next_offset for batch in self.batches if batch.next_offset > offset] or [self.end]
        end = ends[int(end_share * (len(ends) - 1))]
        found = self.log.read(offset, max_bytes, end_offset=end)
        holder = next((batch for batch in self.batches if batch.next_offset > offset), None)
        if holder is None or offset >= end:
            assert found is None
            return
        data = found.read()
        headers = list(iterate_headers(data, allow_partial=True))
        assert headers[0][1].base_offset == holder.base_offset
        assert headers[-1][1].next_offset <= end
        assert len(data) <= max(max_bytes, headers[0][1].size_bytes)

    @rule(timestamp=st.integers(0, 61))
    def search(self, timestamp: int) -> None:
        expected = next((record for record in self.visible() if record[0] >= timestamp), None)
        assert self.log.offset_by_timestamp(timestamp, end_offset=self.end) == expected

    @rule()
    def search_newest(self) -> None:
        expected = max(self.visible(), key=lambda record: record[0], default=None)
        found = self.log.max_timestamp_offset(end_offset=self.end)
        if self.start == 0:
            assert found == expected

    def visible(self) -> list[tuple[int, int, int]]:
        return [record for batch in self.batches for record in batch.records() if record[1] >= self.start]

    def read_all(self) -> list[int]:
        offsets: list[int] = []
        position = self.start
        while (found := self.log.read(position, 700, end_offset=self.end)) is not None:
            data = found.read()
            for at, header in iterate_headers(data, allow_partial=True):
                batch = data[at : at + header.size_bytes]
                records = iterate_records(batch, max_decompressed_bytes=BOMB)
                offsets += [record.offset for record in records if record.offset >= position]
            position = offsets[-1] + 1
        return offsets


LogMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLog = LogMachine.TestCase
