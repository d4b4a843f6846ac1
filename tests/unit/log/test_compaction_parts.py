"""The parts of compaction: plan, groups, map of keys, spans, what is left of a batch, what a crash leaves behind."""

from dataclasses import dataclass

import pytest

from tailrace.log.compaction.keymap import KeyMap
from tailrace.log.compaction.plan import (
    Cleanable,
    decide_cleanable,
    decide_first_dirty_offset,
    group_segments,
)
from tailrace.log.compaction.rewrite import BatchFilter, empty_header
from tailrace.log.compaction.spans import scan_spans
from tailrace.log.compaction.swap import finish_swaps
from tailrace.model.config import TopicConfig
from tailrace.model.errors import StorageError
from tailrace.sim.disk import SimDisk
from tailrace.wire.records import (
    HEADER_SIZE,
    Record,
    TimestampType,
    assemble_batch,
    build_batch,
    iterate_records,
    read_header,
)

NOW_MS = 1_000_000


@dataclass
class FakeSegment:
    base_offset: int
    size_bytes: int = 100
    first_timestamp: int = 0
    largest_timestamp: int = 0


SEGMENTS = [FakeSegment(start) for start in (0, 10, 20, 30, 40)]


def plan(first_dirty_offset: int = 0, last_stable_offset: int = 50, **settings: object) -> Cleanable | None:
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), **settings)
    return decide_cleanable(
        SEGMENTS,
        config,
        now_ms=NOW_MS,
        first_dirty_offset=first_dirty_offset,
        last_stable_offset=last_stable_offset,
    )


# Plan


def test_all_but_the_active_segment_is_cleaned() -> None:
    assert plan() == Cleanable(0, 40, 0, 400)


def test_the_last_stable_offset_is_a_limit() -> None:
    cleanable = plan(last_stable_offset=29)
    assert cleanable is not None
    assert (cleanable.end_offset, cleanable.dirty_bytes) == (20, 200)
    assert plan(last_stable_offset=9) is None


@pytest.mark.parametrize(("first_dirty_offset", "is_chosen"), [(19, True), (20, False), (25, False), (40, False)])
def test_the_dirty_ratio_decides(first_dirty_offset: int, is_chosen: bool) -> None:
    cleanable = plan(first_dirty_offset, min_cleanable_dirty_ratio=0.5)
    assert (cleanable is not None) == is_chosen


def test_young_segments_wait() -> None:
    segments = [FakeSegment(0), FakeSegment(10, largest_timestamp=NOW_MS - 5), FakeSegment(20), FakeSegment(30)]
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), min_compaction_lag_ms=10)
    cleanable = decide_cleanable(segments, config, now_ms=NOW_MS, first_dirty_offset=0, last_stable_offset=99)
    assert cleanable is not None
    assert cleanable.end_offset == 10


def test_old_records_make_a_log_overdue_whatever_the_ratio() -> None:
    segments = [FakeSegment(0, 900), FakeSegment(10, 100, first_timestamp=NOW_MS - 100), FakeSegment(20)]
    for max_compaction_lag_ms, is_chosen in ((99, True), (101, False)):
        config = TopicConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=max_compaction_lag_ms)
        cleanable = decide_cleanable(segments, config, now_ms=NOW_MS, first_dirty_offset=10, last_stable_offset=99)
        assert (cleanable is not None) == is_chosen


def test_only_compacted_topics_are_planned() -> None:
    config = TopicConfig(cleanup_policy=frozenset({"delete"}))
    assert decide_cleanable(SEGMENTS, config, now_ms=NOW_MS, first_dirty_offset=0, last_stable_offset=99) is None


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 5), (4, 5), (5, 5), (7, 7), (20, 20), (21, 5)])
def test_a_checkpoint_outside_the_log_is_not_believed(checkpoint: int | None, expected: int) -> None:
    assert decide_first_dirty_offset(checkpoint, log_start_offset=5, log_end_offset=20) == expected


def test_groups_stay_within_the_size_of_a_segment() -> None:
    segments = [FakeSegment(start, size) for start, size in ((0, 60), (10, 40), (20, 1), (30, 200), (40, 0), (50, 90))]
    groups = group_segments(segments, TopicConfig(segment_bytes=100), end_offset=60)
    assert [[segment.base_offset for segment in group] for group in groups] == [[0, 10], [20], [30], [40, 50]]


def test_groups_stay_within_int32_offsets() -> None:
    segments = [FakeSegment(0, 1), FakeSegment(2**30, 1), FakeSegment(2**31, 1)]
    for end_offset, expected in ((2**31 + 1, [[0, 2**30], [2**31]]), (2**31 + 5, [[0, 2**30], [2**31]])):
        groups = group_segments(segments, TopicConfig(segment_bytes=100), end_offset=end_offset)
        assert [[segment.base_offset for segment in group] for group in groups] == expected


# The map of keys


def test_the_map_knows_the_last_offset_of_short_and_long_keys() -> None:
    keys = KeyMap(10_000)
    for offset, key in enumerate([b"", b"a", b"x" * 32, b"x" * 33, b"x" * 33 + b"y", b"a"]):
        keys.put(key, offset)
    assert [keys.latest_offset(key) for key in (b"", b"a", b"x" * 32, b"x" * 33, b"x" * 33 + b"y", b"b")] == [
        0, 5, 2, 3, 4, -1,
    ]  # fmt: skip
    assert len(keys) == 5


def test_the_map_says_when_its_memory_is_used_up() -> None:
    keys = KeyMap(700)
    while not keys.is_full:
        keys.put(b"%d" % len(keys), 0)
    assert len(keys) == 7
    keys.put(b"0", 1)
    assert len(keys) == 7
    list(keys.release())
    assert len(keys) == 0


# Spans and batches

RECORDS = [
    Record(100, NOW_MS, b"a", b"1"),
    Record(101, NOW_MS + 300, b"b", b"2" * 200, (("h", b"x"), ("n", None))),
    Record(102, NOW_MS + 5, b"c" * 100, None),
    Record(103, NOW_MS - 70_000, b"", b""),
    Record(104, NOW_MS + 1, None, b"5"),
]


def block_of(batch: bytes) -> bytes:
    return batch[HEADER_SIZE:]


def test_spans_cover_the_block() -> None:
    block = block_of(build_batch(RECORDS, base_offset=100))
    spans, position = scan_spans(block, 0, 100)
    assert position == len(block) == spans[-1].end
    assert [span.start for span in spans[1:]] == [span.end for span in spans[:-1]]
    assert [(span.offset_delta, span.timestamp_delta, span.key, span.has_value) for span in spans] == [
        (record.offset - 100, record.timestamp - NOW_MS, record.key, record.value is not None) for record in RECORDS
    ]


def test_spans_come_in_slices() -> None:
    block = block_of(build_batch(RECORDS, base_offset=100))
    spans, position = [], 0
    while position < len(block):
        part, position = scan_spans(block, position, 2)
        assert len(part) <= 2
        spans += part
    assert spans == scan_spans(block, 0, 100)[0]


def test_a_damaged_block_is_a_storage_error() -> None:
    block = block_of(build_batch(RECORDS, base_offset=100))
    for size in range(1, len(block)):
        if size in {span.end for span in scan_spans(block, 0, 100)[0]}:
            continue
        with pytest.raises(StorageError):
            scan_spans(block[:size], 0, 100)


def clean(batch: bytes, latest: dict[bytes, int], *, now_ms: int = NOW_MS, retention_ms: int = 50) -> BatchFilter:
    keys = KeyMap(100_000)
    for key, offset in latest.items():
        keys.put(key, offset)
    left = BatchFilter(read_header(batch), block_of(batch), keys, now_ms=now_ms, delete_retention_ms=retention_ms)
    left.take(scan_spans(block_of(batch), 0, 100)[0])
    return left


def rebuilt(left: BatchFilter) -> bytes:
    return bytes(assemble_batch(*left.rebuild()))


def records_of(batch: bytes) -> list[Record]:
    return list(iterate_records(batch, max_decompressed_bytes=100_000))


def test_later_records_and_keyless_ones_go() -> None:
    batch = build_batch(
        RECORDS[:2] + RECORDS[4:],
        base_offset=100,
        last_offset_delta=9,
        leader_epoch=3,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
    )
    left = clean(batch, {b"a": 100, b"b": 900})
    assert not left.is_unchanged
    result = rebuilt(left)
    assert records_of(result) == [RECORDS[0]]
    expected = read_header(batch)._replace(record_count=1, max_timestamp=NOW_MS)
    got = read_header(result)
    assert got._replace(batch_length=expected.batch_length, crc=expected.crc) == expected


def test_a_batch_that_loses_nothing_is_left_alone() -> None:
    assert clean(build_batch(RECORDS[:2], base_offset=100), {b"a": 50}).is_unchanged


def test_a_tombstone_is_stamped_once_and_goes_at_its_horizon() -> None:
    batch = build_batch(RECORDS[:3], base_offset=100)
    left = clean(batch, {})
    assert not left.is_unchanged
    stamped = rebuilt(left)
    header = read_header(stamped)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 50
    assert records_of(stamped) == RECORDS[:3]

    assert clean(stamped, {}, now_ms=NOW_MS + 49).is_unchanged
    expired = clean(stamped, {}, now_ms=NOW_MS + 50)
    assert not expired.is_unchanged
    assert records_of(rebuilt(expired)) == RECORDS[:2]
    assert read_header(rebuilt(expired)).base_timestamp == NOW_MS + 50


def test_log_append_time_stays_the_time_of_all_records() -> None:
    batch = build_batch(RECORDS[:3], base_offset=100, timestamp_type=TimestampType.LOG_APPEND_TIME)
    append_time = read_header(batch).max_timestamp
    result = rebuilt(clean(batch, {b"b": 900}))
    assert [record.timestamp for record in records_of(result)] == [append_time, append_time]


def test_an_empty_batch_keeps_offsets_and_sequences() -> None:
    batch = build_batch(RECORDS[:2], base_offset=100, leader_epoch=3, producer_id=5, producer_epoch=6, base_sequence=7)
    header = read_header(bytes(assemble_batch(empty_header(read_header(batch)), b"")))
    assert header.size_bytes == HEADER_SIZE
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (100, 101, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (5, 6, 7, 8)
    assert (header.record_count, header.base_timestamp, header.max_timestamp) == (0, -1, NOW_MS + 300)


# Files that a crash left behind


def left_behind(*names: str) -> SimDisk:
    disk = SimDisk()
    disk.make_folder("/f")
    for name in names:
        data = build_batch(RECORDS[:2], base_offset=100) if ".log" in name else b""
        disk.open(f"/f/{name}", create=True).append([data])
    return disk


def name_of(base_offset: int, kind: str) -> str:
    return f"{base_offset:020d}{kind}"


def test_a_folder_without_such_files_is_left_alone() -> None:
    names = ["leader-epoch-checkpoint", "notes.swap", name_of(0, ".log"), f"{7:020d}-{1:010d}.checkpoint"]
    disk = left_behind(*names)
    finish_swaps(disk, "/f")
    assert disk.list("/f") == sorted(names)


def test_what_was_not_wholly_renamed_is_undone() -> None:
    disk = left_behind(
        name_of(100, ".log"), name_of(100, ".log.swap"), name_of(100, ".index.cleaned"), name_of(0, ".log.deleted")
    )
    finish_swaps(disk, "/f")
    assert disk.list("/f") == [name_of(100, ".log")]


def test_what_was_wholly_renamed_replaces_its_offsets() -> None:
    disk = left_behind(
        name_of(50, ".log"),
        name_of(100, ".log"),
        name_of(100, ".timeindex"),
        name_of(101, ".log"),
        name_of(101, ".snapshot"),
        name_of(102, ".log"),
        name_of(100, ".log.swap"),
        name_of(100, ".index.swap"),
    )
    finish_swaps(disk, "/f")
    assert disk.list("/f") == [
        name_of(50, ".log"),
        name_of(100, ".index"),
        name_of(100, ".log"),
        name_of(102, ".log"),
    ]
    finish_swaps(disk, "/f")
    assert len(disk.list("/f")) == 4
