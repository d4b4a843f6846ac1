"""Which segment is copied, and what has had its time in either tier."""

from dataclasses import dataclass

import pytest

from tailrace.model.config import TopicConfig
from tailrace.model.ids import Uuid
from tailrace.tier.keeping.decisions import (
    LogView,
    decide_copy,
    decide_local_expired,
    decide_remote_expired,
    decide_unreadable,
)
from tailrace.tier.metadata.coverage import RemoteSegment, cover

LINEAGE = [(0, 0)]


@dataclass
class Local:
    base_offset: int
    size_bytes: int = 100
    largest_timestamp: int = 0


def remote(base: int, end: int, *, size: int = 100, timestamp: int = 0) -> RemoteSegment:
    return RemoteSegment(Uuid(base.to_bytes(16, "big")), base, end, size, size + 50, timestamp, 1, ((0, 0),))


def view(local: list[Local], tiered: list[RemoteSegment], *, start: int = 0, stable: int = 1000) -> LogView:
    return LogView(local, cover(tiered, LINEAGE, log_start_offset=start, log_end_offset=1000), start, stable)


LOCAL = [Local(0), Local(10), Local(20), Local(30)]


@pytest.mark.parametrize(
    ("tiered", "start", "stable", "expected"),
    [
        ([], 0, 1000, 0),
        ([remote(0, 10)], 0, 1000, 1),
        ([remote(0, 15)], 0, 1000, 1),  # Another leader has ended its segment elsewhere.
        ([remote(0, 30)], 0, 1000, None),  # The active one is never copied.
        ([remote(0, 10)], 0, 19, None),  # Not stable as a whole.
        ([remote(0, 10)], 0, 20, 1),
        ([], 10, 1000, 1),  # What lies before the log start is not worth it.
        ([remote(0, 10), remote(20, 30)], 0, 1000, 1),  # A gap is filled.
    ],
)
def test_the_oldest_segment_that_is_stable_and_not_there_is_copied(tiered, start, stable, expected) -> None:
    assert decide_copy(view(LOCAL, tiered, start=start, stable=stable)) == expected


def config(**settings: int) -> TopicConfig:
    return TopicConfig(**{"retention_ms": -1, "retention_bytes": -1, **settings})


def test_local_segments_go_by_size_once_they_are_copied() -> None:
    settings = config(local_retention_bytes=150)
    assert decide_local_expired(view(LOCAL, []), settings, now_ms=0).count == 0
    assert decide_local_expired(view(LOCAL, [remote(0, 10)]), settings, now_ms=0).count == 1
    due = decide_local_expired(view(LOCAL, [remote(0, 30)]), settings, now_ms=0)
    assert (due.count, due.reason) == (2, "the local log is larger than local.retention.bytes=150")


def test_local_segments_go_by_age_once_they_are_copied() -> None:
    settings = config(local_retention_ms=100)
    log = view([Local(0), Local(10, largest_timestamp=950), Local(20)], [remote(0, 20)])
    assert decide_local_expired(log, settings, now_ms=1000).count == 1
    assert decide_local_expired(log, settings, now_ms=1051).count == 2


def test_what_is_not_stable_here_stays_here_though_another_leader_has_copied_it() -> None:
    """It knows of the end of a transaction that this replica has not got yet."""
    settings = config(local_retention_bytes=0)
    assert decide_local_expired(view(LOCAL, [remote(0, 30)], stable=19), settings, now_ms=0).count == 1
    assert decide_local_expired(view(LOCAL, [remote(0, 30)], stable=20), settings, now_ms=0).count == 2


def test_minus_two_is_the_retention_of_the_whole() -> None:
    assert decide_local_expired(view(LOCAL, [remote(0, 30)]), config(retention_bytes=250), now_ms=0).count == 1
    assert decide_local_expired(view(LOCAL, [remote(0, 30)]), config(retention_ms=5), now_ms=10).count == 3
    assert decide_local_expired(view(LOCAL, [remote(0, 30)]), config(), now_ms=1 << 60).count == 0


def test_what_lies_before_the_log_start_goes_uncopied() -> None:
    assert decide_local_expired(view(LOCAL, [], start=20), config(), now_ms=0).count == 2


def test_the_size_of_a_log_is_that_of_both_tiers_without_counting_twice() -> None:
    # 0 to 30 are in the tier, 20 to 30 here too; 30 to the end only here: 400 bytes.
    log = view([Local(20), Local(30)], [remote(0, 10), remote(10, 20), remote(20, 30)])
    assert decide_remote_expired(log, config(retention_bytes=400), now_ms=0).segments == []
    expired = decide_remote_expired(log, config(retention_bytes=300), now_ms=0)
    assert ([each.base_offset for each in expired.segments], expired.log_start_offset) == ([0], 10)
    assert decide_remote_expired(log, config(retention_bytes=301), now_ms=0).segments == [], "not below the limit"


def test_the_log_goes_by_age_from_the_front() -> None:
    tiered = [remote(0, 10, timestamp=5), remote(10, 20, timestamp=50), remote(20, 30, timestamp=5)]
    expired = decide_remote_expired(view([Local(30), Local(40)], tiered), config(retention_ms=10), now_ms=20)
    assert [each.base_offset for each in expired.segments] == [0], "one that is young keeps all after it"


def test_the_log_start_never_passes_what_is_stable() -> None:
    log = view([Local(20), Local(30)], [remote(0, 10), remote(10, 20)], stable=15)
    assert decide_remote_expired(log, config(retention_ms=0), now_ms=10).log_start_offset == 10


def test_copies_of_which_nothing_can_be_read() -> None:
    lost = RemoteSegment(Uuid(bytes(16)), 12, 20, 10, 20, 0, 1, ((0, 0), (1, 12)))
    half = RemoteSegment(Uuid(bytes(16)), 8, 20, 10, 20, 0, 1, ((0, 0), (1, 12)))
    copies = [remote(0, 5), lost, half, remote(500, 600)]
    found = decide_unreadable(copies, [(0, 0), (2, 12)], log_start_offset=5, log_end_offset=400)
    assert found == [copies[0], lost, copies[3]], "before the start; of a lost history; after the end"
