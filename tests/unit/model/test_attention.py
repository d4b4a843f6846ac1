"""Patient time and the moment of the last look, over schedules of looks."""

from itertools import pairwise

from tailrace.model.attention import Attention, timer_seconds

INTERVAL_MS = 100


def looking(until_ms: int, *, since_ms: int = 0) -> Attention:
    attention = Attention()
    for now_ms in range(since_ms, until_ms + 1, INTERVAL_MS):
        attention.note_look(now_ms)
    return attention


def test_without_looks_all_times_are_those_of_the_clock() -> None:
    attention = Attention()
    assert attention.patient_ms(5000) == attention.looked_ms(5000) == 5000


def test_patient_time_is_that_of_the_clock_while_nobody_is_held_up() -> None:
    attention = looking(10_000)
    assert attention.patient_ms(10_000) == 10_000
    assert attention.patient_ms(10_030) == 10_030


def test_an_absence_does_not_count_and_time_stands_until_the_sockets_were_looked_at() -> None:
    attention = looking(10_000)
    assert attention.patient_ms(10_040) == 10_040
    assert attention.patient_ms(30_000) == 10_040, "nothing of what came meanwhile is read"
    attention.note_look(30_001)
    assert attention.patient_ms(30_002) < 10_042, "it has only begun to be read"
    attention.note_look(30_101)
    assert attention.patient_ms(30_101) <= 10_340


def test_a_loop_that_is_always_late_gets_on_slowly() -> None:
    attention = looking(0)
    told = []
    for now_ms in range(2000, 102_000, 2000):
        attention.note_look(now_ms)
        told.append(attention.patient_ms(now_ms))
    assert all(before <= after for before, after in pairwise(told)), "it never goes back"
    assert 5000 < told[-1] < 15_000, "a member that is gone is noticed in the end"


def test_what_is_read_after_an_absence_may_have_come_at_its_beginning() -> None:
    attention = looking(10_000)
    assert attention.looked_ms(30_000) <= 10_000
    attention.note_look(30_000)
    assert attention.looked_ms(30_000) <= 10_000, "this look was not before the kernel was asked"
    attention.note_look(30_100)
    assert attention.looked_ms(30_150) == 30_000


def test_a_timer_sleeps_a_little_where_time_stands_still() -> None:
    assert timer_seconds(500) == 0.5
    assert timer_seconds(0.01) == 0.001
    assert timer_seconds(-3) == 0
