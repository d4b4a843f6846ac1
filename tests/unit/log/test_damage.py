"""What recovery takes for the torn end of a killed process, and what for damage; and what is kept of a cut."""

import pytest

from tailrace.log.files.kept import CUT_SUFFIX, begin_keeping
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.records import iterate_headers

from .storage import FOLDER, World, append, make_batch, offsets_in, read_all, sync
from .test_recovery import corrupt

BATCHES = 40


@pytest.fixture
def world():
    return World(TopicConfig(index_interval_bytes=200, internal_segment_bytes=1500))


def fill(world):
    log = world.open()
    for number in range(BATCHES):
        log.append_as_leader(make_batch(2, timestamp=1000 + number), leader_epoch=number // 10)
    return log


def names(world):
    return [name for name in world.names("") if name.endswith(".log")]


def batch_positions(world, name):
    return [position for position, _ in iterate_headers(world.disk.read(f"{FOLDER}/{name}"))]


def cut_file(world, name, size):
    world.disk.open(f"{FOLDER}/{name}").truncate(size)


def lose_segment(world, name):
    """With its indexes: else these would tell of it."""
    for each in world.names(""):
        if each.startswith(name.removesuffix(".log")) and not each.endswith(".snapshot"):
            world.disk.remove(f"{FOLDER}/{each}")


def test_a_sound_log_and_a_new_one_are_not_damaged(world):
    log = world.open()
    assert log.damage is None
    log = fill(world)
    assert world.reopen_after_crash(log).damage is None


@pytest.mark.parametrize("left", [1, 60, 70])
def test_a_batch_cut_short_at_the_very_end_is_a_torn_write(world, left):
    log = fill(world)
    last = names(world)[-1]
    cut_file(world, last, batch_positions(world, last)[-1] + left)
    reopened = world.reopen_after_crash(log)
    assert reopened.damage is None
    assert reopened.log_end_offset == 2 * (BATCHES - 1)


def test_a_flipped_byte_is_damage(world):
    log = fill(world)
    last = names(world)[-1]
    position = batch_positions(world, last)[1]
    corrupt(world, last, position + 70)
    damage = world.reopen_after_crash(log).damage
    assert damage is not None
    assert "CRC" in damage.cause
    assert last in damage.cause


def test_a_flipped_byte_in_the_very_last_batch_is_damage(world):
    log = fill(world)
    last = names(world)[-1]
    corrupt(world, last, batch_positions(world, last)[-1] + 70)
    assert world.reopen_after_crash(log).damage is not None


def test_a_length_that_reaches_beyond_the_file_is_damage_if_batches_follow(world):
    log = fill(world)
    last = names(world)[-1]
    corrupt(world, last, batch_positions(world, last)[1] + 8, b"\x7f")
    reopened = world.reopen_after_crash(log)
    assert reopened.damage is not None
    assert reopened.log_end_offset < 2 * BATCHES


@pytest.mark.parametrize("epoch", [0, 9], ids=["falls", "was never led in"])
def test_a_leader_epoch_that_cannot_be_is_damage(world, epoch):
    """No CRC covers it."""
    fill(world)
    last = names(world)[-1]
    corrupt(world, last, batch_positions(world, last)[1] + 12, epoch.to_bytes(4, "big"))
    world.disk.crash()
    damage = world.open(leader_epoch=4).damage
    assert damage is not None
    assert f"leader epoch {epoch}" in damage.cause


@pytest.mark.parametrize("number", [0, 1, -2, -1], ids=["first", "second", "last but one", "last"])
@pytest.mark.parametrize("segment", [1, -1], ids=["amid the log", "at its end"])
def test_an_offset_that_has_risen_is_cut_off_with_what_is_behind_it(world, segment, number):
    """No CRC covers it. Did the log end with it, what lies before would be missing for good."""
    fill(world)
    name = names(world)[segment]
    position = batch_positions(world, name)[number]
    content = world.disk.read(f"{FOLDER}/{name}")
    offset = int.from_bytes(content[position : position + 8], "big")
    corrupt(world, name, position, (offset + 64).to_bytes(8, "big"))
    world.disk.crash()
    reopened = world.open(leader_epoch=4)
    assert reopened.log_end_offset == offset
    assert reopened.damage is not None


def test_a_segment_that_is_gone_from_the_middle_is_damage(world):
    log = fill(world)
    every = names(world)
    world.disk.remove(f"{FOLDER}/{every[1]}")
    damage = world.reopen_after_crash(log).damage
    assert damage is not None
    assert damage.lost_until > int(every[-1].removesuffix(".log"))


def test_a_log_that_ends_below_its_recovery_point_is_damage(world):
    fill(world)
    last = names(world)[-1]
    cut_file(world, last, batch_positions(world, last)[-1])
    world.disk.crash()
    damage = world.open(recovery_point=2 * BATCHES).damage
    assert damage is not None
    assert damage.lost_until == 2 * BATCHES


def test_a_first_segment_that_is_gone_is_damage_and_leaves_its_place(world):
    fill(world)
    every = names(world)
    lose_segment(world, every[0])
    world.disk.crash()
    log = world.open(is_start_proved=True)
    assert log.damage is not None
    assert (log.log_start_offset, names(world)) == (0, every), "the scrub finds it empty, and fetches what it held"
    assert 0 in {suspect.offset for suspect in log.files.damage.suspects.values()}


def test_where_the_log_start_is_not_known_the_first_segment_is_the_start(world):
    fill(world)
    every = names(world)
    lose_segment(world, every[0])
    world.disk.crash()
    log = world.open(is_start_proved=False)
    assert (log.damage, log.log_start_offset) == (None, int(every[1].removesuffix(".log")))


def test_segments_that_are_all_gone_are_damage(world):
    fill(world)
    for name in names(world):
        world.disk.remove(f"{FOLDER}/{name}")
    world.disk.crash()
    assert world.open(recovery_point=10).damage is not None


def test_whoever_opens_it_hears_of_damage_before_it_is_cut(world):
    fill(world)
    last = names(world)[-1]
    size = world.disk.size(f"{FOLDER}/{last}")
    corrupt(world, last, batch_positions(world, last)[1] + 70)
    seen = []
    world.disk.crash()
    world.open(before_damage_is_cut=lambda: seen.append(world.disk.size(f"{FOLDER}/{last}")))
    assert seen == [size]


# What is kept of confirmed records that are cut


def kept(world):
    return [name for name in world.names("") if name.endswith(CUT_SUFFIX)]


def test_what_is_kept_is_what_is_cut(world):
    log = fill(world)
    work = begin_keeping(world.disk, log, 21, 71, leader_epoch=7, max_bytes=1 << 20)
    path = work()
    assert kept(world) == ["00000000000000000021.7.cut"]
    headers = [header for _, header in iterate_headers(world.disk.read(path))]
    assert (headers[0].base_offset, headers[-1].last_offset) == (20, 69)
    log.truncate(21)
    reopened = world.reopen_after_crash(log)
    assert read_all(reopened)[-1] == 19
    assert kept(world) == ["00000000000000000021.7.cut"], "recovery passes it over"
    assert append(reopened) == 20


def test_what_is_kept_is_bounded_and_the_oldest_goes_first(world):
    log = fill(world)
    size = world.disk.size(begin_keeping(world.disk, log, 0, 80, leader_epoch=1, max_bytes=1 << 20)())
    for epoch in (2, 3):
        world.clock.advance_ms(1000)
        begin_keeping(world.disk, log, 40, 80, leader_epoch=epoch, max_bytes=size)()
    assert kept(world) == ["00000000000000000040.2.cut", "00000000000000000040.3.cut"]
    assert begin_keeping(world.disk, log, 0, 80, leader_epoch=4, max_bytes=0)() is None
    path = begin_keeping(world.disk, log, 0, 80, leader_epoch=5, max_bytes=size // 2)()
    assert 0 < world.disk.size(path) <= size // 2


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_closed_segment_that_ends_too_early_is_not_passed_over(policy: str) -> None:
    """It was cut at the edge of a batch: every batch that is left is good. Of a compacted one nobody can say."""
    world = World(TopicConfig(cleanup_policy=frozenset({policy}), message_timestamp_before_max_ms=1 << 60))
    log = world.open()
    for _ in range(3):
        append(log)
    log.roll()
    append(log)
    sync(log)
    closed = log.segments[0].path(".log")
    position = log.segments[0].position_of(2)
    assert position is not None
    log.close(clean=False)
    world.disk.cut(closed, position)
    reopened = world.open(recovery_point=4)
    if policy == "compact":
        assert offsets_in(reopened.read(2, 1 << 20, end_offset=4)) == [3]
        return
    with pytest.raises(KafkaError, match="ends before offset 3") as raised:
        reopened.read(2, 1 << 20, end_offset=4)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert reopened.files.damage.suspects[reopened.topic_partition].is_whole_segment
    assert offsets_in(reopened.read(3, 1 << 20, end_offset=4)) == [3]
