"""What the console remembers: means of steps, gaps, and its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.apps.console.charts import draw
from tailrace.apps.console.history import COARSE_S, DAY_S, FINE_S, HOUR_S, STEPS, History, Point

BEGIN = 1_800_000_000 // COARSE_S * COARSE_S


def test_a_step_is_the_mean_of_what_was_seen_in_it():
    history = History(series_max=10)
    for second, value in enumerate((10, 20, 60)):
        history.add("rate", "orders", at_s=BEGIN + second, value=value)
    assert history.points("rate", "orders", now_s=BEGIN + 2) == [Point(BEGIN, 30)]
    assert history.latest("rate", "orders", now_s=BEGIN + 2) == 30
    assert history.points("rate", "other", now_s=BEGIN) == []


def test_what_was_missed_is_a_gap():
    history = History(series_max=10)
    history.add("lag", "billing", at_s=BEGIN, value=1)
    history.add("lag", "billing", at_s=BEGIN + 600, value=2)
    assert history.points("lag", "billing", now_s=BEGIN + 600) == [Point(BEGIN, 1), Point(BEGIN + 600, 2)]
    drawn = draw(history.points("lag", "billing", now_s=BEGIN + 600), now_s=BEGIN + 600, span_s=HOUR_S)
    assert len(drawn.lines) == 2


def test_a_day_is_kept_in_coarse_steps_and_an_hour_in_fine_ones():
    history = History(series_max=10)
    for at_s in range(BEGIN, BEGIN + 2 * DAY_S, 30):
        history.add("rate", "orders", at_s=at_s, value=at_s - BEGIN)
    now_s = BEGIN + 2 * DAY_S - 1
    day = history.points("rate", "orders", now_s=now_s, span_s=DAY_S)
    hour = history.points("rate", "orders", now_s=now_s, span_s=HOUR_S)
    assert STEPS - 1 <= len(day) <= STEPS
    assert now_s - day[0].at_s <= DAY_S
    assert hour[0].at_s >= now_s - HOUR_S - FINE_S
    assert [point.at_s for point in day] == sorted(point.at_s for point in day)


def test_series_are_bounded_and_old_ones_make_room():
    history = History(series_max=2)
    for name in ("a", "b", "c"):
        history.add("rate", name, at_s=BEGIN, value=1)
    assert history.refused == 1
    assert not history.points("rate", "c", now_s=BEGIN)
    history.add("rate", "d", at_s=BEGIN + DAY_S + 1, value=1)
    assert history.points("rate", "d", now_s=BEGIN + DAY_S + 1)


@given(st.lists(st.tuples(st.integers(0, 3 * DAY_S), st.floats(0, 1e9)), max_size=60))
def test_points_are_in_order_whatever_the_clock_does(seen):
    history = History(series_max=1)
    for at_s, value in seen:
        history.add("rate", "orders", at_s=BEGIN + at_s, value=value)
    now_s = BEGIN + 3 * DAY_S
    for span_s in (HOUR_S, DAY_S):
        points = history.points("rate", "orders", now_s=now_s, span_s=span_s)
        assert [point.at_s for point in points] == sorted({point.at_s for point in points})
        draw(points, now_s=now_s, span_s=span_s)
