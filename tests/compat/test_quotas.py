"""Quotas as Apache Kafka's own tool sets and shows them, and what clients notice of them."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

CONFIGS = "kafka.admin.ConfigCommand"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One of its own: others must not be throttled."""
    with Broker(settings={"quota.window.num": "3", "controller.quota.window.num": "2"}) as running:
        yield running


@pytest.fixture
def configs(broker: Broker, kafka_tool: Tool) -> Tool:
    return lambda *words: kafka_tool(CONFIGS, "--bootstrap-server", broker.bootstrap, *words)


@pytest.fixture
def topic(broker: Broker, fresh_name: Callable[[], str]) -> str:
    name = fresh_name()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE_S)
    return name


USERS = ("--entity-type", "users")
CLIENTS = ("--entity-type", "clients")
IPS = ("--entity-type", "ips")


@pytest.mark.parametrize(
    ("entity", "quota", "told"),
    [
        ((*USERS, "--entity-name", "alice"), "producer_byte_rate", "user-principal 'alice'"),
        ((*USERS, "--entity-default"), "consumer_byte_rate", "the default user-principal"),
        ((*CLIENTS, "--entity-name", "app"), "request_percentage", "client-id 'app'"),
        ((*CLIENTS, "--entity-default"), "controller_mutation_rate", "the default client-id"),
        (
            (*USERS, "--entity-name", "alice", *CLIENTS, "--entity-name", "app"),
            "producer_byte_rate",
            "user-principal 'alice', client-id 'app'",
        ),
        ((*IPS, "--entity-name", "10.1.2.3"), "connection_creation_rate", "ip '10.1.2.3'"),
        ((*IPS, "--entity-default"), "connection_creation_rate", "the default ip"),
    ],
)
def test_kafkas_tool_sets_shows_and_removes_them(configs: Tool, entity: tuple[str, ...], quota: str, told: str) -> None:
    before = configs("--describe", *entity)
    assert quota not in before
    configs("--alter", "--add-config", f"{quota}=7000000", *entity)
    assert f"for {told} are {quota}=7000000.0" in configs("--describe", *entity)
    configs("--alter", "--delete-config", quota, *entity)
    assert configs("--describe", *entity) == before


def test_java_clients_wait_as_they_are_told(
    broker: Broker, configs: Tool, topic: str, compile_java: Callable[..., list[str]]
) -> None:
    """100 KB at 20 KB a second, of which two seconds' worth are free."""
    entity = (*CLIENTS, "--entity-name", "throttled")
    configs("--alter", "--add-config", "producer_byte_rate=20000,consumer_byte_rate=20000", *entity)
    command = [*compile_java("Throttled"), broker.bootstrap, topic, "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S * 3, check=False)
    assert done.returncode == 0, done.stderr
    read, writing_ms, reading_ms, produce_throttle_ms, fetch_throttle_ms = map(int, done.stdout.split())
    assert read == 100
    assert writing_ms > 2500
    assert reading_ms > 2500
    assert produce_throttle_ms > 0
    assert fetch_throttle_ms > 0


def test_librdkafka_tells_of_throttles(broker: Broker, configs: Tool, topic: str) -> None:
    configs("--alter", "--add-config", "producer_byte_rate=20000", *CLIENTS, "--entity-name", "librdkafka")
    throttles: list[float] = []
    failures: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "librdkafka",
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )

    def produce(count: int) -> float:
        began = time.monotonic()
        for _ in range(count):
            producer.produce(topic, bytes(5000), on_delivery=lambda error, _message: error and failures.append(error))
        assert producer.flush(DEADLINE_S) == 0
        return time.monotonic() - began

    # What it sends at once is taken at once; the next waits until the rate is right again.
    produce(20)
    assert max(throttles) > 2
    assert produce(1) > 2
    assert failures == []


def test_changes_of_partitions_are_refused_or_wait(
    broker: Broker, configs: Tool, kafka_tool: Tool, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    """20 are free, then 10 a second. Kafka's own tool is refused. The requests of librdkafka are older: they are done,
    and the next one waits."""
    configs("--alter", "--add-config", "controller_mutation_rate=10", *CLIENTS, "--entity-name", "maker")
    settings = tmp_path / "client.properties"
    settings.write_text("client.id=maker\n")

    def create(name: str, *, fails: bool = False) -> str:
        words = ("--create", "--topic", name, "--partitions", "30", "--command-config", str(settings))
        return kafka_tool("TopicCommand", "--bootstrap-server", broker.bootstrap, *words, fails=fails)

    made, refused = [fresh_name() for _ in range(4)], fresh_name()
    create(made[0])
    assert "The quota controller_mutation_rate=10 is used up" in create(refused, fails=True)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "maker"})
    began = time.monotonic()
    for name in made[1:]:
        admin.create_topics([NewTopic(name, 15, 1)])[name].result(DEADLINE_S)
    assert time.monotonic() - began > 1
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    assert set(made) <= topics.keys()
    assert refused not in topics
