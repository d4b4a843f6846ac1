"""kill -9 under load: whatever was acknowledged is there, in order, and no client hangs."""

import asyncio
import gc
import logging
import os
import threading
import time

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from tailrace.testing import Broker

from .load import DEADLINE_S, Load, Tail, read_numbers

# What each producer writes between two kills.
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


async def test_aiokafka_goes_on_after_a_kill():
    """A pure Python client with its own retries: idempotent, so each record is there once and in order."""
    async with Broker() as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
            await producer.send_and_wait("aio", b"0", partition=0)
            killing = asyncio.create_task(asyncio.to_thread(_kill_and_start, broker))
            sent = []
            while not killing.done() or len(sent) < 1000:
                sent.append(await producer.send("aio", str(len(sent) + 1).encode(), partition=0))
                await asyncio.sleep(0.0002)
            answers = await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_S)
        assert [answer.offset for answer in answers] == list(range(1, len(sent) + 1))
        stored = await asyncio.to_thread(read_numbers, broker.bootstrap, "aio")
        assert stored == [(number, number) for number in range(len(sent) + 1)]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_kafka_python_goes_on_after_a_kill(caplog: pytest.LogCaptureFixture):
    # It forgets to close the sockets of refused connections. What it logs would keep them alive, and another test would
    # be blamed for them.
    caplog.set_level(logging.CRITICAL, logger="kafka")
    with Broker() as broker:
        count = _write_with_kafka_python(broker)
        assert read_numbers(broker.bootstrap, "pure") == [(number, number) for number in range(count)]
    gc.collect()


def _write_with_kafka_python(broker: Broker) -> int:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    producer.send("pure", b"0", partition=0).get(DEADLINE_S)
    killing = threading.Thread(target=_kill_and_start, args=(broker,))
    killing.start()
    sent = []
    while killing.is_alive() or len(sent) < 1000:
        sent.append(producer.send("pure", str(len(sent) + 1).encode(), partition=0))
        time.sleep(0.0002)
    assert [answer.get(DEADLINE_S).offset for answer in sent] == list(range(1, len(sent) + 1))
    producer.close(DEADLINE_S)
    return len(sent) + 1


def _kill_and_start(broker: Broker) -> None:
    time.sleep(0.1)
    broker.kill()
    broker.start()
