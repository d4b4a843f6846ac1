"""CreatePartitions, and where partitions are placed."""

from collections import Counter

import pytest

from tailrace.controller.image import BrokerImage
from tailrace.controller.partitions.placement import decide_placement
from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, NodeId
from tailrace.model.machines import parse_machine_brokers
from tailrace.wire.apis.admin import CreatePartitionsRequest, CreatePartitionsResponse
from tests.unit.controller.cluster import Cluster, topic

Asked = CreatePartitionsRequest.CreatePartitionsTopic
Assignment = CreatePartitionsRequest.CreatePartitionsAssignment


def add(cluster: Cluster, *asked: Asked, validate_only: bool = False) -> list[tuple[str, int, str | None]]:
    request = CreatePartitionsRequest(topics=list(asked), validate_only=validate_only)
    results = cluster.do(request, CreatePartitionsResponse).results
    return [(result.name, result.error_code, result.error_message) for result in results]


def counted(name: str, count: int, *replicas: list[int]) -> Asked:
    return Asked(name=name, count=count, assignments=[Assignment(broker_ids=nodes) for nodes in replicas] or None)


def test_partitions_are_added_at_the_end() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(topic("orders", 2, 2))
    before = cluster.image.topics["orders"]
    assert add(cluster, counted("orders", 5)) == [("orders", ErrorCode.NONE, None)]
    after = cluster.image.topics["orders"]
    assert list(after.partitions) == [0, 1, 2, 3, 4]
    assert all(len(partition.replicas) == 2 for partition in after.partitions.values())
    assert after.partitions[0] is before.partitions[0]
    assert list(before.partitions) == [0, 1], "an image that is held does not change"
    assert cluster.image.partition_count == 5


def test_an_assignment_for_the_new_ones() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(topic("orders", 1, 2))
    assert add(cluster, counted("orders", 3, [2, 3], [3, 1])) == [("orders", ErrorCode.NONE, None)]
    partitions = cluster.image.topics["orders"].partitions
    assert (partitions[1].replicas, partitions[2].replicas) == ((2, 3), (3, 1))


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster()
    cluster.create(topic("orders"))
    before = cluster.image
    assert add(cluster, counted("orders", 5), validate_only=True) == [("orders", ErrorCode.NONE, None)]
    assert cluster.image is before


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (counted("none", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        (counted("orders", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            counted("orders", 1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic orders currently has 2 partition(s); 1 would not be an increase.",
        ),
        (counted("orders", -1), ErrorCode.INVALID_PARTITIONS, "would not be an increase."),
        (
            counted("orders", 4, [1]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (counted("orders", 3, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "which have 1 replica(s)."),
        (counted("orders", 3, [7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 7"),
        (counted("orders", 2_000_000_000), ErrorCode.POLICY_VIOLATION, "max.partitions.per.request (10000)"),
    ],
)
def test_partitions_that_cannot_be(asked: Asked, code: ErrorCode, message: str) -> None:
    cluster = Cluster(brokers=2)
    cluster.create(topic("orders", 2, 1))
    before = cluster.image
    ((name, error_code, error_message),) = add(cluster, asked)
    assert (name, error_code) == (asked.name, code)
    assert message in (error_message or "")
    assert cluster.image is before


def test_a_topic_given_twice_is_changed_never() -> None:
    cluster = Cluster()
    cluster.create(topic("orders"))
    results = add(cluster, counted("orders", 2), counted("orders", 3))
    assert results == [("orders", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]


def test_the_bound_holds_for_all_topics_of_a_request() -> None:
    cluster = Cluster(max_partitions_per_request=5)
    cluster.create(topic("a"), topic("b"))
    results = add(cluster, counted("a", 4), counted("b", 4))
    assert [code for _, code, _ in results] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


def broker(
    node_id: int, *, fenced: bool = False, stopping: bool = False, rack: str | None = None, hosts: tuple[str, ...] = ()
) -> BrokerImage:
    endpoints = tuple(Endpoint(f"L{number}", host, 9092) for number, host in enumerate(hosts))
    return BrokerImage(NodeId(node_id), node_id, ZERO_UUID, endpoints, rack, fenced, stopping, ())


def test_leaders_and_followers_are_spread_evenly() -> None:
    brokers = [broker(node_id) for node_id in (1, 2, 3, 4)]
    placed = decide_placement(brokers, partitions=range(48), replication_factor=3, start_index=2)
    assert placed[0][0] == 3
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == {1: 12, 2: 12, 3: 12, 4: 12}
    # When a broker dies its first followers lead: they are not all the same.
    heirs = Counter(replicas[1] for replicas in placed if replicas[0] == 1)
    assert heirs == {2: 4, 3: 4, 4: 4}


def test_a_single_broker_holds_everything() -> None:
    placed = decide_placement([broker(7)], partitions=range(3), replication_factor=1, start_index=0)
    assert placed == [(7,), (7,), (7,)]


def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [broker(1), broker(2, fenced=True), broker(3), broker(4, stopping=True)]
    two = decide_placement(brokers, partitions=range(2), replication_factor=2, start_index=0)
    assert two == [(1, 3), (3, 1)]
    three = decide_placement(brokers, partitions=range(2), replication_factor=3, start_index=0)
    assert three == [(1, 3, 2), (3, 1, 2)]
    with pytest.raises(KafkaError, match="only 3 broker"):
        decide_placement(brokers, partitions=range(1), replication_factor=4, start_index=0)
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        decide_placement([broker(1, fenced=True)], partitions=range(1), replication_factor=1, start_index=0)


@pytest.mark.parametrize(("racks", "factor"), [(3, 3), (3, 2), (2, 3), (5, 3)])
def test_replicas_lie_in_as_many_racks_as_there_are(racks: int, factor: int) -> None:
    brokers = [broker(node_id, rack=f"rack-{node_id % racks}") for node_id in range(1, 3 * racks + 1)]
    rack_of = {each.node_id: each.rack for each in brokers}
    count = 6 * len(brokers) * (len(brokers) - 1)
    placed = decide_placement(brokers, partitions=range(count), replication_factor=factor, start_index=5)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({rack_of[node] for node in replicas}) == min(factor, racks)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {count // len(brokers)}
    held = Counter(node for replicas in placed for node in replicas)
    assert max(held.values()) <= 1.15 * min(held.values())


@pytest.mark.parametrize(
    ("machines", "racks", "factor"), [(3, 1, 3), (3, 1, 2), (2, 1, 3), (5, 1, 3), (6, 3, 3), (4, 2, 3)]
)
def test_replicas_lie_on_as_many_machines_as_there_are(machines: int, racks: int, factor: int) -> None:
    """Several brokers on each; a machine stands in one rack."""
    machine_of = {node_id: node_id % machines for node_id in range(1, 4 * machines + 1)}
    brokers = [
        broker(node_id, rack=f"rack-{machine % racks}", hosts=(f"machine-{machine}", "balancer"))
        for node_id, machine in machine_of.items()
    ]
    count = 6 * len(brokers) * (len(brokers) - 1)
    placed = decide_placement(brokers, partitions=range(count), replication_factor=factor, start_index=5)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({machine_of[node] for node in replicas}) == min(factor, machines)
        assert len({machine_of[node] % racks for node in replicas}) == min(factor, racks)
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {count // len(brokers)}
    held = Counter(node for replicas in placed for node in replicas)
    assert max(held.values()) <= 1.15 * min(held.values())


def test_machines_may_be_named_by_hand() -> None:
    brokers = [broker(node_id, hosts=(f"container-{node_id}",)) for node_id in (1, 2, 3, 4)]
    named = [parse_machine_brokers("one:1-2"), parse_machine_brokers("two:3"), parse_machine_brokers("two:4")]
    placed = decide_placement(brokers, partitions=range(48), replication_factor=2, start_index=0, machines=named)
    assert all({node <= 2 for node in replicas} == {True, False} for replicas in placed)


def test_topics_do_not_all_start_on_the_same_broker() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(*(topic(f"topic-{number}", 1, 2) for number in range(60)))
    leaders = Counter(each.partitions[0].leader for each in cluster.image.topics.values())
    assert len(leaders) == 3
    assert min(leaders.values()) >= 10


def test_a_partition_on_a_fenced_broker_starts_without_it_in_sync() -> None:
    cluster = Cluster(brokers=2)
    cluster.register(3, unfence=False)
    cluster.create(topic("orders", 1, 3))
    partition = cluster.partition("orders")
    assert partition.replicas[2] == 3
    assert set(partition.isr) == {1, 2}
