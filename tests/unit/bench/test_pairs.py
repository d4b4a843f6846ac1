"""How paired measurements are judged."""

import pytest

from bench.pairs import BOUND, judge


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ([0.99, 1.0, 1.01] * 5, "passed"),
        ([1.10, 1.12, 1.15] * 5, "slower"),
        ([0.9, 1.0, 1.3] * 5, "not decided"),
        ([1.0, 1.0, 1.5], "not decided"),  # With few pairs one bad ratio is within the interval.
    ],
)
def test_the_interval_decides_and_not_the_median(ratios: list[float], text: str) -> None:
    assert judge(ratios).text == text


def test_a_few_wild_pairs_of_many_change_nothing() -> None:
    verdict = judge([1.0] * 12 + [0.2, 3.0, 9.0])
    assert (verdict.median, verdict.low, verdict.high) == (1.0, 1.0, 1.0)


def test_of_fifteen_pairs_the_three_outermost_on_each_side_are_left_out() -> None:
    """P(at most 3 of 15 on one side) is 0.018: twice that is less than a tenth; with 4 it is more."""
    ratios = [1 + number / 1000 for number in range(15)]
    verdict = judge(ratios)
    assert (verdict.low, verdict.high) == (ratios[3], ratios[11])
    assert verdict.high < BOUND
