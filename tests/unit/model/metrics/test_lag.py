"""How old a record is, by a ring of ends, and verdicts over windows of commits."""

from random import Random

import pytest

from tailrace.model.metrics.lag import Commit, EndRing, Verdict, decide_verdict


def test_ages_are_interpolated():
    ring = EndRing(0, 0)
    ring.note(10_000, 100, last_look_ms=0)
    ring.note(20_000, 300, last_look_ms=10_000)
    assert ring.age_ms(50, 30_000, 300) == 25_000
    assert ring.age_ms(200, 30_000, 300) == 15_000
    assert ring.age_ms(300, 30_000, 300) == 0  # It has everything.
    assert ring.age_ms(300, 30_000, 400) == 10_000  # Since the last look more has come.


def test_an_idle_time_is_not_spread_over():
    ring = EndRing(0, 0)
    for now_ms in range(10_000, 100_000, 10_000):
        ring.note(now_ms, 0, last_look_ms=now_ms - 10_000)
    ring.note(100_000, 10, last_look_ms=90_000)
    assert ring.age_ms(0, 100_000, 10) == 10_000


def test_what_is_older_than_the_ring_is_at_least_as_old():
    ring = EndRing(5_000, 1000)
    assert ring.age_ms(10, 65_000, 1000) == 60_000


def test_a_log_that_was_cut_begins_anew():
    ring = EndRing(0, 0)
    ring.note(10_000, 100, last_look_ms=0)
    ring.note(20_000, 50, last_look_ms=10_000)
    assert ring.age_ms(10, 30_000, 50) == 10_000


@pytest.mark.parametrize("seed", range(5))
def test_a_ring_of_a_day_stays_small_and_near_the_truth(seed: int):
    random = Random(seed)
    ring, end, truth = EndRing(0, 0), 0, []
    for now_ms in range(10_000, 86_400_000, 10_000):
        added = random.choice([0, 0, 1, 100, 5000])
        truth += [(end, now_ms - 10_000, now_ms)] if added else []
        end += added
        ring.note(now_ms, end, last_look_ms=now_ms - 10_000)
    assert len(ring._times) <= 64
    now_ms = 86_400_000
    for offset, earliest_ms, latest_ms in truth[-20:]:
        assert now_ms - latest_ms - 1 <= ring.age_ms(offset, now_ms, end) <= now_ms - earliest_ms + 1
    for offset, _, latest_ms in random.sample(truth, 20):
        assert ring.age_ms(offset, now_ms, end) == pytest.approx(now_ms - latest_ms, rel=0.5, abs=60_000)


def judge(*commits: tuple[int, int, int], lag: int = 10, now_s: int = 60) -> Verdict:
    """Commits as (second, offset, lag)."""
    window = [Commit(second * 1000, offset, behind) for second, offset, behind in commits]
    return decide_verdict(window, lag=lag, now_ms=now_s * 1000, quiet_min_ms=20_000)


@pytest.mark.parametrize(
    ("commits", "options", "verdict"),
    [
        ([(0, 0, 9), (30, 5, 9), (55, 9, 9)], {"lag": 0}, Verdict.OK),
        ([(0, 0, 5), (30, 5, 4), (55, 9, 3)], {}, Verdict.OK),
        ([(0, 0, 5), (30, 5, 0), (55, 9, 30)], {}, Verdict.OK),
        ([(0, 0, 5), (30, 5, 6), (55, 9, 6)], {}, Verdict.WARN),
        ([(0, 7, 5), (30, 7, 6), (55, 7, 8)], {}, Verdict.STALL),
        ([(0, 7, 5), (30, 7, 6), (55, 7, 4)], {}, Verdict.OK),
        ([(0, 7, 5), (30, 3, 6), (55, 9, 4)], {}, Verdict.REWIND),
        ([(0, 0, 5), (10, 5, 4), (20, 9, 3)], {}, Verdict.STOP),
        ([(0, 0, 5), (10, 5, 0), (20, 9, 0)], {}, Verdict.STOP),
        ([(55, 0, 5)], {}, Verdict.OK),
        ([(30, 0, 5)], {}, Verdict.STOP),
        ([], {}, Verdict.OK),
    ],
)
def test_verdicts(commits: list[tuple[int, int, int]], options: dict[str, int], verdict: Verdict):
    assert judge(*commits, **options) is verdict
