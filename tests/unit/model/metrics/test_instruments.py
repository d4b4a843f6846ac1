"""Histograms of fixed buckets: what is read from them is near to what was put in."""

from random import Random

import pytest

from tailrace.model.metrics.instruments import TIME_BOUNDS_MS, Histogram, Window, quantiles_ms


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_are_wrong_by_no_more_than_a_bucket(seed: int):
    random = Random(seed)
    values = sorted(random.lognormvariate(1, 2) for _ in range(1000))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    for quantile, found in zip((0.5, 0.95, 0.99), quantiles_ms(histogram.counts, (0.5, 0.95, 0.99)), strict=True):
        exact = values[int(quantile * 1000)]
        assert exact / 1.45 < found < exact * 1.45


def test_a_value_lies_at_or_below_its_bound():
    histogram = Histogram()
    histogram.add(TIME_BOUNDS_MS[5])
    histogram.add(TIME_BOUNDS_MS[5] * 1.001)
    assert (histogram.counts[5], histogram.counts[6]) == (1, 1)


def test_what_is_above_all_bounds_is_counted():
    histogram = Histogram()
    histogram.add(1e9, 3)
    assert histogram.count == 3
    assert quantiles_ms(histogram.counts, [0.5]) == [TIME_BOUNDS_MS[-1]]
    assert histogram.cumulated(1)[-1][1] == 0  # It stands in +Inf alone.


def test_nothing_has_no_quantiles():
    assert quantiles_ms(Histogram().counts, [0.5, 0.999]) == [0.0, 0.0]


def test_a_window_forgets_what_is_older_than_its_ticks():
    histogram = Histogram()
    histogram.add(5)
    window = Window(histogram, ticks=2)
    histogram.add(7)
    window.tick()
    assert sum(window.counts()) == 1  # Of before it began it knows nothing.
    window.tick()
    assert sum(window.counts()) == 0
    histogram.add(9, 4)
    assert sum(window.counts()) == 4
