"""Three brokers: whichever one a client starts from, it finds the leaders of all partitions."""

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Cluster
from tests.parts import need_program

from .clients import DEADLINE_S, Client
from .clients.corpus import small
from .conftest import CLIENTS

_BROKERS = (1, 2, 3)
_COUNT = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Started once for this module: it costs a second or two."""
    with Cluster(brokers=len(_BROKERS)) as running:
        yield running


@pytest.fixture(scope="module")
def create_led_topics(cluster: Cluster, fresh_name: Callable[[], str]) -> Callable[[], list[str]]:
    """Topics of one partition each, the first led by broker 1, the second by 2, the third by 3."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create() -> list[str]:
        names = [fresh_name() for _ in _BROKERS]
        orders = [[leader, *(other for other in _BROKERS if other != leader)] for leader in _BROKERS]
        topics = [
            NewTopic(name, num_partitions=1, replica_assignment=[order])
            for name, order in zip(names, orders, strict=True)
        ]
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        return names

    return create


@pytest.mark.parametrize("position", range(len(_BROKERS)))
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_all_partitions_are_reached_from_any_broker(
    cluster: Cluster, create_led_topics: Callable[[], list[str]], client: Client, position: int
):
    bootstrap = cluster.bootstrap.split(",")[position]
    for topic in create_led_topics():
        assert client.produce(bootstrap, topic, small(_COUNT)) == list(range(_COUNT))
        assert [record.as_sent for record in client.read(bootstrap, topic, _COUNT)] == small(_COUNT)


@pytest.fixture(scope="module")
def proxy(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HAProxy in front of all brokers, as a load balancer is used: for the first connection only."""
    program = need_program("haproxy")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    servers = [f"  server broker-{index} {address}" for index, address in enumerate(cluster.bootstrap.split(","))]
    lines = [
        "defaults",
        "  mode tcp",
        "  timeout connect 2s",
        "  timeout client 60s",
        "  timeout server 60s",
        "listen kafka",
        f"  bind 127.0.0.1:{port}",
        "  balance roundrobin",
        *servers,
    ]
    settings: Path = tmp_path_factory.mktemp("haproxy") / "haproxy.cfg"
    settings.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen([program, "-db", "-f", str(settings)], stderr=subprocess.PIPE)
    try:
        _wait_connectable(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def _wait_connectable(port: int) -> None:
    deadline = monotonic() + DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert monotonic() < deadline, "haproxy does not listen"
            sleep(0.05)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_balancer_for_the_first_connection_is_enough(
    proxy: str, create_led_topics: Callable[[], list[str]], client: Client
):
    for topic in create_led_topics():
        assert client.produce(proxy, topic, small(_COUNT)) == list(range(_COUNT))
        assert [record.as_sent for record in client.read(proxy, topic, _COUNT)] == small(_COUNT)
