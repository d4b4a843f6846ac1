"""Rights as Apache Kafka's own tool gives them and librdkafka's users notice them, on three nodes of ours; and a broker
of Apache Kafka among them, which reads our ACLs and hands its own clients' changes to our controllers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.model.config import STANDARD_AUTHORIZER
from tests.nodes import Nodes, free_ports

from .clients import DEADLINE_S
from .test_kraft import BROKER, Kafka

pytestmark = pytest.mark.long

Tool = Callable[..., str]
ACLS = "AclCommand"
PREFIXED = ("--resource-pattern-type", "prefixed")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
RULES = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Nodes, and whoever administers them, do not log in here.
    "super.users": "User:ANONYMOUS",
}
LISTENERS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": JAAS,
}


class GuardedNodes(Nodes):
    listeners = ("PLAINTEXT", "CONTROLLER", "INSIDE")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with GuardedNodes(tmp_path_factory.mktemp("nodes"), lambda _: RULES | LISTENERS) as running:
        yield running


@pytest.fixture
def acls(nodes: Nodes, kafka_tool: Tool) -> Tool:
    return lambda *words: kafka_tool(ACLS, "--bootstrap-server", nodes.address(1), *words)


@pytest.fixture
def topic(nodes: Nodes, fresh_name: Callable[[], str]) -> str:
    name = fresh_name()
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(DEADLINE_S)
    return name


def as_alice(nodes: Nodes, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": nodes.bound(2, "INSIDE"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
        **more,
    }


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def produce(settings: dict[str, Any], topic: str) -> int | None:
    """The code with which a record is refused; None if it is not."""
    told: list[KafkaError | None] = []
    producer = Producer(settings | {"message.timeout.ms": 5000})
    producer.produce(topic, b"x", on_delivery=lambda error, _message: told.append(error))
    producer.flush(DEADLINE_S)
    (error,) = told
    return None if error is None else error.code()


def consume(settings: dict[str, Any], topic: str) -> bytes | int:
    """The first record, or the code with which it is refused."""
    consumer = Consumer(settings | {"group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None:
                error = message.error()
                return message.value() if error is None else error.code()
    finally:
        consumer.close()
    raise AssertionError("nothing came")


def test_what_kafkas_tool_gives_and_takes(nodes: Nodes, acls: Tool, topic: str):
    alice = as_alice(nodes)
    assert topic not in AdminClient(alice).list_topics(timeout=DEADLINE_S).topics
    assert produce(alice, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    acls("--add", "--allow-principal", "User:alice", "--producer", "--topic", topic)
    told = acls("--list", "--topic", topic)
    assert all(f"operation={operation}" in told for operation in ("WRITE", "DESCRIBE", "CREATE"))
    wait_for(lambda: topic in AdminClient(alice).list_topics(timeout=DEADLINE_S).topics)
    wait_for(lambda: produce(alice, topic) is None)
    assert consume(alice, topic) == KafkaError.GROUP_AUTHORIZATION_FAILED
    acls("--add", "--allow-principal", "User:alice", "--consumer", "--topic", topic, "--group", f"of-{topic}")
    wait_for(lambda: consume(alice, topic) == b"x")
    acls("--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", topic)
    wait_for(lambda: produce(alice, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_somebody_without_rights_changes_no_acl(nodes: Nodes, acls: Tool, kafka_tool: Tool, tmp_path: Path):
    config = tmp_path / "alice.properties"
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    mine = ("--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "*", "--cluster")
    at = ("--bootstrap-server", nodes.bound(3, "INSIDE"), "--command-config", str(config))
    told = kafka_tool(ACLS, *at, *mine, fails=True)
    assert "ClusterAuthorizationException" in told
    assert "User:alice" not in acls("--list", "--cluster")


def test_a_running_producer_is_stopped_by_a_denial(nodes: Nodes, acls: Tool, topic: str):
    acls("--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", topic)
    wait_for(lambda: produce(as_alice(nodes), topic) is None)
    codes: list[int | None] = []
    producer = Producer(as_alice(nodes, **{"linger.ms": 0}))

    def note(error: KafkaError | None, _message: object) -> None:
        codes.append(None if error is None else error.code())

    def send() -> bool:
        producer.produce(topic, b"y", on_delivery=note)
        producer.poll(0.05)
        return codes[-1:] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]

    for _ in range(20):
        send()
    producer.flush(DEADLINE_S)
    assert codes == [None] * 20
    acls("--add", "--deny-principal", "User:alice", "--operation", "Write", "--topic", topic[:-1], *PREFIXED)
    wait_for(send)
    producer.flush(DEADLINE_S)


@pytest.fixture
def start_kafka(nodes: Nodes, kafka_class_path: str, tmp_path: Path) -> Iterator[Callable[..., Kafka]]:
    """A broker of Apache Kafka in the cluster of our nodes."""
    started: list[Kafka] = []

    def start(**settings: str) -> Kafka:
        of_kafka = {name.replace("_", "."): value for name, value in settings.items()}
        started.append(Kafka(kafka_class_path, tmp_path, nodes, BROKER, RULES | LISTENERS | of_kafka))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_broker_of_apache_kafka_has_the_same_rights(
    nodes: Nodes, acls: Tool, kafka_tool: Tool, start_kafka: Callable[..., Kafka], topic: str
):
    plain, inside = free_ports(2)
    start_kafka(process_roles="broker", listeners=f"PLAINTEXT://127.0.0.1:{plain},INSIDE://127.0.0.1:{inside}")
    there = as_alice(nodes) | {"bootstrap.servers": f"127.0.0.1:{inside}"}

    def seen(settings: dict[str, Any]) -> bool:
        try:
            return topic in AdminClient(settings).list_topics(timeout=2).topics
        except KafkaException:
            return False

    acls("--add", "--allow-principal", "User:alice", "--operation", "Describe", "--topic", topic[:-1], *PREFIXED)
    wait_for(lambda: seen(there))
    at = ("--bootstrap-server", f"127.0.0.1:{plain}")
    assert f"name={topic[:-1]}" in kafka_tool(ACLS, *at, "--list", "--principal", "User:alice")
    # Handed on by Kafka's broker in an Envelope, decided by our controller.
    kafka_tool(ACLS, *at, "--add", "--deny-principal", "User:alice", "--operation", "Describe", "--topic", topic)
    wait_for(lambda: not seen(as_alice(nodes)) and not seen(there))
    assert "permissionType=DENY" in acls("--list", "--topic", topic)
