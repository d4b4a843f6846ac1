"""The group of an application goes from a coordinator of ours to one of Apache Kafka and back, while the application
works: each goes on with what the other has stored."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.streams.application import DEADLINE_S, QUICK, Application, Topics
from tests.compat.test_kraft import Kafka
from tests.compat.test_tools import describe_topic, plan_reassignment
from tests.nodes import Nodes, free_ports

pytestmark = pytest.mark.long

Tool = Callable[..., str]
KAFKA, OURS = 5, 1
OFFSETS = "__consumer_offsets"
SETTINGS = {**{name: str(value) for name, value in QUICK.items()}, "offsets.topic.num.partitions": "1"}
# Who gets which tasks is the question here, and not transactions.
AT_LEAST_ONCE = ["processing.guarantee=at_least_once"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("nodes"), lambda _: SETTINGS) as running:
        yield running


class Turns:
    """Which node leads the partition with the records of all groups."""

    def __init__(self, nodes: Nodes, kafka_tool: Tool, folder: Path) -> None:
        self._at = ("--bootstrap-server", nodes.address(2))
        self._tool = kafka_tool
        self._folder = folder

    def wait_joined(self) -> None:
        _wait(lambda: f"\n{KAFKA} " in self._tool("ClusterTool", "list-endpoints", *self._at))

    def coordinate(self, node_id: int) -> None:
        move = ("reassign.ReassignPartitionsCommand", *self._at)
        replicas = [node_id, *(each for each in (KAFKA, OURS, 2, 3) if each != node_id)][:3]
        plan = ("--reassignment-json-file", plan_reassignment(self._folder, OFFSETS, [replicas]))
        self._tool(*move, "--execute", *plan)
        _wait(lambda: "is completed" in self._tool(*move, "--verify", *plan))
        elect = ("--election-type", "preferred", "--topic", OFFSETS, "--partition", "0")
        self._tool("LeaderElectionCommand", *self._at, *elect)
        assert describe_topic(self._tool, self._at, OFFSETS)[0]["Leader"] == str(node_id)

    def members(self, group_id: str) -> list[str]:
        """As the coordinator tells them: member, process and tasks. Epochs are left out: each kind of coordinator has a
        hash of its own of the topics, and begins with a new one."""
        command = ("streams.StreamsGroupCommand", *self._at, "--describe", "--group", group_id, "--members")
        told = self._tool(*command, "--verbose")
        lines = [line.split() for line in told.splitlines() if line.startswith(group_id)]
        return sorted(" ".join((line[3], *line[6:])) for line in lines)


@pytest.fixture
def turns(kafka_class_path: str, nodes: Nodes, kafka_tool: Tool, tmp_path: Path) -> Iterator[Turns]:
    """With a broker of Apache Kafka in the cluster."""
    (port,) = free_ports(1)
    settings = {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{port}", **SETTINGS}
    kafka = Kafka(kafka_class_path, tmp_path, nodes, KAFKA, settings)
    found = Turns(nodes, kafka_tool, tmp_path)
    found.wait_joined()
    yield found
    kafka.close()


def test_coordinators_take_turns(
    nodes: Nodes, turns: Turns, word_count: list[str], fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topics = Topics(nodes.bootstrap, fresh_name(), replicas=3)
    topics.write(50)
    with (
        Application(word_count, topics, "streams", tmp_path / "one", settings=AT_LEAST_ONCE) as one,
        Application(word_count, topics, "streams", tmp_path / "two", settings=AT_LEAST_ONCE) as two,
    ):
        for node_id in (KAFKA, OURS, KAFKA, OURS):
            one.wait_tasks(2)
            two.wait_tasks(2)
            before = turns.members(topics.application)
            assert len(before) == 2
            turns.coordinate(node_id)
            topics.write(50)
            counts = topics.wait_counted(min_count=topics.word_count)
            assert all(counts[word][-1] >= last[-1] for word, last in topics.expected().items())
            assert turns.members(topics.application) == before, "nobody joined again, and no task moved"
        two.kill()
        one.wait_tasks(4)
        turns.coordinate(KAFKA)
        two.start()
        one.wait_tasks(2)
        two.wait_tasks(2)


def test_their_command_reads_our_records(
    nodes: Nodes, kafka_class_path: str, word_count: list[str], fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topics = Topics(nodes.bootstrap, fresh_name(), replicas=3)
    topics.write(50)
    with Application(word_count, topics, "streams", tmp_path) as application:
        application.wait_tasks(4)
    (segment, *_) = sorted(nodes.data(OURS).glob(f"**/{OFFSETS}-0/*.log"))
    command = ["java", "-cp", kafka_class_path, "org.apache.kafka.tools.DumpLogSegments"]
    done = subprocess.run(
        [*command, "--offsets-decoder", "--files", os.fspath(segment)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The types of all records of a streams group, by the numbers of their keys.
    for kind in (17, 19, 20, 21, 22, 23):
        assert f'{{"type":"{kind}"' in done.stdout, kind


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)
