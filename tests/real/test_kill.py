"""kill -9 under load: whatever was acknowledged is there, in order, and no client hangs."""

import os
import time

import pytest

from tailrace.testing import Broker

from .load import Load, Tail, read_numbers

# Of each producer, between two kills.
RECORDS_BETWEEN_KILLS = 1000


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
def test_no_acknowledged_record_is_lost(kills: int):
    with Broker({"auto.create.topics.enable": True}) as broker:
        exact = Load(broker.bootstrap, "exact", **{"enable.idempotence": True})
        plain = Load(broker.bootstrap, "plain", acks=1, **{"max.in.flight.requests.per.connection": 1})
        tail = Tail(broker.bootstrap, "exact")
        for _ in range(kills):
            exact.wait_acked(RECORDS_BETWEEN_KILLS)
            plain.wait_acked(RECORDS_BETWEEN_KILLS)
            broker.kill()
            broker.start()
        exact.wait_acked(RECORDS_BETWEEN_KILLS)
        exact.finish()
        plain.finish()

        assert exact.failed == []
        assert plain.failed == []
        assert len(exact.acked) == exact.sent
        assert len(plain.acked) == plain.sent
        # An idempotent producer's records are there once each, in the order in which they were sent.
        stored = read_numbers(broker.bootstrap, "exact")
        assert [number for _, number in stored] == list(range(exact.sent))
        assert {number: offset for offset, number in stored} == exact.acked
        assert tail.finish(len(stored)) == stored
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
        load.wait_acked(1000)
        load.finish()
        broker.stop()
        mark = os.path.join(broker.data, ".kafka_cleanshutdown")
        assert os.path.exists(mark), "the next start need not look for damage"
        broker.start()
        assert not os.path.exists(mark), "it holds for one start only"
        assert [number for _, number in read_numbers(broker.bootstrap, "clean")] == list(range(load.sent))


def test_a_paused_broker_delays_but_loses_nothing():
    with Broker() as broker:
        load = Load(broker.bootstrap, "paused", **{"enable.idempotence": True})
        load.wait_acked(1000)
        broker.pause()
        time.sleep(0.5)
        broker.resume()
        load.wait_acked(1000)
        load.finish()
        assert load.failed == []
        assert [number for _, number in read_numbers(broker.bootstrap, "paused")] == list(range(load.sent))
