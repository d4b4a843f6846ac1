"""Compaction against a dict: the last value of each key, at its offset, whatever the batches, codecs and crashes."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.log.compaction.cleaner import Cleaner
from tailrace.log.compaction.run import Limits, Outcome, Steps
from tailrace.log.log import Log
from tailrace.model.config import TopicConfig
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.clock import SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import DeadError
from tailrace.sim.random import SimRandom
from tailrace.wire.records import Compression, build_batch, iterate_headers, iterate_records

PARTITION = TopicPartition("t", PartitionIndex(0))
CONFIG = TopicConfig(
    cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_bytes=600, index_interval_bytes=100
)


class Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"long" * 20, b"e"])
VALUES = st.one_of(st.none(), st.binary(max_size=12))
HEADERS = st.sampled_from([(), (("h", b"1"),), (("h", None), ("i", b""))])
TIMES = st.integers(-5_000, 5_000)
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES, TIMES, HEADERS), min_size=1, max_size=6),
        st.sampled_from(list(Compression)),
        st.integers(-1, 1),  # producer id
        st.booleans(),  # roll afterwards
    ),
    min_size=1,
    max_size=14,
)


class World:
    def __init__(self, map_bytes: int) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock)
        self.disk.make_folder("/data")
        self.limits = Limits(map_bytes=map_bytes, read_bytes=300, max_decompressed_bytes=1 << 20)
        self.rows: list[Row] = []
        self.sequences = {-1: -1, 0: 0, 1: 0}
        self.open()

    def open(self, recovery_point: int = 0) -> None:
        self.log = Log.open(
            self.disk, self.clock, "/data/t-0", CONFIG, topic_partition=PARTITION, recovery_point=recovery_point
        )
        self.cleaner = Cleaner(self.disk, "/data", self.limits)

    def fill(self, batches: list[tuple[list[tuple[bytes, bytes | None, int, tuple]], Compression, int, bool]]) -> None:
        for records, codec, producer_id, rolls in batches:
            now_ms = self.clock.wall_ms()
            numbered = [
                Row(index, now_ms + time, key, value, headers)
                for index, (key, value, time, headers) in enumerate(records)
            ]
            batch = build_batch(
                numbered,
                compression=codec,
                producer_id=producer_id,
                producer_epoch=-1 if producer_id < 0 else 0,
                base_sequence=self.sequences[producer_id],
            )
            if producer_id >= 0:
                self.sequences[producer_id] += len(records)
            base_offset = self.log.append_as_leader(memoryview(batch), leader_epoch=0).base_offset
            self.rows += [row._replace(offset=base_offset + row.offset) for row in numbered]
            if rolls:
                self.log.roll()
        self.sync()

    def sync(self) -> None:
        work, end_offset = self.log.begin_sync()
        work()
        self.log.mark_synced(end_offset)

    def compact(self) -> None:
        """Pass after pass, until nothing is dirty."""
        for _ in range(100):
            steps = self.cleaner.begin([(self.log, self.log.log_end_offset)], self.clock.wall_ms())
            if steps is None:
                return
            finish(steps)
        raise AssertionError("compaction makes no progress")

    def content(self) -> list[Row]:
        rows: list[Row] = []
        offset = self.log.log_start_offset
        while (part := self.log.read(offset, 1 << 20, end_offset=self.log.log_end_offset)) is not None:
            data = part.read()
            for position, header in iterate_headers(data):
                batch = data[position : position + header.size_bytes]
                rows += [Row(*record) for record in iterate_records(batch, max_decompressed_bytes=1 << 20)]
                offset = header.next_offset
            if offset >= self.log.log_end_offset:
                break
        return rows

    def expected(self) -> list[Row]:
        """Below the active segment the last record of each key, from there on all."""
        active_offset = self.log.active.base_offset
        last = {row.key: row.offset for row in self.rows if row.offset < active_offset}
        return [row for row in self.rows if row.offset >= active_offset or last[row.key] == row.offset]


def finish(steps: Steps[Outcome]) -> None:
    result = None
    while True:
        try:
            work = steps.send(result)
        except StopIteration:
            return
        result = None if work is None else work()


@settings(max_examples=120, deadline=None)
@given(BATCHES, st.sampled_from([1, 400, 1 << 20]))
def test_the_last_value_of_each_key_is_left(batches: list, map_bytes: int) -> None:
    world = World(map_bytes)
    world.fill(batches)
    states = {producer_id: state.last_sequence for producer_id, state in world.log.producers.states.items()}
    active = world.log.active.file.read(0, 1 << 20)
    world.compact()
    assert world.content() == world.expected()
    assert world.log.active.file.read(0, 1 << 20) == active
    # Every offset can still be asked for, and the files alone tell the same.
    for row in world.expected():
        part = world.log.read(row.offset, 1, end_offset=world.log.log_end_offset)
        assert part is not None
        header = next(iterate_headers(part.read()))[1]
        assert header.base_offset <= row.offset <= header.last_offset
    # An older checkpoint of the recovery point is no reason to take gaps for losses.
    for recovery_point in range(world.log.log_end_offset):
        world.disk.crash()
        world.open(recovery_point)
        assert world.content() == world.expected()
    for name in world.disk.list("/data/t-0"):
        if name.endswith((".index", ".timeindex", ".snapshot")):
            world.disk.remove(f"/data/t-0/{name}")
    world.open()
    assert world.content() == world.expected()
    assert {producer_id: state.last_sequence for producer_id, state in world.log.producers.states.items()} == states


@settings(max_examples=120, deadline=None)
@given(BATCHES, st.integers(0, 400), st.sampled_from([400, 1 << 20]), st.booleans(), st.integers(0, 1000))
def test_a_death_in_between_loses_nothing(
    batches: list, changes: int, map_bytes: int, power_fails: bool, seed: int
) -> None:
    world = World(map_bytes)
    world.fill(batches)
    die_and_recover(world, changes, power_fails=power_fails, seed=seed)


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_death_at_each_single_change_loses_nothing(power_fails: bool) -> None:
    records = [[(key, b"%d" % number, 0, ()) for key in (b"a", b"b", b"c" * 40)] for number in range(9)]
    batches = [(each, Compression.NONE, 0, number % 2 == 1) for number, each in enumerate(records)]
    changes = 0
    while True:
        world = World(1 << 20)
        world.fill(batches)
        if not die_and_recover(world, changes, power_fails=power_fails, seed=changes):
            break
        changes += 1
    # Two groups of four segments, each of three files, renamed twice: many moments to die at.
    assert changes > 40


def die_and_recover(world: World, changes: int, *, power_fails: bool, seed: int) -> bool:
    """Whether it died. Right after it the last values are there; a second run ends where the first would have."""
    end_offset, wanted = world.log.log_end_offset, world.expected()
    last = {row.key: row for row in world.rows}
    world.disk.die_after(changes, torn_bytes=0, on_death=lambda: None)
    died = False
    try:
        world.compact()
    except DeadError:
        died = True
    if power_fails:
        world.disk.power_loss(SimRandom(seed))
    else:
        world.disk.crash()
    world.open(recovery_point=seed % (end_offset + 1))
    content = world.content()
    assert world.log.log_end_offset == end_offset
    assert set(wanted) <= set(content) <= set(world.rows)
    assert content == sorted(content)
    assert {row.key: row for row in content} == last
    assert not [name for name in world.disk.list("/data/t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
    world.sync()
    world.compact()
    assert world.content() == wanted
    check_that_the_deleted_stay_deleted(world)
    return died


def check_that_the_deleted_stay_deleted(world: World) -> None:
    """Long after, tombstones go, and no value comes back that one of them had deleted."""
    for _ in range(2):
        world.clock.advance_ms(CONFIG.delete_retention_ms)
        world.fill([([(b"z", b"z", 0, ())], Compression.NONE, -1, True)])
        world.compact()
    assert world.content() == [row for row in world.expected() if row.value is not None]
