"""Which segments go, one rule at a time."""

from dataclasses import dataclass

import pytest

from tailrace.log.retention import decide_expired_segments
from tailrace.model.config import TopicConfig

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
