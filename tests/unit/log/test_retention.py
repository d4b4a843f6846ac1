"""Which segments go, one rule at a time; and how, on a full disk."""

from contextlib import suppress
from dataclasses import dataclass

import pytest

from tailrace.log.directory import LogDirectory
from tailrace.log.retention import decide_expired_segments, expire_segments
from tailrace.log.scrub.ending import find_lost
from tailrace.model.config import TopicConfig
from tailrace.sim.disk import DeadError
from tailrace.sim.random import SimRandom

from .storage import PARTITION, World, append, read_all, sync

DELETE = frozenset({"delete"})
COMPACT = frozenset({"compact"})


@dataclass
class FakeSegment:
    base_offset: int
    size_bytes: int
    largest_timestamp: int


# Four segments of ten records and 100 bytes; the last is the active one.
SEGMENTS = [FakeSegment(start, 100, 1000 + start) for start in (0, 10, 20, 30)]


def expired(
    config: TopicConfig,
    segments: list[FakeSegment] = SEGMENTS,
    *,
    now_ms: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 40,
) -> int:
    return decide_expired_segments(
        segments,
        config,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        log_end_offset=40,
        high_watermark=high_watermark,
    ).count


@pytest.mark.parametrize(("now_ms", "count"), [(1100, 0), (1101, 1), (1110, 1), (1111, 2), (1131, 4)])
def test_by_time_a_segment_goes_when_its_newest_record_is_too_old(now_ms: int, count: int) -> None:
    config = TopicConfig(cleanup_policy=DELETE, retention_ms=100, retention_bytes=-1)
    assert expired(config, now_ms=now_ms) == count


def test_by_time_nothing_goes_behind_a_young_segment() -> None:
    segments = [FakeSegment(0, 100, 9000), *SEGMENTS[1:]]
    assert expired(TopicConfig(cleanup_policy=DELETE, retention_ms=100), segments, now_ms=5000) == 0


@pytest.mark.parametrize(("retention_bytes", "count"), [(400, 0), (301, 0), (300, 1), (250, 1), (200, 2), (0, 4)])
def test_by_size_the_log_stays_at_least_as_large_as_the_limit(retention_bytes: int, count: int) -> None:
    assert expired(TopicConfig(cleanup_policy=DELETE, retention_ms=-1, retention_bytes=retention_bytes)) == count


def test_no_limit_keeps_everything() -> None:
    assert expired(TopicConfig(cleanup_policy=DELETE, retention_ms=-1, retention_bytes=-1), now_ms=10**15) == 0


def test_time_and_size_count_only_where_the_policy_deletes() -> None:
    limits = {"retention_ms": 1, "retention_bytes": 0}
    assert expired(TopicConfig(cleanup_policy=COMPACT, **limits), now_ms=10**15) == 0
    assert expired(TopicConfig(cleanup_policy=COMPACT | DELETE, **limits), now_ms=10**15) == 4


@pytest.mark.parametrize(("log_start_offset", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3), (40, 3)])
def test_what_lies_before_the_log_start_goes_under_every_policy(log_start_offset: int, count: int) -> None:
    config = TopicConfig(cleanup_policy=COMPACT)
    assert expired(config, log_start_offset=log_start_offset) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(0, 0), (9, 0), (10, 1), (39, 3), (40, 4)])
def test_nothing_goes_past_the_high_watermark(high_watermark: int, count: int) -> None:
    config = TopicConfig(cleanup_policy=DELETE, retention_ms=1)
    assert expired(config, now_ms=10**15, high_watermark=high_watermark) == count


def test_an_empty_active_segment_stays() -> None:
    segments = [*SEGMENTS[:3], FakeSegment(30, 0, 0)]
    assert expired(TopicConfig(cleanup_policy=DELETE, retention_ms=1), segments, now_ms=10**15) == 3


def test_size_counts_what_time_has_taken() -> None:
    segments = [FakeSegment(0, 300, 1000), FakeSegment(10, 50, 9000), FakeSegment(20, 50, 9000)]
    config = TopicConfig(cleanup_policy=DELETE, retention_ms=100, retention_bytes=150)
    assert expired(config, segments, now_ms=5000) == 1


# A disk that is full when segments expire


EXPIRING = TopicConfig(retention_ms=1, message_timestamp_before_max_ms=1 << 60)


def start(machine):
    directory = LogDirectory.open(machine.disk, machine.clock, SimRandom(1), "/data", node_id=1, cluster_id="c")
    directory.proof.note_running(1)
    return directory, directory.open_log(PARTITION, EXPIRING)


@pytest.fixture
def full():
    """A folder whose segment expired while the disk had no room for the log start: it and its log."""
    machine = World()
    directory, log = start(machine)
    append(log)
    log.roll()
    append(log)
    sync(log)
    machine.disk.fill(left_bytes=0)
    assert expire_segments(log, now_ms=machine.clock.wall_ms(), high_watermark=log.segments[-1].base_offset) == 1
    with pytest.raises(OSError, match="ENOSPC"):
        directory.begin_log_start_checkpoint()()
    assert log.delete_expired_segments() == 1
    return machine, directory, log


def deleted_names(machine, log):
    return [name for name in machine.disk.list(log.folder) if name.endswith(".deleted")]


def test_a_start_that_is_killed_leaves_the_proof_that_segments_have_expired(full):
    machine, _, log = full
    expected = log.log_start_offset
    for _ in range(3):
        machine.disk.crash()
        machine.disk.heal()
        _, log = start(machine)
        assert (log.damage, log.log_start_offset) == (None, expected)
    machine.disk.power_loss(SimRandom(7))
    directory, log = start(machine)
    assert (log.damage, log.log_start_offset) == (None, expected)
    directory.begin_removal(machine.clock.monotonic_ms())()
    assert deleted_names(machine, log) == []
    machine.disk.crash()
    _, log = start(machine)
    assert (log.damage, log.log_start_offset) == (None, expected)


@pytest.mark.parametrize("seed", range(30))
def test_the_bytes_of_expired_segments_make_room_for_the_log_start(full, seed):
    machine, directory, log = full
    records = read_all(log)
    machine.clock.advance_ms(log.config.file_delete_delay_ms)
    work = directory.begin_removal(machine.clock.monotonic_ms())
    machine.disk.die_after(seed % 10, torn_bytes=0, on_death=lambda: None)
    with suppress(OSError, DeadError):
        work()
    machine.disk.power_loss(SimRandom(seed))
    machine.disk.heal()
    _, log = start(machine)
    # The power loss may have given the segment its name back, and then it is whole.
    assert log.damage is None
    assert not any(find_lost(machine.disk, log.segments, log.log_start_offset))
    assert read_all(log)[-len(records) :] == records


def test_a_full_disk_loses_its_expired_segments(full):
    machine, directory, log = full
    machine.clock.advance_ms(log.config.file_delete_delay_ms)
    directory.begin_removal(machine.clock.monotonic_ms())()
    assert deleted_names(machine, log) == []
    machine.disk.crash()
    _, log = start(machine)
    assert (log.damage, log.log_start_offset > 0) == (None, True)
