"""Reading a log by offset and by time."""

import pytest

from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.records import Compression, iterate_headers

from .storage import World, append, make_batch, offsets_in


@pytest.fixture
def world():
    return World()


# Reading


def test_every_offset_is_found_in_the_batch_that_holds_it(world):
    world.config = TopicConfig(index_interval_bytes=200, internal_segment_bytes=3000)
    log = world.open()
    sizes = [1 + number % 7 for number in range(120)]
    for size in sizes:
        append(log, size, compression=Compression.GZIP if size % 3 == 0 else Compression.NONE)
    assert len(log.segments) > 3
    for offset in range(log.log_end_offset):
        found = offsets_in(log.read(offset, 1, end_offset=log.log_end_offset))
        assert found[0] <= offset <= found[-1]
        assert len(found) <= 7


def test_nothing_is_read_at_the_end_and_beyond_it_is_an_error(world):
    log = world.open()
    append(log, 4)
    assert log.read(4, 100, end_offset=4) is None
    for offset in (-1, 5):
        with pytest.raises(KafkaError) as raised:
            log.read(offset, 100, end_offset=4)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_at_the_end_goes_on_where_it_stopped(world):
    log = world.open()
    for base in range(0, 600, 2):
        assert log.read(base, 1000, end_offset=base) is None
        append(log, 2)
        assert offsets_in(log.read(base, 1000, end_offset=base + 2)) == [base, base + 1]
        if base % 60 == 0:
            log.roll()


def test_a_read_stops_at_the_end_offset_it_is_given(world):
    log = world.open()
    for _ in range(20):
        append(log, 2)
    assert offsets_in(log.read(4, 1 << 20, end_offset=10)) == [4, 5, 6, 7, 8, 9]
    assert log.read(10, 1 << 20, end_offset=10) is None
    assert log.read(12, 1 << 20, end_offset=10) is None


def test_max_bytes_is_kept_but_for_the_first_batch(world):
    log = world.open()
    for _ in range(50):
        append(log, 1, value=b"x" * 100)
    size = log.size_bytes // 50
    assert log.read(0, 10 * size, end_offset=50).size <= 10 * size
    assert len(offsets_in(log.read(0, 10 * size, end_offset=50))) >= 7
    assert offsets_in(log.read(7, 10, end_offset=50)) == [7]
    assert log.read(7, 10, end_offset=50, at_least_one_batch=False) is None
    assert offsets_in(log.read(7, size, end_offset=50, at_least_one_batch=False)) == [7]


def test_a_cut_read_ends_with_a_whole_batch_where_batches_are_indexed(world):
    world.config = TopicConfig(index_interval_bytes=100)
    log = world.open()
    for _ in range(40):
        append(log, 1, value=b"x" * 150)
    found = log.read(3, 1000, end_offset=40)
    data = found.read()
    assert sum(header.size_bytes for _, header in iterate_headers(data)) == len(data)


def test_reads_go_on_in_the_next_segment_over_a_gap(world):
    log = world.open()
    log.append_as_follower(make_batch(2, base_offset=0))
    log.append_as_follower(make_batch(2, base_offset=10))
    log.roll()
    log.append_as_follower(make_batch(2, base_offset=20))
    assert offsets_in(log.read(5, 1000, end_offset=22)) == [10, 11]
    assert offsets_in(log.read(12, 1000, end_offset=22)) == [20, 21]
    assert log.read(12, 1000, end_offset=20) is None


def test_a_slice_outlives_the_segment_it_was_read_from(world):
    log = world.open()
    append(log, 3)
    found = log.read(0, 1000, end_offset=3)
    log.truncate_fully_and_start_at(100)
    world.clock.advance_ms(60_001)
    for segment in log.files.segments.take_due(world.clock.monotonic_ms()):
        segment.remove()
    assert offsets_in(found) == [0, 1, 2]


# Times


def test_the_first_record_at_or_after_a_time_is_found_in_a_compressed_batch(world):
    log = world.open()
    for start in range(0, 3000, 100):
        append(log, 10, timestamp=start, step_ms=5, compression=Compression.ZSTD)
    assert log.offset_by_timestamp(0, end_offset=300) == (0, 0, 0)
    assert log.offset_by_timestamp(1206, end_offset=300) == (1210, 122, 0)
    assert log.offset_by_timestamp(1246, end_offset=300) == (1300, 130, 0)
    assert log.offset_by_timestamp(2946, end_offset=300) is None
    assert log.offset_by_timestamp(1300, end_offset=130) is None


def test_times_that_go_back_are_found_as_the_log_has_them(world):
    log = world.open()
    for timestamp in (500, 100, 900, 200, 900, 300):
        append(log, timestamp=timestamp)
    assert log.offset_by_timestamp(200, end_offset=6) == (500, 0, 0)
    assert log.offset_by_timestamp(501, end_offset=6) == (900, 2, 0)
    assert log.max_timestamp_offset(end_offset=6) == (900, 2, 0)


def test_the_largest_timestamp_is_found_among_segments(world):
    log = world.open()
    for timestamp in (50, 700, 300):
        append(log, 2, timestamp=timestamp)
        log.roll()
    assert log.max_timestamp_offset(end_offset=6) == (701, 3, 0)
    assert log.max_timestamp_offset(end_offset=3) is None
    log.advance_start(4)
    assert log.max_timestamp_offset(end_offset=6) == (301, 5, 0)


def test_an_empty_log_has_no_times(world):
    log = world.open()
    assert log.offset_by_timestamp(0, end_offset=0) is None
    assert log.max_timestamp_offset(end_offset=0) is None
