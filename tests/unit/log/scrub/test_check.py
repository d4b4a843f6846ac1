"""A closed segment whose bytes have changed: found, and delimited."""

import pytest

from tailrace.log.files.damaged import DamagedError, DamagedRange
from tailrace.log.scrub.check import READ_BYTES
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.records import iterate_headers
from tests.unit.log.scrub.scrubbing import check, content, filled
from tests.unit.log.storage import FOLDER, World, append, make_batch, offsets_in, read_all

CLOSED = f"{FOLDER}/{0:020d}.log"
TIMES = f"{FOLDER}/{0:020d}.timeindex"


def test_a_sound_segment():
    world = World()
    log = filled(world)
    assert check(world, log) == ((), "", world.disk.size(CLOSED))
    assert check(world, log, log.active) == ((), "", log.active.size_bytes)


def test_every_single_bit_that_flips_is_found_and_nothing_else_is_lost():
    world = World()
    log = filled(world, batches=4)
    data = content(world, CLOSED)
    bounds = [(at, header) for at, header in iterate_headers(bytes(data))]
    for position in range(len(data)):
        bit = 1 << position % 8
        data[position] ^= bit
        outcome = check(world, log)
        data[position] ^= bit
        assert len(outcome.damage) == 1, f"byte {position}"
        found = outcome.damage[0]
        number = max(i for i, (at, _) in enumerate(bounds) if at <= position)
        at, header = bounds[number]
        # It covers the batch, and at most a neighbour with which it was at odds.
        assert found.position <= at
        assert found.end_position >= at + header.size_bytes
        assert found.start_offset <= header.base_offset
        assert found.end_offset >= header.next_offset
        assert found.end_offset - found.start_offset <= 4
        starts = {at: header.base_offset for at, header in bounds} | {len(data): log.active.base_offset}
        assert starts[found.position] == found.start_offset
        assert starts[found.end_position] == found.end_offset


def test_reads_go_around_what_is_known():
    world = World()
    log = filled(world)
    headers = dict(iterate_headers(bytes(content(world, CLOSED))))
    position, header = list(headers.items())[5]
    content(world, CLOSED)[position + 8] ^= 0x40  # Its length.
    assert [each.cause for each in check(world, log).damage]
    with pytest.raises(KafkaError) as refused:
        log.read(header.base_offset + 2, 1 << 20, end_offset=log.log_end_offset)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.files.damage.suspects == {log.topic_partition: (0, True)}  # Its segment.
    log.note_damaged_ranges(log.segments[0], check(world, log).damage)
    assert offsets_in(log.read(0, 1 << 20, end_offset=log.log_end_offset)) == list(range(header.base_offset))
    for offset in (header.base_offset, header.base_offset + 1):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert CLOSED in refused.value.message
    for offset in range(header.next_offset, log.active.base_offset):
        found = offsets_in(log.read(offset, 1 << 20, end_offset=log.log_end_offset))
        assert found[-1] == log.active.base_offset - 1
        assert found[0] in (offset, offset - 1)
    # What searches by time passes over it too.
    found_time = log.offset_by_timestamp(1000 + 10 * 7, end_offset=log.log_end_offset)
    assert found_time is not None
    assert found_time[1] == 14


def test_damage_over_several_batches_and_at_both_ends():
    world = World()
    log = filled(world)
    data = content(world, CLOSED)
    starts = [at for at, _ in iterate_headers(bytes(data))]
    for start, end in ((0, 3), (4, 6), (9, 12)):
        first, last = starts[start], starts[end] if end < len(starts) else len(data)
        kept = bytes(data[first:last])
        data[first:last] = bytes(last - first)
        (found,) = check(world, log).damage
        assert found[1:5] == (first, last, start * 2, end * 2)
        data[first:last] = kept


def test_two_ranges():
    world = World()
    log = filled(world)
    data = content(world, CLOSED)
    starts = [at for at, _ in iterate_headers(bytes(data))]
    data[starts[2] + 70] ^= 1
    data[starts[8] + 70] ^= 1
    log.note_damaged_ranges(log.segments[0], check(world, log).damage)
    assert [(each.start_offset, each.end_offset) for each in log.damaged_ranges] == [(4, 6), (16, 18)]
    assert offsets_in(log.read(6, 1 << 20, end_offset=log.log_end_offset)) == list(range(6, 16))


@pytest.mark.parametrize("cut_bytes", [1, 70, "batch"])
def test_a_closed_segment_that_was_cut(cut_bytes: int | str):
    world = World()
    log = filled(world)
    headers = list(iterate_headers(bytes(content(world, CLOSED))))
    size = headers[-1][0] if cut_bytes == "batch" else world.disk.size(CLOSED) - int(cut_bytes)
    log.close(clean=True)
    world.disk.open(CLOSED).truncate(size)
    log = world.open(is_clean=True, recovery_point=log.log_end_offset)
    log.note_damaged_ranges(log.segments[0], check(world, log).damage)
    assert [(each.start_offset, each.end_offset) for each in log.damaged_ranges] == [(22, 24)]
    with pytest.raises(KafkaError):
        log.read(22, 1 << 20, end_offset=log.log_end_offset)
    assert offsets_in(log.read(10, 1 << 20, end_offset=log.log_end_offset)) == list(range(10, 22))
    assert offsets_in(log.read(24, 1 << 20, end_offset=log.log_end_offset)) == [24, 25]
    # Kafka's cleaner leaves gaps between segments, which are no damage.
    if cut_bytes == "batch":
        assert not check(world, log, is_gapless=False).damage


@pytest.mark.parametrize(("lost", "number"), [("remove", 1), ("truncate", 0), ("truncate", 1)])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_closed_segment_that_is_gone_or_empty_is_known_at_the_start(lost: str, number: int, is_clean: bool):
    world = World()
    log = filled(world)
    log.roll()
    append(log)
    log.close(clean=True)
    base, end = (0, 24) if number == 0 else (24, 26)
    path = f"{FOLDER}/{base:020d}.log"
    for _ in range(2):  # Known again after another start.
        if lost == "remove":
            world.disk.remove(path)
        else:
            world.disk.open(path).truncate(0)
        world.disk.crash()
        again = world.open(is_clean=is_clean, recovery_point=27)
        assert [(each.start_offset, each.end_offset) for each in again.damaged_ranges] == [(base, end)]
        assert again.files.damage.suspects == {again.topic_partition: (base, True)}
        assert (again.log_start_offset, again.log_end_offset) == (0, 27)
        with pytest.raises(KafkaError) as refused:
            again.read(base, 1 << 20, end_offset=27)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        segment = again.segments[number]
        assert len(check(world, again, segment).damage) == 1


def test_a_segment_that_is_cut_while_it_is_open():
    world = World()
    log = filled(world)
    headers = list(iterate_headers(bytes(content(world, CLOSED))))
    del content(world, CLOSED)[headers[4][0] + 30 :]
    outcome = check(world, log)
    (found,) = outcome.damage
    assert (found.start_offset, found.end_offset, found.end_position) == (8, 24, log.segments[0].size_bytes)
    with pytest.raises(KafkaError) as refused:
        log.read(20, 1 << 20, end_offset=26)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    log.note_damaged_ranges(log.segments[0], outcome.damage)
    assert offsets_in(log.read(0, 1 << 20, end_offset=26)) == list(range(8))
    assert offsets_in(log.read(24, 1 << 20, end_offset=26)) == [24, 25]


def test_what_retention_was_about_to_remove_is_no_loss():
    world = World()
    log = filled(world)
    log.close(clean=True)
    world.disk.rename(CLOSED, f"{CLOSED}.deleted")
    again = world.open(is_clean=True, recovery_point=26)
    assert (again.log_start_offset, again.damaged_ranges) == (24, ())
    assert [name for name in world.names("index") if name.startswith(f"{0:020d}")] == []


def test_a_batch_larger_than_one_read():
    world = World()
    log = world.open()
    log.append_as_leader(make_batch(value=bytes(100)), leader_epoch=0)
    log.append_as_leader(make_batch(value=bytes(3 * READ_BYTES // 2)), leader_epoch=0)
    log.append_as_leader(make_batch(value=bytes(100)), leader_epoch=0)
    log.roll()
    append(log)
    assert not check(world, log).damage
    content(world, CLOSED)[READ_BYTES] ^= 1
    assert [(each.start_offset, each.end_offset) for each in check(world, log).damage] == [(1, 2)]


def test_a_record_that_holds_a_batch_is_not_taken_for_one_where_the_length_is_right():
    world = World()
    log = world.open()
    inner = make_batch(base_offset=1, leader_epoch=0, value=b"inner").tobytes()
    for value in (b"a", inner, b"c"):
        log.append_as_leader(make_batch(value=value), leader_epoch=0)
    log.roll()
    append(log)
    starts = [at for at, _ in iterate_headers(bytes(content(world, CLOSED)))]
    content(world, CLOSED)[starts[1] + 62] ^= 1
    (found,) = check(world, log).damage
    assert (found.position, found.end_position) == (starts[1], starts[2])


def test_a_wrong_entry_of_the_time_index_is_found():
    world = World()
    log = filled(world)
    assert len(log.segments[0].time_index) > 2
    for position in (7, 11, 19, 23):
        content(world, TIMES)[position] ^= 0x02  # A one would stay within a batch of two records, and be right.
        outcome = check(world, log)
        assert outcome.index_problem, position
        assert not outcome.damage
        content(world, TIMES)[position] ^= 0x02
    assert not check(world, log).index_problem


def test_truncation_and_retention_take_damage_along():
    world = World()
    log = filled(world)
    damage = (DamagedRange(CLOSED, 400, 600, 8, 10, "a test"),)
    log.note_damaged_ranges(log.segments[0], damage)
    log.advance_start(9)
    assert log.damaged_ranges == damage
    log.advance_start(10)
    assert log.damaged_ranges == ()
    log = filled(World())
    starts = [at for at, _ in log.segments[0].headers()]
    log.note_damaged_ranges(log.segments[0], (DamagedRange(CLOSED, starts[4], starts[5], 8, 10, "a test"),))
    log.truncate(14)
    assert len(log.damaged_ranges) == 1
    log.truncate(8)
    assert log.damaged_ranges == ()
    assert read_all(log) == list(range(8))


def test_offsets_of_old_segments_that_are_read_again_and_again_are_suspected():
    world = World()
    log = filled(world)
    for _ in range(3):
        log.read(6, 100, end_offset=24)
        log.read(24, 100, end_offset=26)  # The active segment is read so all the time.
    assert not log.files.damage.suspects
    log.read(6, 100, end_offset=24)
    assert log.files.damage.suspects == {log.topic_partition: (6, False)}


def test_a_probe_looks_only_where_it_is_told_to(monkeypatch):
    monkeypatch.setattr("tailrace.log.scrub.check.PROBE_BYTES", 300)
    monkeypatch.setattr("tailrace.log.scrub.check.BATCHES_PER_STEP", 1)
    world = World()
    log = filled(world)
    starts = [at for at, _ in iterate_headers(bytes(content(world, CLOSED)))]
    content(world, CLOSED)[starts[5] + 70] ^= 1
    found = {offset: len(check(world, log, probed_offset=offset).damage) for offset in (0, 6, 8, 10, 12, 23)}
    assert found == {0: 0, 6: 0, 8: 1, 10: 1, 12: 0, 23: 0}
    content(world, CLOSED)[starts[5] + 8] ^= 0x40
    with pytest.raises(DamagedError):  # One of them is found from an index entry behind the damage, the other is not.
        _ = [check(world, log, probed_offset=offset) for offset in (12, 14)]
