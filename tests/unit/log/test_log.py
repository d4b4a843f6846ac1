"""Appending, reading, rolling and cutting a log."""

import errno

import pytest

from tailrace.log.retention import expire_segments
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.wire.records import read_header

from .storage import CONFIG, World, append, make_batch, read_all, sync


@pytest.fixture
def world():
    return World()


def code_of(raised) -> ErrorCode:
    return raised.value.code


# Appending


def test_offsets_follow_on_each_other(world):
    log = world.open()
    assert [append(log, 3), append(log, 1), append(log, 5)] == [0, 3, 4]
    assert log.log_end_offset == 9
    assert read_all(log) == list(range(9))


def test_base_offset_and_leader_epoch_are_stamped_without_touching_the_crc(world):
    log = world.open()
    append(log, 2)
    batch = make_batch(2)
    result = log.append_as_leader(batch, leader_epoch=7)
    assert (result.base_offset, result.next_offset) == (2, 4)
    header = read_header(log.read(2, 1000, end_offset=4).read())
    assert (header.base_offset, header.leader_epoch) == (2, 7)
    assert header.crc == read_header(make_batch(2)).crc


def test_a_read_only_view_is_copied_not_changed(world):
    log = world.open()
    append(log, 4)
    batch = bytes(make_batch(1))
    log.append_as_leader(memoryview(batch), leader_epoch=3)
    assert batch == bytes(make_batch(1))
    assert read_all(log) == [0, 1, 2, 3, 4]


def test_a_retried_batch_is_answered_with_its_first_offset(world):
    log = world.open()
    first = log.append_as_leader(make_batch(2, producer_id=5, sequence=0), leader_epoch=0)
    log.append_as_leader(make_batch(2, producer_id=5, sequence=2), leader_epoch=0)
    again = log.append_as_leader(make_batch(2, producer_id=5, sequence=0), leader_epoch=0)
    assert again.duplicate
    assert (again.base_offset, again.next_offset) == (first.base_offset, first.next_offset)
    assert log.log_end_offset == 4


def test_a_refused_batch_leaves_the_log_as_it_was(world):
    log = world.open()
    log.append_as_leader(make_batch(1, producer_id=5, sequence=0), leader_epoch=0)
    size = log.size_bytes
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(make_batch(1, producer_id=5, sequence=9), leader_epoch=0)
    assert code_of(raised) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (log.log_end_offset, log.size_bytes) == (1, size)


def test_log_append_time_is_the_clock(world):
    world.config = TopicConfig(message_timestamp_type="LogAppendTime")
    log = world.open()
    world.clock.advance_ms(500)
    result = log.append_as_leader(make_batch(3, timestamp=1), leader_epoch=0)
    assert result.log_append_time_ms == 10_500
    assert log.offset_by_timestamp(10_500, end_offset=3) == (10_500, 0, 0)


def test_epochs_are_noted_when_they_change(world):
    log = world.open()
    for epoch in (0, 0, 2, 2, 5):
        log.append_as_leader(make_batch(2), leader_epoch=epoch)
    assert log.epochs.entries == ((0, 0), (2, 4), (5, 8))


# Following


def test_a_follower_keeps_offsets_epochs_and_gaps(world):
    log = world.open()
    log.append_as_follower(make_batch(2, base_offset=0, leader_epoch=1))
    two = bytes(make_batch(1, base_offset=5, leader_epoch=1)) + bytes(make_batch(2, base_offset=6, leader_epoch=3))
    result = log.append_as_follower(memoryview(two))
    assert (result.base_offset, result.next_offset) == (5, 8)
    assert read_all(log) == [0, 1, 5, 6, 7]
    assert log.epochs.entries == ((1, 0), (3, 6))


def test_a_follower_leaves_out_a_batch_that_is_cut_short(world):
    log = world.open()
    bytes_of_two = bytes(make_batch(2)) + bytes(make_batch(2, base_offset=2))
    result = log.append_as_follower(memoryview(bytes_of_two[:-1]))
    assert result.next_offset == log.log_end_offset == 2
    assert log.append_as_follower(memoryview(b"")).next_offset == 2


def test_a_follower_refuses_what_it_has_already(world):
    log = world.open()
    log.append_as_follower(make_batch(5))
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(make_batch(1, base_offset=3))
    assert code_of(raised) is ErrorCode.CORRUPT_MESSAGE


# Rolling


def test_a_segment_is_rolled_before_it_grows_over_its_size(world):
    world.config = TopicConfig(internal_segment_bytes=1000)
    log = world.open()
    for _ in range(30):
        append(log, value=b"x" * 100)
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 1000 for segment in log.segments)
    bases = [segment.base_offset for segment in log.segments]
    assert world.names(".log") == [f"{base:020d}.log" for base in bases]
    assert world.names(".snapshot") == [f"{base:020d}.snapshot" for base in bases[1:]]


def test_batches_larger_than_a_segment_are_refused(world):
    world.config = TopicConfig(internal_segment_bytes=500)
    log = world.open()
    with pytest.raises(KafkaError) as raised:
        append(log, value=b"x" * 600)
    assert code_of(raised) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_segment_is_rolled_by_the_age_of_its_records(world):
    world.config = TopicConfig(segment_ms=1000, message_timestamp_before_max_ms=1 << 60)
    log = world.open()
    append(log, timestamp=5000)
    append(log, timestamp=6000)
    assert len(log.segments) == 1
    append(log, timestamp=6001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    append(log, timestamp=7001)
    assert len(log.segments) == 2


def test_age_is_counted_from_the_first_record_after_a_restart_too(world):
    world.config = TopicConfig(segment_ms=1000, message_timestamp_before_max_ms=1 << 60)
    log = world.open()
    append(log, timestamp=5000)
    log = world.reopen_after_clean_close(log)
    append(log, timestamp=6001)
    assert len(log.segments) == 2


def test_jitter_rolls_earlier_but_never_later(world):
    world.config = TopicConfig(segment_ms=1000, segment_jitter_ms=900, message_timestamp_before_max_ms=1 << 60)
    log = world.open()
    timestamp, ages = 5000, []
    for _ in range(10):
        first, segments = timestamp, len(log.segments)
        while len(log.segments) == segments:
            timestamp += 10
            append(log, timestamp=timestamp)
        ages.append(timestamp - first)
    assert all(100 < age <= 1020 for age in ages)
    assert len(set(ages)) > 1


def test_a_full_index_rolls(world):
    world.config = TopicConfig(index_interval_bytes=1, segment_index_bytes=60)
    log = world.open()
    for number in range(40):
        append(log, timestamp=1000 + number)
    assert len(log.segments) > 4
    log.close(clean=True)
    for name in world.names("index"):
        assert world.disk.size(f"{log.folder}/{name}") <= 60


def test_relative_offsets_that_end_roll(world):
    log = world.open()
    log.append_as_follower(make_batch(2, base_offset=0))
    log.append_as_follower(make_batch(2, base_offset=2**31 - 2))
    assert len(log.segments) == 1
    log.append_as_follower(make_batch(1, base_offset=2**31))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]
    with pytest.raises(KafkaError, match="too far"):
        World().open().append_as_follower(make_batch(1, base_offset=2**31))


def test_an_empty_segment_is_not_rolled(world):
    log = world.open()
    assert log.roll() is log.active
    append(log)
    rolled = log.roll()
    assert rolled is log.roll()
    assert len(log.segments) == 2


def test_settings_change_while_the_log_is_open(world):
    log = world.open()
    append(log, value=b"x" * 300)
    log.reconfigure(TopicConfig(internal_segment_bytes=600))
    append(log, value=b"x" * 300)
    assert len(log.segments) == 2


# Cutting


@pytest.mark.parametrize("end", [0, 1, 2, 9, 10, 11, 17, 29])
def test_truncation_leaves_the_batches_before_it(world, end):
    world.config = TopicConfig(index_interval_bytes=100, internal_segment_bytes=700)
    log = world.open()
    for number in range(15):
        log.append_as_leader(make_batch(2, timestamp=1000 + number), leader_epoch=number // 5)
    log.truncate(end)
    # A batch of two goes as a whole.
    whole = end - end % 2
    assert log.log_end_offset == whole
    assert read_all(log) == list(range(whole))
    assert all(entry.start_offset < max(whole, 1) for entry in log.epochs.entries)
    found = log.max_timestamp_offset(end_offset=end)
    assert (found[:2] if found else None) == ((1000 + whole // 2, whole - 1) if whole else None)
    assert append(log) == whole
    reopened = world.reopen_after_crash(log)
    assert read_all(reopened) == [*range(whole), whole]


def test_a_roll_after_a_truncation_leaves_no_gap(world):
    log = world.open()
    append(log, 4)
    append(log, 4)
    log.truncate(6)
    log.roll()
    append(log, 1)
    assert read_all(world.reopen_after_crash(log)) == [0, 1, 2, 3, 4]


def test_truncation_takes_back_what_producers_wrote(world):
    log = world.open()
    for sequence in range(6):
        log.append_as_leader(make_batch(1, producer_id=5, sequence=sequence), leader_epoch=0)
        if sequence == 2:
            log.roll()
    log.truncate(4)
    assert log.producers.states[5].last_sequence == 3
    log.truncate(2)
    assert log.producers.states[5].last_sequence == 1
    log.append_as_leader(make_batch(1, producer_id=5, sequence=2), leader_epoch=0)
    assert read_all(log) == [0, 1, 2]


def test_a_log_can_begin_anew_at_any_offset(world):
    log = world.open()
    append(log, 5)
    sync(log)
    log.truncate_fully_and_start_at(3)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (3, 3, 3)
    assert append(log, 2) == 3
    log.truncate_fully_and_start_at(100)
    append(log, 2)
    reopened = world.reopen_after_crash(log)
    assert (reopened.log_start_offset, read_all(reopened)) == (100, [100, 101])


def test_a_log_begun_anew_knows_no_producer_after_a_restart_either(world):
    log = world.open()
    append(log, producer_id=7, sequence=0)
    log.roll()
    log.truncate_fully_and_start_at(100)
    assert len(log.producers) == 0
    assert len(world.reopen_after_crash(log).producers) == 0


def test_truncation_below_the_start_begins_anew(world):
    log = world.open()
    log.truncate_fully_and_start_at(50)
    append(log, 5)
    log.truncate(40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)


def test_the_recovery_point_is_stored_before_anything_below_it_goes(world):
    log = world.open()
    append(log, 10)
    append(log, 10)
    sync(log)
    stored = []
    log.before_cut = lambda offset: stored.append((offset, log.recovery_point, log.size_bytes))
    size = log.size_bytes
    log.truncate(10)
    # The segment as a whole is to be synced again.
    assert stored == [(10, 0, size)]


def test_a_sync_under_way_does_not_vouch_for_what_was_written_after_a_truncation(world):
    log = world.open()
    append(log, 10)
    work, end_offset = log.begin_sync()
    log.truncate(0)
    append(log, 10)
    work()
    log.mark_synced(end_offset)
    assert log.recovery_point == 0


def test_the_start_moves_forward_only(world):
    log = world.open()
    append(log, 5)
    append(log, 5)
    log.advance_start(7)
    log.advance_start(3)
    assert log.log_start_offset == 7
    assert read_all(log) == [7, 8, 9]
    with pytest.raises(KafkaError):
        log.advance_start(11)
    with pytest.raises(KafkaError):
        log.read(6, 100, end_offset=10)


# Deleting


def test_expired_segments_go_in_two_steps(world):
    world.config = TopicConfig(retention_ms=1000, file_delete_delay_ms=500)
    log = world.open()
    for timestamp in (9_000, 9_500, 10_000):
        append(log, timestamp=timestamp)
        log.roll()
    assert expire_segments(log, now_ms=10_501, high_watermark=log.log_end_offset) == 2
    assert world.names(".deleted") == [], "not before the log start is stored"
    assert log.delete_expired_segments() == 2
    assert (log.log_start_offset, read_all(log)) == (2, [2])
    assert len(world.names(".deleted")) == 6
    world.clock.jump_ms(-3_600_000)
    world.clock.advance_ms(499)
    assert log.files.segments.take_due(world.clock.monotonic_ms()) == []
    world.clock.advance_ms(1)
    for segment in log.files.segments.take_due(world.clock.monotonic_ms()):
        segment.remove()
    assert world.names(".deleted") == []


def test_when_all_is_expired_the_log_goes_on_at_its_end(world):
    world.config = TopicConfig(retention_ms=1000)
    log = world.open()
    append(log, 5, timestamp=5_000)
    assert expire_segments(log, now_ms=20_000, high_watermark=5) == 1
    assert log.delete_expired_segments() == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
    assert append(log) == 5


def test_nothing_above_the_high_watermark_expires(world):
    world.config = TopicConfig(retention_ms=1000)
    log = world.open()
    append(log, 5, timestamp=5_000)
    assert expire_segments(log, now_ms=20_000, high_watermark=4) == 0
    assert log.delete_expired_segments() == 0


def test_leftovers_of_deleted_segments_are_removed_at_the_next_start(world):
    log = world.open()
    for _ in range(3):
        append(log)
        log.roll()
    log.truncate(1)
    assert world.names(".deleted")
    world.reopen_after_crash(log)
    assert world.names(".deleted") == []


# Handles


def test_handles_of_closed_segments_are_bounded(world):
    log = world.open()
    for _ in range(30):
        append(log)
        log.roll()
    assert read_all(log) == list(range(30))
    assert sum(segment.is_open for segment in log.segments) <= 9


def test_idle_handles_are_closed_and_opened_again(world):
    log = world.open()
    append(log)
    log.roll()
    append(log)
    read_all(log)
    log.files.segments.close_idle_handles()
    assert log.files.segments.close_idle_handles() == 0
    append(log)
    assert read_all(log) == [0, 1, 2]


# A disk that fails


def test_a_full_disk_costs_the_append_and_nothing_else(world):
    log = world.open()
    append(log, 3)
    used = log.size_bytes
    world.disk.capacity_bytes = used + 30
    for _ in range(2):
        with pytest.raises(StorageError):
            append(log, 3)
    assert (log.log_end_offset, log.size_bytes, read_all(log)) == (3, used, [0, 1, 2])
    assert world.disk.size(log.active.path(".log")) == used
    world.disk.heal()
    assert append(log, 2) == 3
    assert read_all(log) == [0, 1, 2, 3, 4]


def test_a_tail_that_could_not_be_cut_is_cut_before_the_next_write(world):
    log = world.open()
    append(log, 3)
    size = log.size_bytes
    world.disk.capacity_bytes = size + 30
    world.disk.fail("truncate", "*.log")
    with pytest.raises(StorageError):
        append(log, 3)
    assert world.disk.size(log.active.path(".log")) > size
    assert read_all(log) == [0, 1, 2]
    world.disk.heal()
    assert append(log) == 3
    assert read_all(log) == [0, 1, 2, 3]
    assert read_all(world.reopen_after_crash(log)) == [0, 1, 2, 3]


@pytest.mark.parametrize("operation", ["create", "replace"])
def test_a_roll_that_fails_can_be_tried_again(world, operation):
    world.config = TopicConfig(internal_segment_bytes=300)
    log = world.open()
    append(log, value=b"x" * 150)
    world.disk.fail(operation, "*", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        append(log, value=b"x" * 150)
    world.disk.heal()
    assert append(log, value=b"x" * 150) == 1
    assert read_all(log) == [0, 1]
    assert read_all(world.reopen_after_crash(log)) == [0, 1]


def test_a_read_only_disk_is_a_storage_error_and_reads_go_on(world):
    log = world.open()
    append(log)
    world.disk.is_read_only = True
    with pytest.raises(StorageError):
        append(log)
    assert read_all(log) == [0]


def test_a_read_error_is_a_storage_error(world):
    log = world.open()
    append(log)
    append(log)
    world.disk.fail("read", "*.log")
    with pytest.raises(StorageError):
        log.read(1, 100, end_offset=2)


def test_a_failed_sync_takes_the_log_offline(world):
    log = world.open()
    append(log)
    world.disk.fail("sync", "*.log", count=1)
    work, end_offset = log.begin_sync()
    with pytest.raises(OSError, match="EIO") as raised:
        work()
    log.mark_sync_failed(end_offset, raised.value)
    assert log.is_offline
    assert log.recovery_point == 0
    with pytest.raises(StorageError):
        append(log)
    assert read_all(log) == [0]


def test_a_coordinators_batches_need_no_sequence(world):
    world.config = CONFIG
    log = world.open()
    log.append_as_leader(make_batch(1), leader_epoch=0, origin=Origin.COORDINATOR)
    assert read_all(log) == [0]
