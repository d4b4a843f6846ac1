"""The end of a log is looked at even after a clean stop."""

import pytest

from tailrace.log.log import Log
from tailrace.model.config import TopicConfig
from tests.unit.log.storage import FOLDER, World, make_batch

ACTIVE = f"{FOLDER}/{0:020d}.log"


def written(world: World, count: int, *, size: int = 100) -> Log:
    log = world.open()
    for _ in range(count):
        log.append_as_leader(make_batch(value=bytes(size)), leader_epoch=0)
    return log


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("cut_bytes", [1, 61, 130, 165])
def test_a_log_that_was_cut_short_after_a_clean_stop_is_scanned(count: int, cut_bytes: int):
    world = World()
    log = written(world, count)
    log.close(clean=True)
    world.disk.open(ACTIVE).truncate(world.disk.size(ACTIVE) - cut_bytes)
    again = world.open(is_clean=True, recovery_point=log.recovery_point)
    assert again.log_end_offset < count
    assert again.recovery is not None
    # What is written now follows on a good batch.
    again.append_as_leader(make_batch(), leader_epoch=1)
    found = again.read(0, 1 << 20, end_offset=again.log_end_offset)
    assert found is not None
    assert found.size == world.disk.size(ACTIVE)


@pytest.mark.parametrize("position", [-1, -60, -100, -150])
def test_a_last_batch_that_was_damaged_after_a_clean_stop_is_found(position: int):
    world = World()
    log = written(world, 40)
    log.close(clean=True)
    world.disk.open(ACTIVE)._content.data[position] ^= 1
    again = world.open(is_clean=True, recovery_point=log.recovery_point)
    assert (again.log_end_offset, again.recovery is not None) == (39, True)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("count", [1, 41])
def test_a_last_batch_whose_offset_has_risen_is_found(count: int, *, is_clean: bool):
    world = World()
    log = written(world, count)
    log.close(clean=is_clean)
    size = world.disk.size(ACTIVE)
    batch_bytes = size // count
    world.disk.open(ACTIVE)._content.data[size - batch_bytes + 7] ^= 4  # The lowest byte of the base offset.
    again = world.open(is_clean=is_clean, recovery_point=log.recovery_point)
    assert again.log_end_offset == count - 1
    assert again.damage is not None
    assert "nothing was compacted" in again.damage.cause


def test_an_end_with_a_gap_is_left_alone_in_a_compacted_log():
    world = World(TopicConfig(cleanup_policy=frozenset({"compact"})))
    log = written(world, 1)
    log.append_as_follower(make_batch(base_offset=7, leader_epoch=0))
    log.close(clean=False)
    again = world.open()
    assert (again.log_end_offset, again.damage) == (8, None)


def test_bytes_behind_the_end_that_was_stored_are_looked_at():
    world = World()
    log = written(world, 5)
    log.close(clean=True)
    world.disk.open(ACTIVE).append([b"x"])
    again = world.open(is_clean=True, recovery_point=5)
    assert (again.log_end_offset, again.recovery and again.recovery.cut_bytes) == (5, 1)


def test_an_active_segment_that_is_gone_or_empty_shows():
    for lost in ("truncate", "remove"):
        world = World()
        log = written(world, 3)
        log.roll()
        log.append_as_leader(make_batch(), leader_epoch=0)
        log.close(clean=True)
        path = f"{FOLDER}/{3:020d}.log"
        if lost == "remove":
            world.disk.remove(path)
        else:
            world.disk.open(path).truncate(0)
        again = world.open(is_clean=True, recovery_point=4)
        assert (again.log_end_offset, again.recovery is not None) == (3, True)


@pytest.mark.parametrize("count", [0, 1, 3, 40, 400])
def test_a_clean_stop_is_trusted_and_scans_nothing(count: int):
    world = World()
    log = written(world, count)
    log.close(clean=True)
    again = world.open(is_clean=True, recovery_point=count)
    assert (again.log_end_offset, again.recovery) == (count, None)
    assert not again.active.is_open
    # Without the offset that was stored it is found out.
    world.disk.crash()
    unnamed = Log.open(
        world.disk, world.clock, FOLDER, world.config, topic_partition=log.topic_partition, is_clean=True
    )
    assert (unnamed.log_end_offset, unnamed.recovery) == (count, None)


def test_a_large_batch_at_the_end_is_read_whole():
    world = World()
    log = written(world, 3)
    log.append_as_leader(make_batch(value=bytes(900_000)), leader_epoch=0)
    log.close(clean=True)
    assert world.open(is_clean=True, recovery_point=4).recovery is None
    world.disk.crash()
    world.disk.open(ACTIVE)._content.data[-450_000] ^= 1
    assert world.open(is_clean=True, recovery_point=4).log_end_offset == 3


def test_a_missing_index_makes_the_walk_longer_and_nothing_else():
    world = World()
    log = written(world, 40)
    log.close(clean=True)
    world.disk.remove(f"{FOLDER}/{0:020d}.index")
    assert world.open(is_clean=True, recovery_point=40).recovery is None
