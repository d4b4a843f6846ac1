"""A node of Apache Kafka among ours: whoever leads the metadata quorum, the other follows, and brokers obey both.

Kafka's controller is an observer first, then a voter among ours, then the only one: it elects leaders for our brokers.
Then the quorum goes back to our nodes. Kafka's broker holds replicas beside ours, as follower and as leader.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.broker.quorum.damage.synced_end import store_synced_end
from tailrace.broker.quorum.state_file import read_quorum_state, write_quorum_state
from tailrace.real.disk import RealDisk
from tests.nodes import NODE_IDS, Nodes, free_ports

from .clients import DEADLINE_S
from .clients.confluent import Confluent
from .clients.corpus import small
from .conftest import JAVA
from .test_tools import describe_topic, plan_reassignment

pytestmark = pytest.mark.long

Tool = Callable[..., str]
REASSIGN = "reassign.ReassignPartitionsCommand"
CONTROLLER, BROKER = 4, 5


class Kafka:
    """A node of Apache Kafka in the cluster of our nodes."""

    def __init__(self, class_path: str, folder: Path, nodes: Nodes, node_id: int, settings: dict[str, str]) -> None:
        self.data = folder / f"kafka-{node_id}"
        self.config = folder / f"kafka-{node_id}.properties"
        common = {
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": nodes.controllers,
            "log.dirs": os.fspath(self.data),
            "num.network.threads": "1",
            "num.io.threads": "2",
            "log.cleaner.dedupe.buffer.size": "2000000",
        }
        self.config.write_text("".join(f"{name}={value}\n" for name, value in (common | settings).items()))
        java = [*JAVA, "-cp", class_path]
        format_ = ["format", "-t", nodes.cluster_id, "-c", self.config]
        if settings["process.roles"] == "controller":
            format_.append("--no-initial-controllers")
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", *format_], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        self.log = folder / f"kafka-{node_id}.log"
        self._command = [*java, "kafka.Kafka", self.config]
        self.start()

    def start(self) -> None:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    @property
    def directory_id(self) -> str:
        return re.findall(r"directory.id=(\S+)", (self.data / "meta.properties").read_text())[0]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """They keep a short log: whoever joins gets a snapshot first. They could have remote storage."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "2000",
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.url": f"file://{tmp_path_factory.mktemp('store')}",
    }
    with Nodes(tmp_path_factory.mktemp("nodes"), lambda _: settings) as running:
        yield running


@pytest.fixture
def add_kafka(kafka_class_path: str, nodes: Nodes, tmp_path: Path) -> Iterator[Callable[..., Kafka]]:
    """Another node, of Apache Kafka, for the length of a test."""
    started: list[Kafka] = []

    def add(node_id: int, **settings: str) -> Kafka:
        of_kafka = {name.replace("_", "."): value for name, value in settings.items()}
        started.append(Kafka(kafka_class_path, tmp_path, nodes, node_id, of_kafka))
        return started[-1]

    yield add
    for each in started:
        each.close()


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 3 * DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_the_quorum_moves_to_kafka_and_back(
    nodes: Nodes, add_kafka: Callable[..., Kafka], kafka_tool: Tool, tmp_path: Path, fresh_name: Callable[[], str]
):
    at = ("--bootstrap-server", nodes.address(2))

    def quorum() -> tuple[int, set[int], set[int]]:
        told = kafka_tool("MetadataQuorumCommand", *at, "describe", "--status")
        voters, _, observers = told.partition("CurrentVoters:")[2].partition("CurrentObservers:")
        leader = int(re.findall(r"LeaderId:\s+(-?\d+)", told)[0])
        ids = [{int(found) for found in re.findall(r'"id": (\d+)', each)} for each in (voters, observers)]
        return leader, ids[0], ids[1]

    def remove(node_id: int, directory_id: str) -> None:
        named = ("--controller-id", str(node_id), "--controller-directory-id", directory_id)
        kafka_tool("MetadataQuorumCommand", *at, "remove-controller", *named)

    def check(topic: str) -> None:
        """The active controller creates a topic, and the brokers follow it."""
        kafka_tool("TopicCommand", *at, "--create", "--topic", topic, "--replica-assignment", "1:2:3")
        assert Confluent().produce(nodes.bootstrap, topic, small(100), idempotent=True) == list(range(100))

    before, during, after = fresh_name(), fresh_name(), fresh_name()
    check(before)
    kafka_tool("TopicCommand", *at, "--create", "--topic", fresh_name(), "--partitions", "50")
    (port,) = free_ports(1)
    kafka = add_kafka(CONTROLLER, process_roles="controller", listeners=f"CONTROLLER://127.0.0.1:{port}")
    _wait(lambda: CONTROLLER in quorum()[2])
    # Its own would come much later: this one is the leader's.
    _wait(lambda: bool(list((kafka.data / "__cluster_metadata-0").glob("*.checkpoint"))))
    kafka_tool("MetadataQuorumCommand", *at, "--command-config", str(kafka.config), "add-controller")
    for node_id in NODE_IDS:
        remove(node_id, nodes.directory_ids[node_id])
        _wait(lambda removed=node_id: quorum()[0] not in (-1, removed))
    _wait(lambda: quorum() == (CONTROLLER, {CONTROLLER}, set(NODE_IDS)))
    check(during)
    assert Confluent().produce(nodes.bootstrap, before, small(100)) == list(range(100, 200))
    for node_id in NODE_IDS:
        config = tmp_path / "ours.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in nodes.settings(node_id).items()))
        kafka_tool("MetadataQuorumCommand", *at, "--command-config", str(config), "add-controller")
    remove(CONTROLLER, kafka.directory_id)
    _wait(lambda: quorum()[0] in NODE_IDS)
    kafka.close()
    check(after)
    assert quorum()[1] == set(NODE_IDS)
    for topic in (before, during, after):
        (found,) = describe_topic(kafka_tool, at, topic).values()
        assert (found["Leader"], found["Isr"]) == ("1", "1,2,3")


def test_kafka_follows_and_leads_beside_our_brokers(
    nodes: Nodes, add_kafka: Callable[..., Kafka], kafka_tool: Tool, tmp_path: Path, fresh_name: Callable[[], str]
):
    at, topic = ("--bootstrap-server", nodes.address(3)), fresh_name()
    kafka_tool("TopicCommand", *at, "--create", "--topic", topic, "--replica-assignment", "1:2:3")
    Confluent().produce(nodes.bootstrap, topic, small(1_000), codec="zstd", idempotent=True)
    (port,) = free_ports(1)
    kafka = add_kafka(BROKER, process_roles="broker", listeners=f"PLAINTEXT://127.0.0.1:{port}")
    _wait(lambda: f"\n{BROKER} " in kafka_tool("ClusterTool", "list-endpoints", *at))

    plan = ("--reassignment-json-file", plan_reassignment(tmp_path, topic, [[BROKER, 2, 3]]))
    kafka_tool(REASSIGN, *at, "--execute", *plan)
    _wait(lambda: f"Reassignment of partition {topic}-0 is completed." in kafka_tool(REASSIGN, *at, "--verify", *plan))
    elect = ("LeaderElectionCommand", *at, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    kafka_tool(*elect)
    (found,) = describe_topic(kafka_tool, at, topic).values()
    assert (found["Leader"], set(found["Isr"].split(","))) == (str(BROKER), {str(BROKER), "2", "3"})
    Confluent().produce(nodes.bootstrap, topic, small(1_000), codec="lz4", idempotent=True)
    # Everything that was acknowledged by Kafka is with us.
    kafka.close()
    _wait(lambda: describe_topic(kafka_tool, at, topic)[0]["Leader"] in ("2", "3"))
    assert [record.as_sent for record in Confluent().read(nodes.bootstrap, topic, 2_000)] == small(1_000) * 2
    kafka_tool("ClusterTool", "unregister", "--id", str(BROKER), *at)


def test_there_is_no_remote_storage_with_a_broker_of_kafka(
    nodes: Nodes, add_kafka: Callable[..., Kafka], kafka_tool: Tool, fresh_name: Callable[[], str]
):
    """Its own is of another format."""
    at, topic = ("--bootstrap-server", nodes.address(1)), fresh_name()
    (port,) = free_ports(1)
    kafka = add_kafka(
        BROKER,
        process_roles="broker",
        listeners=f"PLAINTEXT://127.0.0.1:{port}",
        initial_broker_registration_timeout_ms="20000",  # Then it gives up.
    )
    _wait(lambda: f"\n{BROKER} " in kafka_tool("ClusterTool", "list-endpoints", *at))
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})

    def create() -> None:
        config = {"remote.storage.enable": "true"}
        admin.create_topics([NewTopic(topic, 1, 3, config=config)])[topic].result(DEADLINE_S)

    with pytest.raises(KafkaException, match=f"these cannot: {BROKER}. They are nodes of Apache Kafka") as refused:
        create()
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    kafka.close()
    kafka_tool("ClusterTool", "unregister", "--id", str(BROKER), *at)
    create()
    kafka.start()
    _wait(lambda: kafka.process.poll() is not None)
    assert f"\n{BROKER} " not in kafka_tool("ClusterTool", "list-endpoints", *at)


def test_kafka_passes_over_what_we_keep_beside_a_metadata_log(nodes: Nodes, add_kafka: Callable[..., Kafka]):
    """How far it was synced, a damaged one under another name, and what quorum-state says of a voter that lost it."""
    (port,) = free_ports(1)
    kafka = add_kafka(CONTROLLER + 1, process_roles="controller", listeners=f"CONTROLLER://127.0.0.1:{port}")
    folder = kafka.data / "__cluster_metadata-0"
    _wait(lambda: (folder / "quorum-state").exists() and any(each.stat().st_size for each in folder.glob("*.log")))
    kafka.close()
    shutil.copytree(folder, kafka.data / f"{folder.name}.{'0123456789abcdef' * 2}-stray")
    store_synced_end(RealDisk(), os.fspath(kafka.data), 7)
    state = read_quorum_state(RealDisk(), os.fspath(folder))
    assert state is not None
    write_quorum_state(RealDisk(), os.fspath(folder), state._replace(must_catch_up=True))
    assert "must" in (folder / "quorum-state").read_text().lower()
    before = sum(each.stat().st_size for each in folder.glob("*.log"))
    kafka.start()
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    for created in admin.create_topics([NewTopic("beside", 3, 1)]).values():
        created.result(DEADLINE_S)
    _wait(lambda: sum(each.stat().st_size for each in folder.glob("*.log")) > before)
    assert kafka.process.poll() is None
