"""Eight members over 24 partitions on three brokers, under load: members die and come, the coordinator dies, every
broker is restarted. Nothing is lost, no partition has two owners, and only what was not committed is read twice."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import LOW_LATENCY, Cluster
from tests.compat.clients import DEADLINE_S

from .conftest import QUICK
from .crowd import Crowd, Member, Writer
from .test_members import KINDS, program

MEMBERS = 8
PARTITIONS = 24
SHORT = ("librdkafka cooperative-sticky", "librdkafka consumer")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({**LOW_LATENCY, **QUICK}, brokers=3) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})


@pytest.fixture
def topic(admin: AdminClient, fresh_name: Callable[[], str]) -> str:
    name = fresh_name()
    (created,) = admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values()
    created.result(DEADLINE_S)
    return name


def _coordinator(cluster: Cluster, group: str) -> int:
    # A client of its own: librdkafka's admin client stays with a coordinator that it has once found.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    (asked,) = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S).values()
    coordinator = asked.result(DEADLINE_S).coordinator
    assert coordinator is not None
    return coordinator.id


def _add(crowd: Crowd, kind: str) -> Member:
    library, settings = KINDS[kind]
    return crowd.add(program(library), **settings)


def _wait_in_sync(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values()
        if all(len(each.isrs) == 3 for each in found):
            return
        assert time.monotonic() < deadline, f"{topic} does not get in sync"
        time.sleep(0.1)


@pytest.mark.parametrize("kind", SHORT)
def test_members_and_the_coordinator_die(cluster: Cluster, topic: str, kind: str):
    with Crowd(cluster.bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        for _ in range(MEMBERS):
            _add(crowd, kind)
        crowd.wait_shared()
        writer = Writer(cluster.bootstrap, topic, PARTITIONS)
        time.sleep(0.5)
        crowd.members[0].kill()
        _add(crowd, kind)
        crowd.wait_shared()
        killed = _coordinator(cluster, crowd.group)
        cluster.kill(killed)
        _add(crowd, kind)
        crowd.wait_shared()
        assert _coordinator(cluster, crowd.group) != killed
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
        cluster.start(killed)
    assert summary.lost == 0, "a coordinator that dies takes nobody's partitions away"


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_broker_is_restarted(cluster: Cluster, admin: AdminClient, topic: str, kind: str):
    library, _ = KINDS[kind]
    with Crowd(cluster.bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        for _ in range(MEMBERS):
            _add(crowd, kind)
        crowd.wait_shared()
        writer = Writer(cluster.bootstrap, topic, PARTITIONS)
        for broker_id in cluster.broker_ids:
            cluster.restart(broker_id)
            crowd.alive[0].kill()
            _add(crowd, kind)
            _wait_in_sync(admin, topic)
        killed = _coordinator(cluster, crowd.group)
        cluster.kill(killed)
        closed = crowd.alive[0]
        closed.ask_to_close()
        closed.wait_closed()
        crowd.wait_shared()
        cluster.start(killed)
        crowd.wait_read(writer.finish())
        crowd.close()
        crowd.check(writer.written, may_reread=library == "platformatic")
