"""Slots of delayed records: where they wait, and that each leaves once, whenever the mover dies."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.kit.delays.pending import NOTHING_DONE, Moment, Pending, Progress, parse_progress
from tailrace.kit.delays.slots import DELAY_MS_MAX, RINGS, Level, act_ms, horizon_ms, open_slots, slot_for

NOW = st.integers(1_700_000_000_000, 1_900_000_000_000)


@given(NOW, st.integers(0, DELAY_MS_MAX))
def test_a_record_gets_to_its_topic_in_three_steps_and_in_time(now: int, delay: int) -> None:
    due, steps = now + delay, 0
    while True:
        slot = slot_for(due, now)
        steps += 1
        moves_at = act_ms(slot.level, due)
        # It is there before its slot is opened for the last time, and is read while that is open.
        now = max(now, moves_at)
        assert slot in open_slots(now)
        assert moves_at <= horizon_ms(slot.level, now)
        if slot.level is Level.MINUTES:
            assert now == max(due, now)
            break
        assert now < due
    assert steps <= 3


@given(NOW)
def test_no_slot_is_open_that_is_written_for_another_time(now: int) -> None:
    """What is put into an open slot now is for now."""
    for level, ring in RINGS.items():
        for ahead in range(0, ring.range_ms, ring.slot_ms):
            slot = slot_for(now + ahead, now)
            if slot.level is level and slot in open_slots(now):
                assert act_ms(level, now + ahead) <= horizon_ms(level, now)


@given(NOW, st.integers(1, 40 * 86_400_000))
def test_one_that_is_late_is_put_where_it_is_read_at_once(now: int, late: int) -> None:
    assert slot_for(now - late, now) in open_slots(now)


@pytest.mark.parametrize("seed", range(150))
def test_each_record_leaves_once_whatever_dies(seed: int) -> None:
    """A step delivers some of what is due, and commits in words; a crash begins anew from the words."""
    random = Random(seed)
    times = [random.randrange(20) for _ in range(30)]
    left: list[int] = []
    committed = Progress(0, 0, NOTHING_DONE)
    pending: Pending[int] = Pending(committed)
    read_to, now, there = 0, 0, 0
    for _ in range(150):
        step = random.choice(("write", "read", "read", "tick", "deliver", "deliver", "lose", "crash"))
        if step == "write":
            there = min(there + 3, len(times))
        elif step == "read" and read_to < there:
            pending.take(read_to, times[read_to], read_to, horizon_ms=100)
            read_to += 1
        elif step == "tick":
            now += random.randrange(1, 4)
        elif step in ("deliver", "lose"):
            popped = pending.pop_due(now, count_max=random.randrange(1, 4))
            progress = pending.decide_progress(popped)
            if step == "deliver":
                committed = parse_progress(progress.position, progress.metadata)
                assert committed == progress
                left += [item for _, item in popped]
                pending.note_committed(progress, popped)
        if step in ("lose", "crash"):
            pending, read_to = Pending(committed), committed.position
    # The rest, in one go.
    for offset in range(read_to, len(times)):
        pending.take(offset, times[offset], offset, horizon_ms=100)
    left += [item for _, item in pending.pop_due(100, count_max=1000)]
    assert sorted(left) == list(range(len(times)))


def test_what_is_for_another_time_stays_and_holds_the_position() -> None:
    pending: Pending[str] = Pending(Progress(5, 5, NOTHING_DONE))
    assert pending.take(5, 100, "now", horizon_ms=200)
    assert not pending.take(6, 999, "next round", horizon_ms=200)
    assert not pending.take(7, 100, "behind it", horizon_ms=200)
    assert pending.next == Moment(999, 6)
    popped = pending.pop_due(200, count_max=10)
    assert [item for _, item in popped] == ["now"]
    assert pending.decide_progress(popped) == Progress(6, 6, Moment(100, 5))


def test_metadata_of_somebody_else() -> None:
    assert parse_progress(7, "") == Progress(7, 7, NOTHING_DONE)
    assert parse_progress(7, "a:b:c") == Progress(7, 7, NOTHING_DONE)
