"""Which requests have their time taken, and for how many others each of these stands."""

from __future__ import annotations

from tailrace.broker.metrics.requests import TIMED_EACH_TICK, Gaps, Meter, RequestMeters
from tailrace.broker.serving.measuring import NO_ERRORS, Measurement
from tailrace.wire.apis.keys import ApiKey


class StoppedClock:
    def monotonic_ms(self) -> float:
        return 5.0

    def wall_ms(self) -> int:
        return 5


def meter_of(*, sample_every: int = 64) -> Meter:
    return RequestMeters(sample_every=sample_every, express_sample_every=16).of(ApiKey.METADATA, 12)


def answered(meter: Meter) -> Measurement:
    """A request whose time is taken and whose answer is not sent yet."""
    measurement = meter.begin(StoppedClock())
    meter.count(10, 10, NO_ERRORS)
    measurement.note_answered([bytes(14)], NO_ERRORS)
    return measurement


def timed(meter: Meter) -> int:
    return meter.times.total.count


def test_the_first_of_each_tick_are_all_timed_and_then_one_in_so_many_by_chance():
    gaps = Gaps(64)
    assert {gaps.next() for _ in range(TIMED_EACH_TICK)} == {1}
    later = [gaps.next() for _ in range(10_000)]
    assert (min(later), max(later)) == (1, 127)
    assert 62 < sum(later) / len(later) < 66
    gaps.refill()
    assert {gaps.next() for _ in range(TIMED_EACH_TICK)} == {1}


def test_all_are_timed_where_the_setting_says_so():
    gaps = Gaps(1)
    assert {gaps.next() for _ in range(3 * TIMED_EACH_TICK)} == {1}


def test_a_time_stands_for_those_since_the_one_before():
    meter = meter_of()
    for _ in range(7):
        meter.count(10, 10, NO_ERRORS)
    answered(meter).note_sent()
    assert timed(meter) == meter.requests == 8


def test_the_last_time_stands_for_those_after_it_when_somebody_asks():
    meter = meter_of()
    answered(meter).note_sent()
    for _ in range(7):
        meter.count(10, 10, NO_ERRORS)
    assert timed(meter) == 1
    meter.settle()
    meter.settle()
    assert timed(meter) == meter.requests == 8


def test_several_answers_that_are_being_sent_are_each_counted_once():
    meter = meter_of()
    first, second = answered(meter), answered(meter)
    meter.count(10, 10, NO_ERRORS)
    meter.settle()  # There is no time yet that could stand for it.
    second.note_sent()
    assert timed(meter) == 2  # Its own, and the one without.
    first.note_sent()
    meter.settle()
    assert timed(meter) == meter.requests == 3


def test_another_stands_for_an_answer_that_was_never_sent():
    meter = meter_of()
    lost, sent = answered(meter), answered(meter)
    lost.note_lost()
    sent.note_sent()
    assert timed(meter) == meter.requests == 2
