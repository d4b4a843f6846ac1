"""Every client goes on while the leader of its partition is stopped, and the next one killed: what an idempotent
producer was told to write is read meanwhile and afterwards, once and in order."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import LOW_LATENCY, Cluster
from tests.parts import need_node_clients, need_program

from .clients import DEADLINE_S, Client, Sent
from .clients.confluent import Confluent
from .clients.corpus import small
from .conftest import CLIENTS

_PAUSE_S = 0.01
# Some that take longer than the faults, so that they are read meanwhile too; and many times as many, to end at all.
_RECORDS_MIN = 200
_RECORDS_MAX = 6_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(LOW_LATENCY, brokers=3) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, fresh_name: Callable[[], str]) -> str:
    """One partition on all three brokers."""
    name = fresh_name()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (created,) = admin.create_topics([NewTopic(name, 1, 3)]).values()
    created.result(DEADLINE_S)
    return name


def _leader(cluster: Cluster, topic: str, *, in_sync: int = 1) -> int:
    """The leader, as soon as there is one and so many replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions[0]
        if found.leader > 0 and len(found.isrs) >= in_sync:
            return found.leader
        assert time.monotonic() < deadline, f"{topic} has leader {found.leader} and in sync {found.isrs}"
        time.sleep(0.05)


class _Faults:
    """The leader of a topic stops cleanly and comes back, then the next leader is killed and comes back."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.written = 0

    def __enter__(self) -> "_Faults":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def records(self) -> Iterator[Sent]:
        """Records for as long as it lasts, and some more."""
        last = _RECORDS_MAX
        for self.written, record in enumerate(small(_RECORDS_MAX), 1):
            if last == _RECORDS_MAX and self.written >= _RECORDS_MIN and not self._thread.is_alive():
                last = self.written + 20
            yield record
            if self.written == last:
                return
        raise AssertionError("the faults took too long")

    def _run(self) -> None:
        try:
            time.sleep(0.5)
            stopped = _leader(self._cluster, self._topic, in_sync=3)
            self._cluster.stop(stopped)
            self._cluster.start(stopped)
            killed = _leader(self._cluster, self._topic, in_sync=3)
            assert killed != stopped, "a clean stop hands the leadership over"
            self._cluster.kill(killed)
            self._cluster.start(killed)
            assert _leader(self._cluster, self._topic, in_sync=3) != killed, "a killed leader is replaced"
        except BaseException as error:
            self._error = error


# kafka-python leaves the sockets of refused connections to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_nothing_is_lost(cluster: Cluster, topic: str, client: Client):
    with ThreadPoolExecutor(1) as other, _Faults(cluster, topic) as faults:
        reading = other.submit(client.read, cluster.bootstrap, topic, _RECORDS_MIN)
        offsets = client.produce(cluster.bootstrap, topic, faults.records(), idempotent=True, pause_s=_PAUSE_S)
    assert offsets == list(range(faults.written))
    assert [record.as_sent for record in reading.result(DEADLINE_S)] == small(_RECORDS_MIN)
    received = client.read(cluster.bootstrap, topic, faults.written)
    assert [record.as_sent for record in received] == small(faults.written)


@pytest.fixture(params=["kcat", "kafkajs", "platformatic", pytest.param("java", marks=pytest.mark.long)])
def write_lines(request: pytest.FixtureRequest, cluster: Cluster, topic: str) -> list[str]:
    """A command that writes each line of its input to the topic, with an idempotent producer."""
    if request.param == "java":
        return [*request.getfixturevalue("compile_java")("LinesWriter"), cluster.bootstrap, topic]
    if request.param != "kcat":
        return ["node", str(need_node_clients() / f"{request.param}-lines.mjs"), cluster.bootstrap, topic]
    kcat = [need_program("kcat"), "-P", "-u", "-X", "enable.idempotence=true"]
    return [*kcat, "-b", cluster.bootstrap, "-t", topic, "-p", "0"]


def test_nothing_is_lost_by_a_command(cluster: Cluster, topic: str, write_lines: list[str]):
    writer = subprocess.Popen(write_lines, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdin is not None
    lines: list[bytes] = []
    try:
        with _Faults(cluster, topic) as faults:
            for _ in faults.records():
                lines.append(b"line %d" % len(lines))
                writer.stdin.write(lines[-1] + b"\n")
                writer.stdin.flush()
                time.sleep(_PAUSE_S)
        _, errors = writer.communicate(timeout=DEADLINE_S)
    finally:
        writer.kill()
        writer.wait()
    assert writer.returncode == 0, errors.decode()
    assert [record.value for record in Confluent().read(cluster.bootstrap, topic, len(lines))] == lines
