"""A damaged segment is written anew, and whenever the process dies the log is good or as it was."""

import pytest

from tailrace.log.files.damaged import DamagedError
from tailrace.log.log import Log
from tailrace.log.scrub.copy import SegmentCopy
from tailrace.log.scrub.walk import Bounds
from tailrace.sim.loop import DeadError
from tailrace.sim.random import SimRandom
from tailrace.wire.records import iterate_headers
from tests.unit.log.scrub.scrubbing import check, content, filled
from tests.unit.log.storage import FOLDER, World, make_batch, offsets_in, read_all, sync

CLOSED = f"{FOLDER}/{0:020d}.log"


def damaged(world: World) -> tuple[Log, bytes]:
    """A log with a batch that is damaged, and the segment as it was."""
    log = filled(world)
    sync(log)
    sound = bytes(content(world, CLOSED))
    starts = [at for at, _ in iterate_headers(sound)]
    content(world, CLOSED)[starts[5] + 70] ^= 1
    log.note_damaged_ranges(log.segments[0], check(world, log).damage)
    return log, sound


def repair(world: World, log: Log, sound: bytes) -> None:
    segment = log.segments[0]
    (damage,) = segment.damaged_ranges
    copy = SegmentCopy(world.disk, log, segment, bounds=Bounds(1 << 62, 24, log.epochs.epoch_for))
    bad = bytes(content(world, CLOSED))
    copy.add(bad[: damage.position], start_offset=0, end_offset=24)
    copy.add(
        sound[damage.position : damage.end_position], start_offset=damage.start_offset, end_offset=damage.end_offset
    )
    copy.add(bad[damage.end_position :], start_offset=0, end_offset=24)
    copy.make_durable()
    assert copy.may_swap()
    copy.swap()
    copy.remove_old()


def test_the_new_segment_is_the_old_one_as_it_was():
    world = World()
    log, sound = damaged(world)
    repair(world, log, sound)
    assert bytes(content(world, CLOSED)) == sound
    assert log.damaged_ranges == ()
    assert read_all(log) == list(range(26))
    assert world.names(".cleaned") == world.names(".swap") == []
    assert not check(world, log).damage


def test_whenever_the_process_or_the_machine_dies_the_log_is_good_or_damaged_as_before():
    outcomes = set()
    for operations in range(60):
        for loses_power in (False, True):
            world = World()
            log, sound = damaged(world)
            bad = bytes(content(world, CLOSED))
            world.disk.die_after(operations, torn_bytes=50, on_death=lambda: None)
            try:
                repair(world, log, sound)
                is_done = True
            except DeadError:
                is_done = False
            if loses_power:
                world.disk.power_loss(SimRandom(operations))
            else:
                world.disk.crash()
            again = world.open(recovery_point=26)
            found = bytes(content(world, CLOSED))
            assert found in (sound, bad)
            assert again.log_end_offset == 26
            assert [segment.base_offset for segment in again.segments] == [0, 24]
            assert world.names(".cleaned") == world.names(".swap") == world.names(".deleted") == []
            damage = check(world, again).damage
            assert len(damage) == (found == bad)
            outcomes.add((is_done, found == sound))
    assert outcomes >= {(False, False), (False, True), (True, True)}


def test_what_is_no_good_batch_or_does_not_fit_is_refused():
    world = World()
    log, sound = damaged(world)
    starts = [at for at, _ in iterate_headers(sound)]
    bounds = Bounds(1 << 62, 24, log.epochs.epoch_for)
    copy = SegmentCopy(world.disk, log, log.segments[0], bounds=bounds)
    copy.add(sound[: starts[5]], start_offset=0, end_offset=24)
    wrong = bytearray(sound[starts[5] : starts[6]])
    wrong[80] ^= 1
    for batch in (
        bytes(wrong),  # Its CRC.
        make_batch(2, base_offset=8, leader_epoch=1).tobytes(),  # Before what is there.
        make_batch(3, base_offset=10, leader_epoch=1).tobytes(),  # Beyond the range.
        make_batch(2, base_offset=10, leader_epoch=9).tobytes(),  # From another history.
        b"x" * 100,
    ):
        with pytest.raises(DamagedError):
            copy.add(batch, start_offset=10, end_offset=12)
    copy.discard()
    assert world.names(".cleaned") == []


def test_a_log_that_has_changed_meanwhile_is_left_alone():
    for change in (lambda log: log.truncate(20), lambda log: log.truncate(4)):
        world = World()
        log, _ = damaged(world)
        segment = log.segments[0]
        copy = SegmentCopy(world.disk, log, segment, bounds=Bounds(1 << 62, 24, log.epochs.epoch_for))
        assert copy.may_swap()
        change(log)
        assert not copy.may_swap()


def test_offsets_that_the_source_does_not_have_are_covered_by_an_empty_batch():
    world = World()
    log, sound = damaged(world)
    starts = [at for at, _ in iterate_headers(sound)]
    copy = SegmentCopy(world.disk, log, log.segments[0], bounds=Bounds(1 << 62, 24, log.epochs.epoch_for))
    copy.add(sound[: starts[5]], start_offset=0, end_offset=24)
    copy.reach(24)
    copy.make_durable()
    copy.swap()
    assert read_all(log) == list(range(10))
    assert offsets_in(log.read(24, 1 << 20, end_offset=26)) == [24, 25]
    assert not check(world, log).damage
