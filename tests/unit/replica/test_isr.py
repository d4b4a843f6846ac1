"""Who is in sync, and how far the high watermark may rise."""

import pytest

from tailrace.model.ids import NodeId
from tailrace.replica.isr import FollowerState, decide_high_watermark, decide_isr_expand, decide_isr_shrink
from tailrace.replica.throttle import Throttle, is_throttled

TWO, THREE = NodeId(2), NodeId(3)


def follower(node_id: NodeId, offset: int, *, now_ms: float = 0, leader_end: int = 100) -> FollowerState:
    each = FollowerState(node_id)
    each.note_fetch(offset=offset, log_start_offset=0, broker_epoch=7, leader_end_offset=leader_end, now_ms=now_ms)
    return each


@pytest.mark.parametrize(
    ("two", "three", "counted", "joining", "expected"),
    [
        (90, 80, (1, 2, 3), (), 80),
        (90, 80, (1, 2), (), 90),
        (90, 80, (1,), (), 100),
        (90, 80, (1, 2), (3,), 80),  # It has caught up and is about to join.
        (90, -1, (1, 2, 3), (), -1),  # Nothing is known of it yet.
        (100, 100, (1, 2, 3), (), 100),
    ],
)
def test_the_high_watermark_is_what_all_who_count_have(two, three, counted, joining, expected):
    followers = [follower(TWO, two), follower(THREE, three)]
    found = decide_high_watermark(100, followers, counted=counted, may_join=lambda each: each.node_id in joining)
    assert found == expected


def test_one_that_reaches_where_the_leader_was_at_its_last_fetch_was_caught_up_then():
    each = follower(TWO, 100, now_ms=1000)
    each.note_fetch(offset=100, log_start_offset=0, broker_epoch=7, leader_end_offset=150, now_ms=2000)
    assert each.last_caught_up_ms == 1000
    each.note_fetch(offset=150, log_start_offset=0, broker_epoch=7, leader_end_offset=200, now_ms=3000)
    assert each.last_caught_up_ms == 2000
    each.note_fetch(offset=160, log_start_offset=0, broker_epoch=7, leader_end_offset=250, now_ms=4000)
    assert each.last_caught_up_ms == 2000


def test_one_that_lags_leaves_and_an_idle_one_at_the_log_end_does_not():
    isr = (NodeId(1), TWO, THREE)
    lagging, idle = follower(TWO, 90), follower(THREE, 100)

    def shrink(now_ms):
        return decide_isr_shrink(isr, [lagging, idle], leader_end_offset=100, now_ms=now_ms, lag_max_ms=500)

    lagging.last_caught_up_ms = 1000
    assert shrink(1500) == isr
    assert shrink(1501) == (1, 3)
    assert shrink(1e9) == (1, 3)


@pytest.mark.parametrize(
    ("offset", "high_watermark", "epoch_start", "joins"),
    [(50, 50, 40, True), (49, 50, 40, False), (50, 30, 50, True), (49, 30, 50, False)],
)
def test_one_joins_at_the_high_watermark_and_the_start_of_the_epoch(offset, high_watermark, epoch_start, joins):
    wanted = decide_isr_expand(
        (NodeId(1), THREE),
        follower(TWO, offset),
        replicas=(NodeId(1), TWO, THREE),
        high_watermark=high_watermark,
        leader_epoch_start_offset=epoch_start,
    )
    assert wanted == ((1, 2, 3) if joins else (1, 3))


def test_a_new_epoch_forgets_offsets_but_not_the_incarnation():
    each = follower(TWO, 90)
    each.reset(caught_up_ms=5)
    assert (each.log_end_offset, each.last_caught_up_ms, each.broker_epoch) == (-1, 5, 7)


def test_a_throttle_is_paid_for_by_waiting():
    throttle = Throttle()
    assert not throttle.is_exceeded(0)
    throttle.note(3000, bytes_per_second=1000, now_ms=0)
    assert throttle.is_exceeded(2999)
    assert not throttle.is_exceeded(3000)
    throttle.note(1000, bytes_per_second=1000, now_ms=5000)
    assert throttle.is_exceeded(5999)


@pytest.mark.parametrize(
    ("replicas", "expected"), [((), False), (("*",), True), (("0:1", "1:2"), True), (("0:2", "1:1"), False)]
)
def test_which_replicas_are_throttled(replicas, expected):
    assert is_throttled(replicas, partition=1, node_id=2) is expected
