"""The way to the controller: Envelopes, what may be in them, and what becomes of a controller that has moved."""

import asyncio

import pytest

from tailrace import catalogue
from tailrace.broker.cluster.forwarding import Forwarding
from tailrace.broker.context import RequestContext
from tailrace.broker.services import Services
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ANONYMOUS, Principal
from tailrace.sim.cluster import CONTROLLER_PORT
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.apis.quorum import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EnvelopeRequest,
)
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.principals import encode_principal
from tailrace.wire.schema import Message
from tests.unit.broker.cluster_world import running_cluster, simulated

LOCALHOST = bytes([127, 0, 0, 1])
ALICE = Principal("User", "alice")
HERE = __name__

seen: list[RequestContext] = []


def note(_services: Services, context: RequestContext, request: Message) -> Message:
    """A step on the way of a request that looks at where it came from."""
    seen.append(context)
    return request


def envelope(
    request: Message, version: int, *, address: bytes = LOCALHOST, principal: bytes | None = None
) -> EnvelopeRequest:
    frame = b"".join(bytes(part) for part in encode_request(request.api_key, version, 77, "client", request))
    who = encode_principal(ALICE) if principal is None else principal
    return EnvelopeRequest(request_data=frame[4:], request_principal=who, client_host_address=address)


def creation(name: str, factor: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=factor)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000)


@simulated
async def test_what_is_inside_is_answered_in_its_own_version_and_number():
    async with running_cluster("broker,controller") as world:
        peer = await world.connect(1, "CONTROLLER")
        for version in range(2, 8):
            answer = await peer.request(envelope(creation(f"t{version}"), version), 0)
            assert answer.error_code == 0
            correlation_id, inner = decode_response(19, version, answer.response_data)
            assert correlation_id == 77
            assert inner.topics[0].error_code == 0
        answer = await peer.request(envelope(creation("no good"), 7), 0)
        assert decode_response(19, 7, answer.response_data)[1].topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@simulated
async def test_what_may_not_be_inside():
    async with running_cluster("broker,controller") as world:
        peer = await world.connect(1, "CONTROLLER")
        for request, version in (
            (MetadataRequest(topics=[]), 12),
            (BrokerHeartbeatRequest(broker_id=1), 1),
            (envelope(creation("t"), 7), 0),
        ):
            answer = await peer.request(envelope(request, version), 0)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        answer = await peer.request(envelope(creation("t"), 7, address=b"abc"), 0)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        damaged = envelope(creation("t"), 7)
        damaged.request_data = b"\x00\x13\x00\x07"
        assert (await peer.request(damaged, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "t" not in world.running[0].image.topics


@simulated
async def test_who_asked_and_from_where_is_known_inside(monkeypatch):
    seen.clear()
    step = catalogue.CATALOGUE[ApiKey.CREATE_TOPICS]._replace(before=(f"{HERE}.note",))
    monkeypatch.setitem(catalogue.CATALOGUE, ApiKey.CREATE_TOPICS, step)
    async with running_cluster() as world:
        peer = await world.connect(world.active.node_id, "CONTROLLER")
        answer = await peer.request(envelope(creation("t"), 7, address=bytes([10, 0, 0, 9])), 0)
        assert answer.error_code == 0
        assert [(each.principal, each.peer) for each in seen] == [(ALICE, "10.0.0.9:0")]
        seen.clear()
        other = next(broker.node_id for broker in world.running if not broker.quorum.is_active)
        peer = await world.connect(other)
        assert (await peer.request(creation("u"), 7)).topics[0].error_code == 0
        # Once at the broker that was asked, once at the controller; nobody has logged in.
        assert [each.principal for each in seen] == [ANONYMOUS, ANONYMOUS]
        broker = world.nodes[other].broker
        assert broker is not None
        seen[0].principal = ALICE
        await broker.forwarding.forward(seen[0], creation("v"))
        assert seen[-1].principal == ALICE


@simulated
async def test_a_principal_that_cannot_be_read_is_refused():
    async with running_cluster("broker,controller") as world:
        peer = await world.connect(1, "CONTROLLER")
        for principal in (b"", b"\0\1\x05User\x06alice\0\0", b"\0\0\x05User"):
            answer = await peer.request(envelope(creation("t"), 7, principal=principal), 0)
            assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
        assert "t" not in world.running[0].image.topics


@simulated
async def test_a_controller_that_is_not_active_says_so():
    async with running_cluster() as world:
        other = next(broker.node_id for broker in world.running if not broker.quorum.is_active)
        peer = await world.connect(other, "CONTROLLER")
        assert (await peer.request(envelope(creation("t"), 7), 0)).error_code == ErrorCode.NOT_CONTROLLER
        direct = await peer.request(creation("t"), 7)
        assert direct.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        heartbeat = await peer.request(BrokerHeartbeatRequest(broker_id=1), 1)
        assert heartbeat.error_code == ErrorCode.NOT_CONTROLLER


@simulated
async def test_clients_may_ask_any_broker_for_anything_that_the_controller_decides():
    async with running_cluster() as world:
        other = next(broker.node_id for broker in world.running if not broker.quorum.is_active)
        peer = await world.connect(other)
        assert (await peer.request(creation("t", factor=3), 5)).topics[0].error_code == 0
        deletion = await peer.request(DeleteTopicsRequest(topic_names=["t", "none"], timeout_ms=5000), 5)
        assert [each.error_code for each in deletion.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for request, version in (
            (ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000), 2),
            (AlterPartitionReassignmentsRequest(timeout_ms=5000), 1),
            (ListPartitionReassignmentsRequest(timeout_ms=5000), 0),
            (UpdateFeaturesRequest(timeout_ms=5000), 2),
        ):
            answer = await peer.request(request, version)
            assert answer.error_code == 0, (type(request).__name__, answer)
        assert (await peer.request(UnregisterBrokerRequest(broker_id=9), 0)).error_code == (
            ErrorCode.BROKER_ID_NOT_REGISTERED
        )


@simulated
async def test_a_controller_tells_of_controllers_and_a_broker_of_brokers():
    async with running_cluster("controller", "broker") as world:
        await world.wait(lambda: 1 in world.running[0].image.controllers, "the controller has registered")
        peer = await world.connect(1, "CONTROLLER")
        described = await peer.request(DescribeClusterRequest(endpoint_type=2), 1)
        assert [(each.broker_id, each.port) for each in described.brokers] == [(1, CONTROLLER_PORT)]
        assert described.controller_id == 1
        assert (await peer.request(DescribeClusterRequest(endpoint_type=1), 1)).error_code == (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
        )
        peer = await world.connect(2)
        described = await peer.request(DescribeClusterRequest(endpoint_type=1), 1)
        assert [each.broker_id for each in described.brokers] == [2]
        assert (await peer.request(DescribeClusterRequest(endpoint_type=2), 1)).error_code == (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
        )


@simulated
async def test_a_request_waits_for_a_controller_but_not_for_ever():
    async with running_cluster("controller", "broker") as world:
        broker = world.nodes[2].broker
        assert broker is not None
        forwarding = Forwarding(broker.quorum, broker._peers, broker.ports.clock, request_timeout_ms=400)
        request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=broker.broker_epoch)
        assert (await forwarding.ask(request, AllocateProducerIdsResponse)).error_code == 0
        await world.kill(1)
        start_ms = broker.ports.clock.monotonic_ms()
        with pytest.raises(KafkaError) as caught:
            await forwarding.ask(request, AllocateProducerIdsResponse)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert 200 <= broker.ports.clock.monotonic_ms() - start_ms <= 3000
        waiting = asyncio.ensure_future(forwarding.ask(request, AllocateProducerIdsResponse, timeout_ms=10_000))
        await world.start(1)
        assert (await waiting).error_code == 0


@simulated
async def test_what_is_urgent_finds_a_new_controller_before_the_metadata_tells_of_it():
    async with running_cluster("controller", "controller", "controller", "broker") as world:
        broker = world.nodes[4].broker
        assert broker is not None
        old = world.active.node_id
        await broker.quorum.driver.close()  # It hears nothing of the quorum any more.
        await world.kill(old)
        await world.wait(lambda: any(each.quorum.is_active for each in world.running), "another is active")
        assert broker.quorum.leadership.leader_id == old
        request = BrokerHeartbeatRequest(
            broker_id=4, broker_epoch=broker.broker_epoch, current_metadata_offset=broker.image.next_offset - 1
        )
        answer = await broker.forwarding.ask(request, BrokerHeartbeatResponse, timeout_ms=5000, is_urgent=True)
        assert answer.error_code == 0
        with pytest.raises(KafkaError) as caught:
            await broker.forwarding.ask(request, BrokerHeartbeatResponse, timeout_ms=500)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
