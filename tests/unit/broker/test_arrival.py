"""The deadline and the least rate of a request that is not whole, to the millisecond."""

import pytest

from tailrace.broker.serving.arrival import Arrival, ArrivalRules

RULES = ArrivalRules(max_ms=300_000, window_ms=30_000, min_bytes_per_second=1024)
BEGAN_MS = 7_000.0


class Sender:
    """One request, which brings bytes when told to and is looked at once a second."""

    def __init__(self) -> None:
        self.now_ms = BEGAN_MS
        self.arrival = Arrival(BEGAN_MS)
        self.received_bytes = 0

    def bring(self, size: int) -> None:
        self.received_bytes += size

    def is_late(self, after_ms: float, *, is_short: bool = False, held_bytes: int = 64 << 10) -> bool:
        self.now_ms += after_ms
        problem = self.arrival.decide_late(
            self.now_ms,
            RULES,
            received_bytes=self.received_bytes,
            held_bytes=held_bytes,
            is_short=is_short,
        )
        return problem is not None


@pytest.mark.parametrize("size", [1, 4, 30 * 1024 - 1])
def test_who_stops_is_late_after_the_window(size):
    sender = Sender()
    sender.bring(size)
    assert not sender.is_late(29_999)
    assert sender.is_late(1)


def test_the_least_rate_is_enough_until_the_deadline():
    sender = Sender()
    for _ in range(299):
        sender.bring(1024)
        assert not sender.is_late(1000)
    sender.bring(1024)
    assert not sender.is_late(999)
    assert sender.is_late(1)


def test_a_little_less_than_the_least_rate_is_not():
    sender = Sender()
    for _ in range(29):
        sender.bring(1023)
        assert not sender.is_late(1000)
    sender.bring(1023)
    assert sender.is_late(1000)


def test_what_was_fast_once_has_no_credit():
    """67 MB at once, and then a byte every two seconds."""
    sender = Sender()
    sender.bring(67_000_000)
    assert not sender.is_late(0)
    for _ in range(14):
        sender.bring(1)
        assert not sender.is_late(2000)
    sender.bring(1)
    assert not sender.is_late(1999)
    assert sender.is_late(1)


def test_a_line_that_stalls_for_less_than_the_window_goes_on():
    sender = Sender()
    for _ in range(9):
        sender.bring(40_000)
        assert not sender.is_late(1000)
        for _ in range(28):
            assert not sender.is_late(1000)


def test_while_others_wait_for_memory_more_is_asked_of_those_who_hold_more():
    for held_bytes, enough in ((16 << 10, 1024), (64 << 10, 1024), (1 << 20, 16 * 1024), (64 << 20, 1 << 20)):
        for rate, is_enough in ((enough, True), (enough - 1, False)):
            sender = Sender()
            late = []
            for _ in range(20):
                sender.bring(rate)
                late.append(sender.is_late(1000, is_short=True, held_bytes=held_bytes))
            assert any(late) is not is_enough, (held_bytes, rate)
            assert is_enough or late.index(True) == 9


def test_time_that_is_not_the_clients_does_not_count():
    sender = Sender()
    sender.bring(100)
    assert not sender.is_late(20_000)
    sender.now_ms += 400_000
    sender.arrival.excuse(400_000, sender.now_ms)
    assert not sender.is_late(9_999)
    assert sender.is_late(1)


def test_no_least_rate_leaves_the_deadline():
    arrival = Arrival(0)
    rules = RULES._replace(min_bytes_per_second=0)
    options = {"received_bytes": 1, "held_bytes": 1 << 20, "is_short": True}
    assert arrival.decide_late(299_999, rules, **options) is None
    assert "socket.request.max.ms=300000" in arrival.decide_late(300_000, rules, **options)
