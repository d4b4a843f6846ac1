"""The tests kit's cluster: three brokers that can be killed and paused one by one, and that leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.testing import BrokerFailedError, Cluster

WAIT_S = 20


def test_serves_and_leaves_nothing():
    with Cluster(brokers=3) as cluster:
        folder, nodes = os.path.dirname(cluster.data), cluster.nodes
        assert len(cluster.bootstrap.split(",")) == 3
        assert cluster.broker_ids == [1, 2, 3]
        assert _round_trip(cluster.bootstrap, b"hello") == b"hello"
        assert "ready node=2" in cluster.log(2)
        assert "ready node=1003" in cluster.log("controller-3")
    assert not os.path.exists(folder)
    assert not [name for name, facts in nodes.items() if _is_alive(facts["process_id"])]


def test_nodes_one_by_one(fresh_tailrace_cluster: Cluster):
    cluster = fresh_tailrace_cluster
    before = cluster.process_id(2)
    cluster.kill(2)
    with pytest.raises(RuntimeError, match="broker-2 does not run"):
        cluster.process_id(2)
    cluster.stop(2)  # What does not run is stopped already.
    cluster.start(2)
    assert cluster.process_id(2) != before
    cluster.pause("controller-1")
    _wait_until(lambda: _state(cluster.process_id("controller-1")) == "T")
    cluster.resume("controller-1")
    cluster.restart(3)
    assert _round_trip(cluster.bootstrap, b"after all that") == b"after all that"


def test_kill_of_all_keeps_ports_and_data(fresh_tailrace_cluster: Cluster):
    cluster = fresh_tailrace_cluster
    _produce(cluster.bootstrap, b"kept")
    bootstrap = cluster.bootstrap
    cluster.kill()
    cluster.start()
    assert cluster.bootstrap == bootstrap
    assert _consume(cluster.bootstrap) == b"kept"


def test_settings_reach_every_node():
    with Cluster({"num.partitions": 5}, brokers=2) as cluster:
        _produce(cluster.bootstrap, b"x")
        found = Producer({"bootstrap.servers": cluster.bootstrap}).list_topics("t", timeout=WAIT_S).topics["t"]
        assert len(found.partitions) == 5
        assert list(cluster.nodes) == ["controller-1", "broker-1", "broker-2"]


def test_start_that_fails_shows_the_log():
    with pytest.raises(BrokerFailedError, match=r"no\.such\.setting"):
        Cluster({"no.such.setting": 1}).start()


@pytest.mark.parametrize("action", ["pass", "cluster.pause(1)", "cluster.kill(1)"])
def test_nothing_is_left_when_the_test_process_is_killed(action: str):
    script = f"""
import os, time
from tailrace.testing import Cluster
cluster = Cluster(brokers=2)
cluster.start()
print(os.path.dirname(cluster.data), *(facts["process_id"] for facts in cluster.nodes.values()), flush=True)
{action}
print("go", flush=True)
time.sleep(60)
"""
    victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        folder, *process_ids = victim.stdout.readline().split()
        assert victim.stdout.readline() == "go\n"
        assert os.path.exists(folder)
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    _wait_until(lambda: not os.path.exists(folder) and not any(_is_alive(int(each)) for each in process_ids))


def _produce(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
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


def _state(process_id: int) -> str:
    with open(f"/proc/{process_id}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


def _is_alive(process_id: int) -> bool:
    """A zombie that nobody reaps is as dead as can be."""
    try:
        return _state(process_id) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
