"""What `tailrace up --secure` makes, one broker and three: no port lets the anonymous in, the supervisor tells of
deaths with a credential, brokers come and go, and kill -9 takes nothing along."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tailrace.testing import LOW_LATENCY, Broker, BrokerFailedError, Cluster
from tailrace.testing.users import ClientSettings
from tests.real.anonymous import answers_to_anonymous, has_datagram_sockets, open_ports, processes_of

from .observe import create_topic, leader_of, partitions_of, wait_in_sync
from .test_faults import Run, kill_and_heal

pytest.importorskip("cryptography", reason="the extra `security` is not installed")

DEADLINE_S = 30.0
TOPIC = "t"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Beside those that the nodes need. Only word of a death is acted on within these times.
    settings = {"super.users": "User:root", "broker.lease.ms": 25_000, "broker.session.timeout.ms": 50_000}
    with Cluster(settings, brokers=3, secure=True) as running:
        create_topic(running.client_settings, TOPIC, 3)
        yield running


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a certificate with the name that nodes have, which somebody else has signed."""
    folder = tmp_path_factory.mktemp("stranger")
    _tailrace("certificate", "create", "broker", "--folder", str(folder))
    return str(folder / "broker.pem")


def _tailrace(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_ports(folder: str, stranger: str, *, ports: int) -> None:
    processes = processes_of(folder)
    places = open_ports(processes)
    assert len(places) >= ports
    assert not has_datagram_sockets(processes)
    authority = f"{folder}/security/authority.pem"
    assert not [told for place in places for told in answers_to_anonymous(place, authority, stranger)]


def test_no_port_of_a_cluster_lets_the_anonymous_in(cluster: Cluster, stranger: str):
    """Each broker has one for clients and one for brokers, each controller has one, and each node one for metrics."""
    check_ports(cluster.data, stranger, ports=15)


def test_no_port_of_a_broker_lets_the_anonymous_in(stranger: str):
    with Broker(secure=True) as broker:
        check_ports(broker.data, stranger, ports=2)


def test_no_port_of_what_stands_beside_a_broker_lets_the_anonymous_in(stranger: str, tmp_path: Path):
    """A registry, a gateway, a console, and the port for metrics: found as the others are."""
    folder = str(tmp_path / "data")
    up = ("up", "--secure", "--data", folder, "--port", "0", "--registry-port", "0", "--alerts")
    with process_that_says("gateway: ", *up, "--gateway-port", "0", and_after="registry: ") as told:
        where = ("--bootstrap", told["ready"], "--command-config", f"{folder}/client.properties")
        with process_that_says("console: ", "console", "--port", "0", *where):
            check_ports(folder, stranger, ports=5)


@contextmanager
def process_that_says(last: str, *words: str, and_after: str = "") -> Iterator[dict[str, str]]:
    """What it prints, up to a line that begins so; with `and_after`, up to both, whichever comes first."""
    awaited = {each.removesuffix(": ") for each in (last, and_after) if each}
    told: dict[str, str] = {}
    process = subprocess.Popen([sys.executable, "-m", "tailrace", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        timer = threading.Timer(DEADLINE_S, process.kill)
        timer.start()
        for line in process.stdout:
            name, _, text = line.strip().partition(": ")
            told[name] = text
            if awaited <= told.keys():
                break
        timer.cancel()
        assert awaited <= told.keys(), f"{words[0]} is not ready"
        yield told
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


def test_the_test_would_see_an_open_port(stranger: str, cluster: Cluster):
    with Broker() as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        assert (host, int(port)) in open_ports(processes_of(broker.data))
        assert answers_to_anonymous((host, int(port)), f"{cluster.data}/security/authority.pem", stranger)


def test_a_death_is_told_with_a_credential(cluster: Cluster):
    admin = cluster.client_settings
    wait_in_sync(admin, TOPIC)
    node = leader_of(admin, TOPIC)
    others = [each for index, each in enumerate(cluster.bootstrap.split(","), 1) if index != node]
    cluster.kill(node)
    begun = time.monotonic()
    place = ClientSettings(",".join(others), admin.login)
    while any(node in (each.leader_id, *each.isr) for each in partitions_of(place, TOPIC).values()):
        assert time.monotonic() < begun + DEADLINE_S, "nobody notices"
    took_s = time.monotonic() - begun
    print(f"kill -9 of broker {node} under a supervisor, secure: noticed after {took_s:.2f} s")
    # Without that word it takes as long as a lease, and a probe of the port.
    assert took_s < 15
    assert "could be told" not in cluster.log()
    cluster.start(node)
    wait_in_sync(admin, TOPIC)


def test_brokers_come_and_go(cluster: Cluster):
    where = ("--bootstrap", cluster.bootstrap, "--command-config", f"{cluster.data}/client.properties", "--json")
    added = json.loads(_tailrace("cluster", "add", *where))
    assert added["partitions_moved"] > 0
    assert added["broker"] in [each["node_id"] for each in cluster.nodes.values()]
    gone = json.loads(_tailrace("cluster", "decommission", str(added["broker"]), *where))
    assert gone["partitions_moved"] > 0
    wait_in_sync(cluster.client_settings, TOPIC)


def test_users_may_do_what_their_acls_say(cluster: Cluster):
    writer = Producer(cluster.user("writer", acls=[f"write topic:{TOPIC}"]).confluent() | {"acks": "all"})
    root = Producer(cluster.user("root").confluent() | {"acks": "all"})
    outcomes: list[object] = []
    for producer, topic in ((writer, TOPIC), (writer, "another"), (root, TOPIC)):
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error and error.name()))
            producer.flush(DEADLINE_S)
        except KafkaException as error:
            # The client may know of the topic by then, and says so at once.
            outcomes.append(error.args[0].name())
    assert outcomes == [None, "TOPIC_AUTHORIZATION_FAILED", None]
    nobody = cluster.client_settings.login._replace(username="writer")
    with pytest.raises(KafkaException):
        Producer(ClientSettings(cluster.bootstrap, nobody).confluent() | {"log_level": 0}).list_topics(timeout=2)
    with pytest.raises(ValueError, match="is no ACL"):
        cluster.user("writer", acls=["write everything"])


def test_what_was_made_secure_stays_so(tmp_path: Path):
    folder = tmp_path / "data"
    with Broker(secure=True, data=folder) as broker:
        before = broker.client_settings.confluent()
    with pytest.raises(BrokerFailedError, match="was made with --secure"):
        Broker(data=folder).start()
    with Broker(secure=True, data=folder, port=broker.port) as broker:
        assert broker.client_settings.confluent() == before
        assert Producer(before).list_topics(timeout=DEADLINE_S).brokers


@pytest.mark.long
@pytest.mark.parametrize("settings", [LOW_LATENCY, {}], ids=["low-latency", "defaults"])
def test_kills_take_nothing_along(settings: dict[str, str]):
    with Cluster(settings, brokers=3, secure=True) as cluster:
        run = Run(cluster, cluster.client_settings)
        for _ in range(2):
            assert kill_and_heal(run, run.leader(), "leader") < 5
            assert kill_and_heal(run, run.active_controller(), "active controller") < 5

            def kill_all(_: Run) -> str:
                cluster.kill()
                cluster.start()
                return "kill -9 of all at once"

            run.hurt(kill_all)
            wait_in_sync(run.place, "faults")
        run.check()
