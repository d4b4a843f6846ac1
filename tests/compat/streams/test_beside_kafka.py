"""The group of an application goes from a coordinator of Apache Kafka to one of ours and back, while the application
works: each reads what the other has stored."""

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


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("nodes"), lambda _: SETTINGS) as running:
        yield running


@pytest.fixture
def kafka(kafka_class_path: str, nodes: Nodes, tmp_path: Path) -> Iterator[Kafka]:
    (port,) = free_ports(1)
    settings = {"process.roles": "broker", "listeners": f"PLAINTEXT://127.0.0.1:{port}", **SETTINGS}
    started = Kafka(kafka_class_path, tmp_path, nodes, KAFKA, settings)
    yield started
    started.close()


def test_coordinators_take_turns(
    nodes: Nodes,
    kafka: Kafka,
    kafka_tool: Tool,
    word_count: list[str],
    fresh_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    at = ("--bootstrap-server", nodes.address(2))
    topics = Topics(nodes.bootstrap, fresh_name(), replicas=3)
    topics.write(50)
    _wait(lambda: f"\n{KAFKA} " in kafka_tool("ClusterTool", "list-endpoints", *at))
    with Application(word_count, topics, "streams", tmp_path / "one") as one:
        one.wait_tasks(4)

        def coordinate(node_id: int) -> None:
            """The group's records are led by this node."""
            replicas = [node_id, *(each for each in (KAFKA, OURS, 2, 3) if each != node_id)][:3]
            plan = ("--reassignment-json-file", plan_reassignment(tmp_path, OFFSETS, [replicas]))
            kafka_tool("reassign.ReassignPartitionsCommand", *at, "--execute", *plan)
            _wait(
                lambda: (
                    "is completed" in kafka_tool("reassign.ReassignPartitionsCommand", *at, "--verify", *plan)
                    and str(node_id) in describe_topic(kafka_tool, at, OFFSETS)[0]["Isr"].split(",")
                )
            )
            elect = ("--election-type", "preferred", "--topic", OFFSETS, "--partition", "0")
            kafka_tool("LeaderElectionCommand", *at, *elect)
            assert describe_topic(kafka_tool, at, OFFSETS)[0]["Leader"] == str(node_id)

        def describe() -> str:
            told = kafka_tool(
                "streams.StreamsGroupCommand", *at, "--describe", "--group", topics.application, "--state"
            )
            return " ".join(told.split())

        with Application(word_count, topics, "streams", tmp_path / "two") as two:
            for node_id in (KAFKA, OURS, KAFKA):
                coordinate(node_id)
                topics.write(50)
                one.wait_tasks(2)
                two.wait_tasks(2)
                _wait(lambda: "Stable" in describe())
                assert topics.wait_counted() == topics.expected()
            two.kill()
            one.wait_tasks(4)
        coordinate(OURS)
        topics.write(50)
        assert topics.wait_counted() == topics.expected()


def test_their_command_reads_our_records(
    nodes: Nodes, kafka_class_path: str, word_count: list[str], fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    topics = Topics(nodes.bootstrap, fresh_name(), replicas=3)
    topics.write(50)
    with Application(word_count, topics, "streams", tmp_path) as application:
        application.wait_tasks(4)
    (segment, *_) = sorted(nodes.data(OURS).glob(f"**/{OFFSETS}-0/*.log"))
    command = ["java", "-cp", kafka_class_path, "kafka.tools.DumpLogSegments"]
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
        assert f'key: {{"type":"{kind}"' in done.stdout, kind


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)
