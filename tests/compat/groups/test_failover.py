"""Eight members over 24 partitions on three brokers, under load: members die and come, the coordinator dies, every
broker is restarted. Nothing is lost, no partition has two owners, and only what was not committed is read twice."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import LOW_LATENCY, Cluster
from tests.compat.clients import DEADLINE_S
from tests.compat.conftest import maven_jars

from .conftest import QUICK
from .crowd import Crowd, Member
from .test_members import KINDS, program

MEMBERS = 8
PARTITIONS = 24
SHORT = ("librdkafka cooperative-sticky", "librdkafka consumer")
# @platformatic/kafka ends its process when the broker that it needs is away.
LONG = [kind for kind, (library, _) in KINDS.items() if library != "platformatic"]
# Java 3.9 with the older protocol alone: its early form of the newer one asks a coordinator that has died for ever.
JAVA = {
    "java 4.3": ("java", {}),
    "java 4.3 consumer": ("java", {"group.protocol": "consumer"}),
    "java 3.9": ("java old", {}),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({**LOW_LATENCY, **QUICK}, brokers=3) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})


@pytest.fixture
def topic(cluster: Cluster, admin: AdminClient, fresh_name: Callable[[], str]) -> str:
    """On all three brokers, also if the test before has failed while one was down."""
    for name, facts in cluster.nodes.items():
        if facts["process_id"] is None:
            cluster.start(name)
    name = fresh_name()
    (created,) = admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values()
    created.result(DEADLINE_S)
    return name


def _coordinator(cluster: Cluster, group: str) -> int:
    # A client of its own: librdkafka's admin client stays with a coordinator that it has once found.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (asked,) = admin.describe_consumer_groups([group], request_timeout=DEADLINE_S).values()
        try:
            coordinator = asked.result(DEADLINE_S).coordinator
        except KafkaException as error:
            # While a coordinator moves nobody may be it for a moment.
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            continue
        assert coordinator is not None
        return coordinator.id


@pytest.fixture
def add(request: pytest.FixtureRequest) -> Callable[[Crowd], Member]:
    """Adds a member of the kind that the test is about."""
    library, settings = {**KINDS, **JAVA}[request.param]
    if library == "java":
        command = request.getfixturevalue("compile_java")("GroupMember")
    elif library == "java old":
        class_path = maven_jars("tests/compat/java/old/pom.xml")
        command = request.getfixturevalue("compile_java")("GroupMember", class_path)
    else:
        command = program(library)
    return lambda crowd: crowd.add(command, **settings)


def _wait_in_sync(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values()
        if all(len(each.isrs) == 3 for each in found):
            return
        assert time.monotonic() < deadline, f"{topic} does not get in sync"
        time.sleep(0.1)


@pytest.mark.parametrize("add", SHORT, indirect=True)
def test_members_and_the_coordinator_die(cluster: Cluster, topic: str, add: Callable[[Crowd], Member]):
    with Crowd(cluster.bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        for _ in range(MEMBERS):
            add(crowd)
        crowd.wait_shared()
        writer = crowd.write()
        time.sleep(0.5)
        killed = _coordinator(cluster, crowd.group)
        crowd.members[0].kill()
        cluster.kill(killed)
        for _ in range(2):
            add(crowd)
        crowd.wait_shared()
        assert _coordinator(cluster, crowd.group) != killed
        crowd.wait_read(writer.finish())
        crowd.close()
        summary = crowd.check(writer.written)
        cluster.start(killed)
    assert summary.lost == 0, "a coordinator that dies takes nobody's partitions away"


@pytest.mark.long
@pytest.mark.parametrize("add", [*LONG, *JAVA], indirect=True)
def test_every_broker_is_restarted(cluster: Cluster, admin: AdminClient, topic: str, add: Callable[[Crowd], Member]):
    with Crowd(cluster.bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        for _ in range(MEMBERS):
            add(crowd)
        crowd.wait_shared()
        writer = crowd.write()
        for broker_id in cluster.broker_ids:
            cluster.restart(broker_id)
            crowd.alive[0].kill()
            add(crowd)
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
        crowd.check(writer.written)
