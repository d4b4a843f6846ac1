"""What a log knows of its transactions after a power loss, a stop, or a cut."""

import pytest

from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.sim.random import SimRandom
from tailrace.wire.markers import Marker, build_marker

from .storage import FOLDER, World, append, sync


def end(log: Log, *, is_commit: bool) -> None:
    marker = build_marker(Marker(is_commit, 0), producer_id=1, producer_epoch=0, timestamp_ms=1000)
    log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=Origin.COORDINATOR)


@pytest.mark.parametrize("seed", [125, 132, 233])
def test_aborted_transactions_of_a_segment_closed_after_the_last_sync_outlast_a_power_loss(seed):
    world = World()
    log = world.open()
    append(log, producer_id=1, sequence=0, transactional=True)
    end(log, is_commit=False)
    sync(log)
    log.roll()
    world.disk.sync_folder(FOLDER)
    world.disk.power_loss(SimRandom(seed))  # All that was written of the index is gone.
    reopened = world.open(recovery_point=log.recovery_point)
    assert reopened.log_end_offset == 2
    found = reopened.read(0, 1000, end_offset=2)
    assert found is not None
    assert [each[:3] for each in reopened.files.find_aborted(found, 0, end_offset=2)] == [(1, 0, 1)]


@pytest.mark.parametrize("how", ["roll", "stop", "cut"])
def test_a_transaction_whose_marker_is_not_committed_is_undecided_after_a_restart_or_a_cut_too(how):
    world = World()
    log = world.open()
    append(log, producer_id=1, sequence=0, transactional=True)
    append(log, producer_id=1, sequence=1, transactional=True)
    end(log, is_commit=True)
    if how == "stop":
        log = world.reopen_after_clean_close(log)
    else:
        log.roll()
        append(log)
        append(log)
        sync(log)
        if how == "roll":
            log = world.reopen_after_crash(log)
        else:
            log.truncate(4)
    assert log.last_stable_offset(1) == 0
    assert log.last_stable_offset(2) == 0
    assert log.last_stable_offset(3) == 3


def lose(world: World, path: str) -> None:
    world.disk.lose(path)


def empty(world: World, path: str) -> None:
    world.disk.cut(path, 0)


def cut(world: World, path: str) -> None:
    world.disk.cut(path, 5)


def change(world: World, path: str) -> None:
    world.disk.flip(path, 12, 3)  # in the first offset of what was aborted


@pytest.mark.parametrize("harm", [lose, empty, cut, change])
@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_an_index_of_aborted_transactions_that_is_not_as_it_was_stored_is_made_anew(harm, stop):
    world = World()
    log = world.open()
    append(log, producer_id=1, sequence=0, transactional=True)
    log.roll()
    append(log, producer_id=1, sequence=1, transactional=True)
    end(log, is_commit=False)
    log.roll()
    append(log)
    sync(log)
    if stop == "clean":
        log.close(clean=True)
    harm(world, f"{FOLDER}/{1:020d}.txnindex")
    reopened = world.open(
        recovery_point=log.recovery_point,
        is_clean=stop == "clean",
    )
    assert reopened.log_end_offset == 4
    found = reopened.read(0, 1000, end_offset=4)
    assert found is not None
    assert [each[:3] for each in reopened.files.find_aborted(found, 0, end_offset=4)] == [(1, 0, 2)]


def test_the_last_segment_s_index_is_missed_after_a_clean_stop_too():
    world = World()
    log = world.open()
    append(log, producer_id=1, sequence=0, transactional=True)
    end(log, is_commit=False)
    log.close(clean=True)
    lose(world, f"{FOLDER}/{0:020d}.txnindex")
    reopened = world.open(recovery_point=2, is_clean=True)
    found = reopened.read(0, 1000, end_offset=2)
    assert found is not None
    assert [each[:3] for each in reopened.files.find_aborted(found, 0, end_offset=2)] == [(1, 0, 1)]


def test_an_index_that_was_cut_with_its_log_is_not_missed():
    world = World()
    log = world.open()
    append(log)
    append(log, producer_id=1, sequence=0, transactional=True)
    end(log, is_commit=False)
    sync(log)
    log.truncate(1)
    append(log)
    log = world.reopen_after_clean_close(log)
    found = log.read(0, 1000, end_offset=2)
    assert found is not None
    assert log.files.find_aborted(found, 0, end_offset=2) == []
