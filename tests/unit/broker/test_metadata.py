"""Metadata, DescribeCluster and DescribeTopicPartitions, in every version."""

import asyncio
import errno

import pytest

from tailrace.broker.handlers import metadata
from tailrace.broker.handlers.metadata import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID, NodeId
from tailrace.wire.apis.admin import DescribeClusterRequest, DescribeTopicPartitionsRequest
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.quorum import BrokerHeartbeatRequest, DescribeQuorumRequest
from tests.unit.broker.world import Peer, World, batch, create_topic, delete_topic, produce, produced, running

Asked = MetadataRequest.MetadataRequestTopic
Cursor = DescribeTopicPartitionsRequest.Cursor
NOT_ASKED = -(1 << 31)


def named(*names: str, **fields: bool) -> MetadataRequest:
    return MetadataRequest(topics=[Asked(name=name) for name in names], **fields)


def topics_of(response: MetadataResponse) -> dict[str | None, MetadataResponse.MetadataResponseTopic]:
    return {topic.name: topic for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
async def test_all_topics_in_every_version(version: int) -> None:
    async with running({"broker.rack": "left"}) as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "orders", 2)
        everything = MetadataRequest(topics=[] if version == 0 else None)
        response = await peer.request(everything, version)
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", world.broker.port)
        assert broker.rack == ("left" if version >= 1 else None)
        assert response.cluster_id == (world.broker.image.cluster_id if version >= 2 else None)
        assert response.controller_id == (1 if version >= 1 else -1)
        (topic,) = response.topics
        assert (topic.name, topic.error_code, topic.is_internal) == ("orders", ErrorCode.NONE, False)
        assert topic.topic_id == (topic_id if version >= 10 else ZERO_UUID)
        for index, partition in enumerate(topic.partitions):
            assert (partition.partition_index, partition.error_code, partition.leader_id) == (index, 0, 1)
            assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
            assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert (topic.topic_authorized_operations, response.cluster_authorized_operations) == (NOT_ASKED, NOT_ASKED)


async def test_a_large_answer_is_put_together_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        peer, neighbour = await world.connect(), await world.connect()
        for name in ("a", "b"):
            await create_topic(peer, name, partitions=30)
        request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        at_once = await peer.request(request, 12)
        monkeypatch.setattr(metadata, "_AT_ONCE_MAX", 50, raising=False)
        monkeypatch.setattr(metadata, "_SLICE", 1, raising=False)
        order: list[str] = []

        async def ask(name: str, peer: Peer, asked: MetadataRequest) -> MetadataResponse:
            answer = await peer.request(asked, 12)
            order.append(name)
            return answer

        slow, _ = await asyncio.gather(ask("large", peer, request), ask("small", neighbour, named("a")))
        assert slow == at_once
        assert order == ["small", "large"]
        by_name = await peer.request(named("a", "none", "b", allow_auto_topic_creation=False), 12)
        assert [(topic.name, topic.error_code) for topic in by_name.topics] == [
            ("a", 0),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("b", 0),
        ]


async def test_no_topics_are_asked_for_by_an_empty_list() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        for version in range(1, 14):
            response = await peer.request(MetadataRequest(topics=[]), version)
            assert response.topics == []
            assert len(response.brokers) == 1


async def test_a_client_is_told_of_fenced_brokers_rather_than_of_none() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        epoch = world.broker.image.brokers[NodeId(1)].epoch
        await world.broker.quorum.submit_local(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, want_fence=True))
        assert world.broker.image.brokers[NodeId(1)].fenced
        response = await peer.request(named("orders"), 12)
        assert [(node.node_id, node.port) for node in response.brokers] == [(1, world.broker.port)]
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_authorized_operations_are_all_there_are() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "orders")
        request = MetadataRequest(
            topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        response = await peer.request(request, 9)
        # The numbers that Kafka's own broker gives without an authorizer.
        assert response.topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS == 3576
        assert response.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS == 8096


async def test_topics_by_id() -> None:
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "orders")
        request = MetadataRequest(
            topics=[Asked(topic_id=topic_id, name=None), Asked(topic_id=b"?" * 16, name=None), Asked(name="other")]
        )
        response = await peer.request(request, 12)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
            ("orders", topic_id, ErrorCode.NONE),
            (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert "other" not in world.broker.image.topics


async def test_ids_do_not_work_before_version_12() -> None:
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "orders")
        response = await peer.request(MetadataRequest(topics=[Asked(topic_id=topic_id, name="orders")]), 10)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("orders", ErrorCode.INVALID_REQUEST)]


async def test_a_missing_topic_is_created() -> None:
    async with running({"num.partitions": "3"}) as world:
        peer = await world.connect()
        response = await peer.request(named("orders", "bad name", "orders"), 13)
        topics = topics_of(response)
        assert len(response.topics) == 2
        assert len(topics["orders"].partitions) == 3
        assert topics["orders"].topic_id == world.broker.image.topics["orders"].id
        assert topics["bad name"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        answer = await peer.request(produce("orders", batch(b"x"), partition=2), 9)
        assert produced(answer).error_code == ErrorCode.NONE, "it can be used at once"


@pytest.mark.parametrize(
    ("settings", "allowed", "version"),
    [({"auto.create.topics.enable": "false"}, True, 13), ({}, False, 13), ({}, False, 4)],
)
async def test_creation_must_be_allowed_on_both_sides(settings: dict[str, str], allowed: bool, version: int) -> None:
    async with running(settings) as world:
        peer = await world.connect()
        response = await peer.request(named("orders", "a b", allow_auto_topic_creation=allowed), version)
        assert [topic.error_code for topic in response.topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        assert world.broker.image.topics == {}


async def test_versions_before_4_always_allow_creation() -> None:
    async with running() as world:
        peer = await world.connect()
        response = await peer.request(named("orders"), 1)
        assert response.topics[0].error_code == ErrorCode.NONE


async def test_internal_topics_without_a_coordinator_are_not_created_by_asking() -> None:
    async with running() as world:
        peer = await world.connect()
        response = await peer.request(named("__transaction_state", "__cluster_metadata"), 13)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert [topic.is_internal for topic in response.topics] == [True, False]


async def test_the_topic_of_offsets_is_created_with_settings_of_its_own() -> None:
    settings = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "7",
        "offsets.topic.segment.bytes": "1048577",
        "num.partitions": "3",
    }
    async with running(settings) as world:
        peer = await world.connect()
        response = await peer.request(named("__consumer_offsets"), 13)
        (topic,) = response.topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (ErrorCode.NONE, True, 7)
        assert world.broker.image.config(2, "__consumer_offsets") == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1048577",
        }


async def test_a_creation_that_is_impossible_says_why() -> None:
    async with running({"default.replication.factor": "3"}) as world:
        peer = await world.connect()
        response = await peer.request(named("orders"), 13)
        assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_creation_that_collides_says_so() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "a.b")
        response = await peer.request(named("a_b"), 13)
        assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_creation_that_fails_on_a_full_disk_is_tried_again() -> None:
    async with running() as world:
        peer = await world.connect()
        world.disk.fail("append", "*__cluster_metadata*", error=errno.ENOSPC)
        response = await peer.request(named("orders"), 13)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.disk.heal()
        response = await peer.request(named("orders"), 13)
        assert response.topics[0].error_code == ErrorCode.NONE


async def test_two_clients_that_miss_the_same_topic() -> None:
    async with running() as world:
        peers = [await world.connect() for _ in range(5)]
        for peer in peers:
            peer.send(named("orders"), 13)
        ids = {(await peer.receive()).topics[0].topic_id for peer in peers}
        assert ids == {world.broker.image.topics["orders"].id}


async def test_a_quorum_of_one_is_where_its_clients_are() -> None:
    """It has no listener for other voters; kafka-metadata-quorum shows an address of each voter all the same."""
    async with running() as world:
        peer = await world.connect()
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
        (node,) = (await peer.request(DescribeQuorumRequest(topics=[topic]), 2)).nodes
        listeners = [(each.name, each.host, each.port) for each in node.listeners]
        assert (node.node_id, listeners) == (1, [("PLAINTEXT", "127.0.0.1", world.broker.port)])


async def test_a_deleted_topic_is_told_to_be_gone_before_it_is_created_again() -> None:
    async with running() as world:
        peer = await world.connect()
        first_id = await create_topic(peer, "orders")
        await delete_topic(peer, "orders")
        topics = topics_of(await peer.request(named("orders", "another"), 13))
        assert topics["orders"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topics["another"].error_code == ErrorCode.NONE
        async with asyncio.timeout(5):
            while (await peer.request(named("orders"), 13)).topics[0].error_code:
                await asyncio.sleep(0.01)
        assert world.broker.image.topics["orders"].id != first_id


async def test_each_listener_tells_its_own_address() -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"}
    async with running(
        {**settings, "advertised.listeners": "PLAINTEXT://one.example:1,OTHER://two.example:2"}
    ) as world:
        for listener, expected in zip(world.broker.listeners, [("one.example", 1), ("two.example", 2)], strict=True):
            peer = await _connect_to(world, listener.port)
            (broker,) = (await peer.request(MetadataRequest(topics=[]), 13)).brokers
            assert (broker.host, broker.port) == expected


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
async def test_a_leader_that_the_listener_does_not_reach(version: int, code: ErrorCode) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "advertised.listeners": "PLAINTEXT://one.example:1",
    }
    async with running(settings) as world:
        await create_topic(await world.connect(), "orders")
        peer = await _connect_to(world, world.broker.listeners[1].port)
        response = await peer.request(named("orders"), version)
        assert response.brokers == []
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (code, -1)
        assert partition.offline_replicas == []


async def _connect_to(world: World, port: int) -> Peer:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    world.peers.append(peer)
    return peer


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster(version: int) -> None:
    async with running() as world:
        peer = await world.connect()
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await peer.request(request, version)
        assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, world.broker.image.cluster_id)
        assert (response.controller_id, response.cluster_authorized_operations) == (1, ALL_CLUSTER_OPERATIONS)
        (broker,) = response.brokers
        assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", world.broker.port)
        assert not broker.is_fenced


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_describe_cluster_has_brokers_alone(endpoint_type: int, code: ErrorCode) -> None:
    async with running() as world:
        peer = await world.connect()
        response = await peer.request(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
        assert (response.error_code, response.brokers) == (code, [])


async def describe(peer: Peer, *names: str, limit: int = 2000, cursor: Cursor | None = None):
    asked = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=limit, cursor=cursor)
    response = await peer.request(request, 0)
    found = [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics]
    return found, response


async def test_describe_topic_partitions_page_by_page() -> None:
    async with running() as world:
        peer = await world.connect()
        for name, partitions in (("a", 2), ("b", 3), ("c", 1)):
            await create_topic(peer, name, partitions)
        pages, cursor = [], None
        for _ in range(10):
            found, response = await describe(peer, limit=2, cursor=cursor)
            pages.append(found)
            if response.next_cursor is None:
                break
            cursor = Cursor(
                topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
            )
        assert pages == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]


async def test_describe_topic_partitions_by_name() -> None:
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "b", 2)
        found, response = await describe(peer, "z", "b", "a b")
        assert found == [("a b", []), ("b", [0, 1]), ("z", [])]
        assert [topic.error_code for topic in response.topics] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        described = response.topics[1]
        assert described.topic_id == topic_id
        assert described.topic_authorized_operations == ALL_TOPIC_OPERATIONS
        (partition, _) = described.partitions
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert response.next_cursor is None


async def test_describe_topic_partitions_is_bounded_by_the_broker() -> None:
    async with running({"max.request.partition.size.limit": "2"}) as world:
        peer = await world.connect()
        await create_topic(peer, "a", 5)
        found, response = await describe(peer, limit=1000)
        assert found == [("a", [0, 1])]
        assert response.next_cursor.partition_index == 2
        found, _ = await describe(peer, limit=0)
        assert found == [("a", [0])]


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="z", partition_index=0), Cursor(topic_name="a", partition_index=-1)]
)
async def test_describe_topic_partitions_refuses_a_wrong_cursor(cursor: Cursor) -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "a")
        _, response = await describe(peer, "a", cursor=cursor)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


async def test_a_cursor_at_a_topic_that_is_gone() -> None:
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "c")
        found, _ = await describe(peer, cursor=Cursor(topic_name="b", partition_index=7))
        assert found == [("c", [0])]
