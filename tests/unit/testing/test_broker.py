"""The tests kit: a broker that is ready at once, can be killed, paused and restarted, and leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.model.errors import KafkaError
from tailrace.testing import Broker, BrokerFailedError

WAIT_S = 10


def test_starts_serves_and_leaves_nothing():
    with Broker() as broker:
        folder, process_id = os.path.dirname(broker.data), broker.process_id
        assert _round_trip(broker.bootstrap, b"hello") == b"hello"
        assert os.path.exists(folder)
    assert not os.path.exists(folder)
    assert not _is_alive(process_id)


def test_data_folder_of_the_caller_is_kept(tmp_path: Path):
    with Broker(data=tmp_path) as broker:
        assert broker.data == str(tmp_path)
        _produce(broker.bootstrap, b"kept")
    with Broker(data=tmp_path) as broker:
        assert _consume(broker.bootstrap) == b"kept"


def test_settings_reach_the_broker():
    with Broker({"num.partitions": 3, "auto.create.topics.enable": True}) as broker:
        _produce(broker.bootstrap, b"x")
        metadata = Producer({"bootstrap.servers": broker.bootstrap}).list_topics("t", timeout=WAIT_S)
        assert len(metadata.topics["t"].partitions) == 3


def test_kill_and_start_keep_port_and_data(fresh_tailrace_broker: Broker):
    broker = fresh_tailrace_broker
    _produce(broker.bootstrap, b"kept")
    bootstrap, process_id = broker.bootstrap, broker.process_id
    broker.kill()
    assert not broker.is_running
    broker.start()
    assert broker.bootstrap == bootstrap
    assert broker.process_id != process_id
    assert _consume(broker.bootstrap) == b"kept"
    broker.restart()
    assert _consume(broker.bootstrap) == b"kept"


def test_paused_broker_answers_after_resume(fresh_tailrace_broker: Broker):
    broker = fresh_tailrace_broker
    _produce(broker.bootstrap, b"early")
    broker.pause()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"late")
    assert producer.flush(0.3) == 1
    broker.resume()
    assert producer.flush(WAIT_S) == 0


def test_start_that_fails_shows_the_log():
    broker = Broker({"no.such.setting": 1})
    with pytest.raises(BrokerFailedError, match=r"no\.such\.setting"):
        broker.start()
    assert not broker.is_running


@pytest.mark.parametrize("action", ["pass", "broker.pause()", "broker.kill()"])
def test_nothing_is_left_when_the_test_process_is_killed(action: str):
    """The guard outlives us: whatever the broker was doing, its process and its folder go."""
    process_id, folder = _kill_test_process(f"""
import os, time
from tailrace.testing import Broker
broker = Broker()
broker.start()
print(broker.process_id, os.path.dirname(broker.data), flush=True)
{action}
print("go", flush=True)
time.sleep(60)
""")
    _wait_until(lambda: not os.path.exists(folder) and not _is_alive(process_id))


def test_nothing_is_left_of_a_broker_in_the_killed_process():
    _, folder = _kill_test_process("""
import asyncio, os
from tailrace.testing import Broker
async def main():
    async with Broker(in_process=True) as broker:
        print(os.getpid(), broker.data, flush=True)
        print("go", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
""")
    _wait_until(lambda: not os.path.exists(folder))


def _kill_test_process(script: str) -> tuple[int, str]:
    """Runs it until it says go, and kills it. It has told the broker's process and folder first."""
    victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        process_id, folder = victim.stdout.readline().split()
        assert victim.stdout.readline() == "go\n"
        assert os.path.exists(folder)
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    return int(process_id), folder


async def test_child_process_in_async_code():
    async with Broker() as broker:
        assert await asyncio.to_thread(_round_trip, broker.bootstrap, b"hello") == b"hello"


async def test_in_process():
    async with Broker(in_process=True) as broker:
        folder = broker.data
        assert await asyncio.to_thread(_round_trip, broker.bootstrap, b"hello") == b"hello"
        with pytest.raises(RuntimeError, match="child process"):
            broker.kill()
    assert not os.path.exists(folder)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("tailrace")]


async def test_start_in_process_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KafkaError, match=r"no\.such\.setting"):
        async with Broker({"no.such.setting": 1}, in_process=True):
            pass
    assert list(tmp_path.iterdir()) == []


def test_in_process_needs_a_loop():
    with pytest.raises(RuntimeError, match="async with"):
        Broker(in_process=True).start()


def test_fixture_is_shared(tailrace_broker: Broker, request: pytest.FixtureRequest):
    assert request.getfixturevalue("tailrace_broker") is tailrace_broker
    assert tailrace_broker.is_running


def test_plugin_brings_nothing_of_the_broker():
    """It is loaded in every pytest run of every user."""
    script = "import sys, tailrace.testing.plugin; print([m for m in sys.modules if m.startswith('tailrace.')])"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert not [name for name in ("broker.broker", "wire", "log", "model", "asyncio") if f"tailrace.{name}" in loaded]


def _produce(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("t", value, partition=0)
    assert producer.flush(WAIT_S) == 0


def _consume(bootstrap: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(WAIT_S)
        assert message is not None, "nothing came"
        return message.value()
    finally:
        consumer.close()


def _round_trip(bootstrap: str, value: bytes) -> bytes:
    _produce(bootstrap, value)
    return _consume(bootstrap)


def _is_alive(process_id: int) -> bool:
    """A zombie that nobody reaps is as dead as can be."""
    try:
        with open(f"/proc/{process_id}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until(condition) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
