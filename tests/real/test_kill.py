"""kill -9 under load: whatever was acknowledged is there, in order, and no client hangs."""

import time

import pytest

from tailrace.testing import Broker

from .load import Load, read_numbers

LOAD_BEFORE_KILL_S = 0.8


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_no_acknowledged_record_is_lost(kills: int):
    with Broker({"auto.create.topics.enable": True}) as broker:
        exact = Load(broker.bootstrap, "exact", **{"enable.idempotence": True})
        plain = Load(broker.bootstrap, "plain", acks=1, **{"max.in.flight.requests.per.connection": 1})
        for _ in range(kills):
            time.sleep(LOAD_BEFORE_KILL_S)
            broker.kill()
            broker.start()
        time.sleep(LOAD_BEFORE_KILL_S)
        exact.finish()
        plain.finish()

        assert exact.failed == []
        assert plain.failed == []
        assert len(exact.acked) == exact.sent > 0
        assert len(plain.acked) == plain.sent > 0
        # An idempotent producer's records are there once each, in the order in which they were sent.
        stored = read_numbers(broker.bootstrap, "exact")
        assert [number for _, number in stored] == list(range(exact.sent))
        assert {number: offset for offset, number in stored} == exact.acked
        _assert_acknowledged_and_in_order(plain, read_numbers(broker.bootstrap, "plain"))


def _assert_acknowledged_and_in_order(load: Load, stored: list[tuple[int, int]]) -> None:
    """A batch whose answer was lost is sent again and may be there twice; nothing may be missing or out of order."""
    by_offset = dict(stored)
    wrong = {number: offset for number, offset in load.acked.items() if by_offset.get(offset) != number}
    assert not wrong, f"acknowledged, but not at their offsets: {wrong}"
    firsts = list(dict.fromkeys(number for _, number in stored))
    assert firsts == sorted(firsts)


def test_everything_is_there_after_a_clean_stop():
    with Broker() as broker:
        load = Load(broker.bootstrap, "clean", **{"enable.idempotence": True})
        time.sleep(0.3)
        load.finish()
        broker.restart()
        assert [number for _, number in read_numbers(broker.bootstrap, "clean")] == list(range(load.sent))
        assert "recover" not in broker.log().split("stopped")[-1], "a clean stop needs no recovery"


def test_a_paused_broker_delays_but_loses_nothing():
    with Broker() as broker:
        load = Load(broker.bootstrap, "paused", **{"enable.idempotence": True})
        time.sleep(0.3)
        broker.pause()
        time.sleep(0.5)
        broker.resume()
        time.sleep(0.3)
        load.finish()
        assert load.failed == []
        assert [number for _, number in read_numbers(broker.bootstrap, "paused")] == list(range(load.sent))
