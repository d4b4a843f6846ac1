"""Damage beside a broker of Apache Kafka: ours takes a range from it, and gives it the lead."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes import Nodes, free_ports

from .clients.confluent import Confluent
from .clients.corpus import small
from .test_kraft import BROKER, Kafka, _wait
from .test_tools import describe_topic

pytestmark = pytest.mark.long

Tool = Callable[..., str]
SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.initial.task.delay.ms": "200",
    "log.scrub.interval.ms": "1000",
    "log.scrub.max.bytes.per.second": str(1 << 30),
}
RECORDS = small(4000, size_bytes=1000)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("nodes"), lambda _: SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(kafka_class_path: str, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    (port,) = free_ports(1)
    of_broker = {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    node = Kafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), nodes, BROKER, of_broker | SETTINGS)
    yield node
    node.close()


def flip(path: Path) -> bytes:
    """Gives what the file was."""
    before = path.read_bytes()
    changed = bytearray(before)
    changed[300_000] ^= 0x10
    with path.open("r+b") as file:
        file.write(changed)
    return before


@pytest.mark.parametrize("leader", ["kafka", "ours"])
def test_a_range_comes_from_kafkas_broker(
    nodes: Nodes, kafka: Kafka, kafka_tool: Tool, fresh_name: Callable[[], str], leader: str
):
    topic, at = fresh_name(), ("--bootstrap-server", nodes.address(2))
    _wait(lambda: f"\n{BROKER} " in kafka_tool("ClusterTool", "list-endpoints", *at))
    replicas = f"{BROKER}:2" if leader == "kafka" else f"2:{BROKER}"
    kafka_tool("TopicCommand", *at, "--create", "--topic", topic, "--replica-assignment", replicas)
    Confluent().produce(nodes.bootstrap, topic, RECORDS)
    time.sleep(2.5)  # Closed segments are synced within a second.
    path = nodes.data(2) / f"{topic}-0" / f"{0:020d}.log"
    sound = flip(path)
    _wait(lambda: path.exists() and path.read_bytes() == sound)
    (found,) = describe_topic(kafka_tool, at, topic).values()
    assert found["Leader"] == str(BROKER)
    assert [record.as_sent for record in Confluent().read(nodes.bootstrap, topic, len(RECORDS))] == RECORDS
