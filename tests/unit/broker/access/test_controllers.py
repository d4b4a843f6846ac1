"""Controllers judge who asks them, and the principal inside an Envelope; simulated clusters."""

from __future__ import annotations

from typing import Any

from tailrace.model.acls import Kind, Operation
from tailrace.model.config import STANDARD_AUTHORIZER
from tailrace.model.errors import ErrorCode
from tailrace.model.security import Principal
from tailrace.wire.apis.admin import CreateTopicsRequest, DescribeClusterRequest
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.quorum import EnvelopeRequest, VoteRequest
from tailrace.wire.apis.security import CreateAclsRequest
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.principals import encode_principal
from tests.unit.broker.access.secured_world import allow, creation_of
from tests.unit.broker.cluster_world import ClusterWorld, Peer, running_cluster, simulated

# Nobody logs in here: whoever is not told to be somebody is a node of the cluster, or its administrator.
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
ALICE = Principal("User", "alice")
VERSION = 7


async def connect_as(world: ClusterWorld, node_id: int, principal: Principal, listener: str = "PLAINTEXT") -> Peer:
    broker = world.nodes[node_id].broker
    assert broker is not None

    def connections() -> set[Any]:
        return {each for acceptor in broker.acceptors for each in acceptor.connections}

    before = connections()
    peer = await world.connect(node_id, listener)
    new: set[Any] = set()

    def is_accepted() -> bool:
        new.update(each for each in connections() - before if each.peer.startswith("client"))
        return bool(new)

    await world.wait(is_accepted, "the connection is accepted")
    for connection in new:
        connection.principal = principal
    return peer


def creation(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000)


def envelope(request: CreateTopicsRequest, principal: Principal) -> EnvelopeRequest:
    frame = b"".join(bytes(part) for part in encode_request(request.api_key, VERSION, 77, "client", request))
    return EnvelopeRequest(
        request_data=frame[4:], request_principal=encode_principal(principal), client_host_address=bytes([10, 0, 0, 9])
    )


def codes_inside(answer: Any) -> list[int]:
    _, inner = decode_response(creation("").api_key, VERSION, answer.response_data)
    return [topic.error_code for topic in inner.topics]


async def add(peer: Peer, *acls: Any) -> None:
    answer = await peer.request(CreateAclsRequest(creations=list(map(creation_of, acls))), 3)
    assert not any(each.error_code for each in answer.results)


@simulated
async def test_who_is_inside_an_envelope_is_judged():
    async with running_cluster(settings=SETTINGS) as world:
        node_id = world.active.node_id
        broker = await world.connect(node_id, "CONTROLLER")
        assert codes_inside(await broker.request(envelope(creation("a"), ALICE), 0)) == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        assert "a" not in world.active.image.topics
        await add(broker, allow(Operation.CREATE, Kind.TOPIC, "a", host="10.0.0.9"))
        assert codes_inside(await broker.request(envelope(creation("a"), ALICE), 0)) == [0]


@simulated
async def test_only_nodes_may_send_envelopes_and_speak_for_themselves():
    async with running_cluster(settings=SETTINGS) as world:
        node_id = world.active.node_id
        alice = await connect_as(world, node_id, ALICE, "CONTROLLER")
        answer = await alice.request(envelope(creation("a"), Principal("User", "ANONYMOUS")), 0)
        assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        assert (await alice.request(VoteRequest(), 0)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        described = DescribeClusterRequest(endpoint_type=2)
        assert (await alice.request(described, 1)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        root = await world.connect(node_id, "CONTROLLER")
        await add(root, allow(Operation.CLUSTER_ACTION, Kind.CLUSTER), allow(Operation.ALTER, Kind.CLUSTER))
        assert codes_inside(await alice.request(envelope(creation("a"), Principal("User", "ANONYMOUS")), 0)) == [0]
        assert (await alice.request(described, 1)).error_code == ErrorCode.NONE


@simulated
async def test_a_change_is_in_force_on_all_brokers():
    async with running_cluster(settings=SETTINGS) as world:
        root = await world.connect(1)
        await root.request(creation("a"), VERSION)
        askers = [await connect_as(world, node_id, ALICE) for node_id in world.nodes]
        asked = MetadataRequest(topics=None)
        assert [len((await asker.request(asked, 9)).topics) for asker in askers] == [0] * len(askers)
        await add(root, allow(Operation.DESCRIBE, Kind.TOPIC, "a"))
        await world.wait(lambda: all(broker.image.acls for broker in world.running), "all have heard of it")
        assert [len((await asker.request(asked, 9)).topics) for asker in askers] == [1] * len(askers)


@simulated
async def test_what_a_broker_hands_on_is_judged_there_too():
    async with running_cluster(settings=SETTINGS) as world:
        other = next(broker.node_id for broker in world.running if not broker.quorum.is_active)
        alice = await connect_as(world, other, ALICE)
        refused = await alice.request(creation("a"), VERSION)
        assert [topic.error_code for topic in refused.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await add(await world.connect(other), allow(Operation.CREATE, Kind.TOPIC, "a"))
        await world.wait(lambda: all(broker.image.acls for broker in world.running), "all have heard of it")
        created = await alice.request(creation("a"), VERSION)
        (topic,) = created.topics
        assert (topic.error_code, topic.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert (topic.num_partitions, topic.configs) == (-1, [])
