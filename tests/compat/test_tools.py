"""Apache Kafka's own commands on three brokers: quorum, reassignment, elections, features, and a broker that dies.

They ask one broker or another, which passes on to the active controller what only it decides. What Kafka 4.3 prints of
its own cluster is what is expected here.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker, Cluster
from tests.nodes import NODE_IDS, Nodes

from .clients import DEADLINE_S
from .clients.confluent import Confluent
from .clients.corpus import small

pytestmark = pytest.mark.long

BROKERS = (1, 2, 3)
CONTROLLERS = (1001, 1002, 1003)
REASSIGN = "reassign.ReassignPartitionsCommand"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=len(BROKERS)) as running:
        yield running


@pytest.fixture
def create(cluster: Cluster, fresh_name: Callable[[], str]) -> Callable[..., str]:
    """create([1, 2], [2, 3]) makes a topic whose first partition is on brokers 1 and 2."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create_topic(*replicas: list[int], **settings: str) -> str:
        name = fresh_name()
        new = NewTopic(name, len(replicas), replica_assignment=list(replicas), config=settings)
        (created,) = admin.create_topics([new]).values()
        created.result(DEADLINE_S)
        return name

    return create_topic


def _at(cluster: Cluster, broker: int) -> tuple[str, str]:
    return "--bootstrap-server", cluster.bootstrap.split(",")[broker - 1]


def describe_topic(kafka_tool: Tool, at: tuple[str, str], topic: str, *options: str) -> dict[int, dict[str, str]]:
    """What is printed of each partition, by the tool's own words."""
    lines = kafka_tool("TopicCommand", *at, "--describe", "--topic", topic, *options).splitlines()
    parts = [[part.partition(": ") for part in line.strip().split("\t")] for line in lines if line.startswith("\t")]
    partitions = [{name.strip(" :"): value.strip() for name, _, value in line} for line in parts]
    return {int(found["Partition"]): found for found in partitions}


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _status(kafka_tool: Tool, at: tuple[str, str]) -> dict[str, str]:
    lines = kafka_tool("MetadataQuorumCommand", *at, "describe", "--status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _ids(listed: str) -> list[int]:
    return sorted(node["id"] for node in json.loads(listed))


@pytest.mark.parametrize("broker", BROKERS)
def test_the_quorum_is_described(cluster: Cluster, kafka_tool: Tool, broker: int):
    at = _at(cluster, broker)
    status = _status(kafka_tool, at)
    assert int(status["LeaderId"]) in CONTROLLERS
    assert _ids(status["CurrentVoters"]) == list(CONTROLLERS)
    _wait(lambda: _ids(_status(kafka_tool, at)["CurrentObservers"]) == list(BROKERS))
    listed = kafka_tool("MetadataQuorumCommand", *at, "describe", "--replication").splitlines()[1:]
    roles = {int(line.split()[0]): line.split()[-1] for line in listed}
    assert {node: role for node, role in roles.items() if node in BROKERS} == dict.fromkeys(BROKERS, "Observer")
    assert sorted(roles[node] for node in CONTROLLERS) == ["Follower", "Follower", "Leader"]
    endpoints = [voter["endpoints"] for voter in json.loads(status["CurrentVoters"])]
    assert all(re.fullmatch(r"CONTROLLER://127\.0\.0\.1:\d+", address) for (address,) in endpoints), endpoints


def test_a_quorum_of_one_is_where_its_clients_are(kafka_tool: Tool):
    with Broker() as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        status = _status(kafka_tool, at)
        (voter,) = json.loads(status["CurrentVoters"])
        assert status["LeaderId"] == str(voter["id"])
        assert voter["endpoints"] == [f"PLAINTEXT://{broker.bootstrap}"]
        listed = kafka_tool("MetadataQuorumCommand", *at, "describe", "--replication").splitlines()[1:]
        assert [(line.split()[0], line.split()[-1]) for line in listed] == [(str(voter["id"]), "Leader")]


def test_a_controller_is_asked(cluster: Cluster, kafka_tool: Tool):
    (voter, *_) = json.loads(_status(kafka_tool, _at(cluster, 1))["CurrentVoters"])
    at = ("--bootstrap-controller", voter["endpoints"][0].removeprefix("CONTROLLER://"))
    assert _ids(_status(kafka_tool, at)["CurrentVoters"]) == list(CONTROLLERS)
    listed = kafka_tool("ClusterTool", "list-endpoints", *at)
    assert re.findall(r"^(\d+) .* controller", listed, re.MULTILINE) == [str(node) for node in CONTROLLERS]
    assert kafka_tool("ClusterTool", "cluster-id", *at) == kafka_tool("ClusterTool", "cluster-id", *_at(cluster, 2))
    assert "Feature: kraft.version" in kafka_tool("FeatureCommand", *at, "describe")


def test_a_voter_leaves_and_returns(cluster: Cluster, kafka_tool: Tool, tmp_path: Path):
    at = _at(cluster, 1)
    status = _status(kafka_tool, at)
    (voter,) = (voter for voter in json.loads(status["CurrentVoters"]) if str(voter["id"]) == status["LeaderId"])
    voter_id, directory_id = str(voter["id"]), voter["directoryId"]
    named = ("--controller-id", voter_id, "--controller-directory-id")
    told = kafka_tool("MetadataQuorumCommand", *at, "remove-controller", *named, "A" * 21 + "Q", fails=True)
    assert "VoterNotFoundException" in told
    kafka_tool("MetadataQuorumCommand", *at, "remove-controller", *named, directory_id)
    remaining = [node for node in CONTROLLERS if node != voter["id"]]
    _wait(lambda: _status(kafka_tool, at)["LeaderId"] in map(str, remaining))
    assert _ids(_status(kafka_tool, _at(cluster, 2))["CurrentVoters"]) == remaining
    settings = {
        "process.roles": "controller",
        "node.id": voter_id,
        "listeners": voter["endpoints"][0],
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": voter["endpoints"][0].removeprefix("CONTROLLER://"),
        # The tool reads the folder's id there.
        "log.dirs": f"{cluster.data}/{cluster.name_of(voter['id'])}",
    }
    config = tmp_path / "controller.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    adding = ("MetadataQuorumCommand", *at, "--command-config", str(config), "add-controller")
    assert f"Added controller {voter_id} with directory id {directory_id}" in kafka_tool(*adding)
    assert _ids(_status(kafka_tool, _at(cluster, 3))["CurrentVoters"]) == list(CONTROLLERS)
    assert "DuplicateVoterException" in kafka_tool(*adding, fails=True)


def test_features_are_told_raised_and_lowered(cluster: Cluster, kafka_tool: Tool):
    at = _at(cluster, 2)
    expected = {
        "eligible.leader.replicas.version": "1",
        "group.version": "1",
        "kraft.version": "1",
        "metadata.version": "4.3-IV0",
        "share.version": "1",
        "streams.version": "1",
        "tailrace.mirror.version": "0",
        "transaction.version": "2",
    }

    def levels() -> dict[str, str]:
        told = kafka_tool("FeatureCommand", *_at(cluster, 3), "describe")
        return dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", told))

    assert levels() == expected
    lower = ("FeatureCommand", *at, "downgrade", "--feature", "transaction.version=1")
    assert "can be downgraded to 1" in kafka_tool(*lower, "--dry-run")
    assert levels() == expected
    kafka_tool(*lower)
    _wait(lambda: levels() == expected | {"transaction.version": "1"})
    kafka_tool("FeatureCommand", *at, "upgrade", "--feature", "transaction.version=2")
    _wait(lambda: levels() == expected)
    # Groups of both kinds come with the release.
    for off in ("share.version=0", "streams.version=0"):
        kafka_tool("FeatureCommand", *at, "downgrade", "--feature", off)
    _wait(lambda: levels() == expected | {"share.version": "0", "streams.version": "0"})
    kafka_tool("FeatureCommand", *at, "upgrade", "--release-version", "4.3")
    _wait(lambda: levels() == expected)
    for refused in ("group.version=9", "nonsense.version=1"):
        kafka_tool("FeatureCommand", *at, "upgrade", "--feature", refused, fails=True)
    kafka_tool("FeatureCommand", *at, "downgrade", "--feature", "kraft.version=0", fails=True)


def plan_reassignment(
    folder: Path, topic: str, replicas: list[list[int]], log_dirs: list[list[str]] | None = None
) -> str:
    partitions = [
        {"topic": topic, "partition": index, "replicas": each} | ({"log_dirs": log_dirs[index]} if log_dirs else {})
        for index, each in enumerate(replicas)
    ]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_a_reassignment_is_throttled_listed_cancelled_and_done(
    cluster: Cluster, kafka_tool: Tool, create: Callable[..., str], tmp_path: Path
):
    topic = create([1, 2], [2, 3])
    Confluent().produce(cluster.bootstrap, topic, small(3_000, size_bytes=1_000))
    plan = ("--reassignment-json-file", plan_reassignment(tmp_path, topic, [[3, 2], [2, 3]]))
    told = kafka_tool(REASSIGN, *_at(cluster, 3), "--execute", *plan, "--throttle", "100000")
    assert "The inter-broker throttle limit was set to 100000 B/s" in told
    listed = kafka_tool(REASSIGN, *_at(cluster, 1), "--list")
    assert f"{topic}-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    found = describe_topic(kafka_tool, _at(cluster, 2), topic)[0]
    assert (found["Replicas"], found["Adding Replicas"], found["Removing Replicas"]) == ("3,2,1", "3", "1")
    told = kafka_tool(REASSIGN, *_at(cluster, 2), "--cancel", *plan)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in told
    assert "No partition reassignments found" in kafka_tool(REASSIGN, *_at(cluster, 3), "--list")
    assert set(describe_topic(kafka_tool, _at(cluster, 1), topic)[0]["Replicas"].split(",")) == {"1", "2"}

    kafka_tool(REASSIGN, *_at(cluster, 1), "--execute", *plan, "--throttle", "50000000")
    verify = (REASSIGN, *_at(cluster, 3), "--verify", *plan)
    _wait(lambda: f"Reassignment of partition {topic}-0 is completed." in kafka_tool(*verify))
    found = describe_topic(kafka_tool, _at(cluster, 1), topic)[0]
    assert (found["Replicas"], set(found["Isr"].split(","))) == ("3,2", {"2", "3"})
    described = kafka_tool("TopicCommand", *_at(cluster, 2), "--describe", "--topic", topic)
    assert "throttled" not in described, "verify takes the throttles away"
    assert len(Confluent().read(cluster.bootstrap, topic, 3_000)) == 3_000


def test_the_preferred_leader_is_elected(
    cluster: Cluster, kafka_tool: Tool, create: Callable[..., str], tmp_path: Path
):
    topic = create([1, 2], [2, 1])
    plan = plan_reassignment(tmp_path, topic, [[2, 1], [2, 1]])
    kafka_tool(REASSIGN, *_at(cluster, 1), "--execute", "--reassignment-json-file", plan)
    of_partition = ("--topic", topic, "--partition", "0")
    elect = ("LeaderElectionCommand", *_at(cluster, 3), "--election-type", "preferred")
    assert "Successfully completed leader election (PREFERRED)" in kafka_tool(*elect, *of_partition)
    assert "Valid replica already elected" in kafka_tool(*elect, *of_partition)
    assert [each["Leader"] for each in describe_topic(kafka_tool, _at(cluster, 1), topic).values()] == ["2", "2"]
    told = kafka_tool(*elect, "--topic", f"{topic}-missing", "--partition", "0", fails=True)
    assert "UnknownTopicOrPartitionException" in told


def test_a_dead_broker_is_seen_unregistered_and_back(cluster: Cluster, kafka_tool: Tool, create: Callable[..., str]):
    topic = create([3, 1, 2], [1, 2, 3])
    alone = create([3], **{"min.insync.replicas": "1"})
    at = _at(cluster, 1)
    fenced = ("ClusterTool", "list-endpoints", *at, "--include-fenced-brokers")
    cluster.kill(3)
    _wait(lambda: re.search(r"^3 .* fenced ", kafka_tool(*fenced), re.MULTILINE) is not None)
    found = describe_topic(kafka_tool, _at(cluster, 2), topic, "--under-replicated-partitions")
    assert [(each["Leader"], each["Isr"]) for each in found.values()] == [("1", "1,2"), ("1", "1,2")]
    assert describe_topic(kafka_tool, at, topic, "--unavailable-partitions") == {}
    (unavailable,) = describe_topic(kafka_tool, at, alone, "--unavailable-partitions").values()
    assert (unavailable["Leader"], unavailable["Elr"]) == ("none", "3")
    elect = ("LeaderElectionCommand", *at, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "PreferredLeaderNotAvailableException" in kafka_tool(*elect, fails=True)

    assert "Broker 3 is no longer registered." in kafka_tool("ClusterTool", "unregister", "--id", "3", *at)
    assert "BrokerIdNotRegistered" in kafka_tool("ClusterTool", "unregister", "--id", "3", *at, fails=True)
    assert not re.search(r"^3 ", kafka_tool(*fenced), re.MULTILINE)
    cluster.start(3)
    _wait(lambda: describe_topic(kafka_tool, _at(cluster, 3), topic, "--under-replicated-partitions") == {})
    assert re.search(r"^3 .* unfenced ", kafka_tool(*fenced), re.MULTILINE)
    _wait(lambda: "Successfully completed" in kafka_tool(*elect))


def test_a_replica_moves_to_another_data_folder(kafka_tool: Tool, tmp_path: Path, fresh_name: Callable[[], str]):
    folders = {node: [tmp_path / f"disk-{node}-{each}" for each in "ab"] for node in NODE_IDS}

    with Nodes(tmp_path, lambda node: {"log.dirs": ",".join(map(str, folders[node]))}) as nodes:
        at = ("--bootstrap-server", nodes.address(2))
        topic = fresh_name()
        kafka_tool("TopicCommand", *at, "--create", "--topic", topic, "--replica-assignment", "1:2:3")
        Confluent().produce(nodes.bootstrap, topic, small(2_000, size_bytes=500))

        def places() -> dict[int, str]:
            told = kafka_tool("LogDirsCommand", *at, "--describe", "--topic-list", topic)
            return {
                broker["broker"]: directory["logDir"]
                for broker in json.loads(told.splitlines()[-1])["brokers"]
                for directory in broker["logDirs"]
                for partition in directory["partitions"]
                if not partition["isFuture"]
            }

        before = places()
        wanted = {
            node: next(str(folder) for folder in folders[node] if str(folder) != before[node]) for node in NODE_IDS
        }
        plan = ("--reassignment-json-file", plan_reassignment(tmp_path, topic, [[1, 2, 3]], [list(wanted.values())]))
        kafka_tool(REASSIGN, *at, "--execute", *plan)
        done = [f"Reassignment of replica {topic}-0-{node} completed successfully." for node in NODE_IDS]
        _wait(lambda: set(done) <= set(kafka_tool(REASSIGN, *at, "--verify", *plan).splitlines()))
        assert places() == wanted
        assert [record.as_sent for record in Confluent().read(nodes.bootstrap, topic, 2_000)] == small(
            2_000, size_bytes=500
        )
        plan = (
            "--reassignment-json-file",
            plan_reassignment(tmp_path, topic, [[1, 2, 3]], [["/nowhere", "any", "any"]]),
        )
        told = kafka_tool(REASSIGN, *at, "--execute", *plan, "--timeout", "2000", fails=True)
        assert "LogDirNotFoundException" in told


def test_the_metadata_of_every_node_is_read_from_its_files(kafka_tool: Tool, tmp_path: Path):
    """Log and snapshots: the records that Kafka's controller would write, in batches that its reader takes."""
    settings = {"metadata.log.max.record.bytes.between.snapshots": 2_000}
    with Cluster(settings, brokers=len(BROKERS), data=tmp_path / "data") as cluster:
        at = _at(cluster, 1)
        for index in range(8):
            kafka_tool("TopicCommand", *at, "--create", "--topic", f"topic-{index}", "--partitions", "6")
        kafka_tool("TopicCommand", *at, "--delete", "--topic", "topic-0")
        names = list(cluster.nodes)
        cluster.stop()
    for name in names:
        folder = tmp_path / "data" / name / "__cluster_metadata-0"
        segments, snapshots = sorted(folder.glob("*.log")), sorted(folder.glob("*.checkpoint"))
        assert snapshots, name
        for path in (*segments, snapshots[-1]):
            dump = kafka_tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path))
            batches = [line for line in dump.splitlines() if line.startswith("baseOffset")]
            assert batches
            assert all("isvalid: true" in batch for batch in batches)
            records = [json.loads(each) for each in re.findall(r" payload: (.*)$", dump, re.MULTILINE)]
        assert all(word in dump for word in ("SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"))
        # A snapshot is of a moment, and not the last one.
        topics = {record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"}
        assert len(topics) > 3
        assert topics <= {f"topic-{index}" for index in range(8)}
        assert sum(record["type"] == "PARTITION_RECORD" for record in records) == 6 * len(topics)
        assert sorted(r["data"]["brokerId"] for r in records if r["type"] == "REGISTER_BROKER_RECORD") == [1, 2, 3]
