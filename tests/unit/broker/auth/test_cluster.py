"""Nodes that log in to each other: replication, the quorum and forwarding by listeners with SASL."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.broker.auth.security import Security
from tailrace.broker.cluster.peers import Peers
from tailrace.broker.cluster.roles import decide_roles
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import MetadataRequest, ProduceRequest
from tailrace.wire.apis.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import batch, produce, produced

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="node" password="secret" user_node="secret" user_alice="hers";'
SECURED = {
    "inter.broker.listener.name": "REPLICAS",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICAS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.replicas.plain.sasl.jaas.config": JAAS,
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
}


def principals(world: ClusterWorld, listener: str) -> set[str]:
    return {
        str(each.principal)
        for broker in world.running
        for acceptor in broker.acceptors
        for each in acceptor.connections
        if each.listener.name == listener  # type: ignore[attr-defined]
    }


@simulated
async def test_a_cluster_lives_behind_its_logins():
    async with running_cluster(settings=SECURED) as world:
        other = next(broker.node_id for broker in world.running if not broker.quorum.is_active)
        peer = await world.connect(other)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=3)
        answer = await peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        assert answer.topics[0].error_code == 0
        leader = world.running[0].image.topics["t"].partitions[0].leader
        peer = await world.connect(leader)
        request: ProduceRequest = produce("t", batch(b"a"), acks=-1)
        assert produced(await peer.request(request, 9)).error_code == 0
        assert principals(world, "REPLICAS") == {"User:node"}
        assert principals(world, "CONTROLLER") == {"User:node"}
        assert principals(world, "PLAINTEXT") == {"User:ANONYMOUS"}


@simulated
async def test_nobody_reaches_the_listeners_of_nodes_without_a_login():
    async with running_cluster("broker,controller", settings=SECURED) as world:
        for listener in ("REPLICAS", "CONTROLLER"):
            peer = await world.connect(1, listener)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await peer.request(MetadataRequest(topics=[]), 9)


@simulated
async def test_a_node_with_a_wrong_password_is_not_let_in():
    async with running_cluster("broker,controller", settings=SECURED) as world:
        (broker,) = world.running
        wrong = SECURED | {"listener.name.controller.plain.sasl.jaas.config": JAAS.replace('"secret" user', '"x" user')}
        config = parse_broker_config(world.nodes[1].settings | wrong)
        security = Security(config, broker.ports, decide_roles(config), image=lambda: broker.image)
        await security.open()
        peers = Peers(config, broker.ports, ways=security.ways)
        endpoint = next(each for each in broker.listeners if each.is_controller)
        with pytest.raises(KafkaError) as caught:
            await peers.call_address(
                endpoint.host, endpoint.port, DescribeQuorumRequest(), DescribeQuorumResponse, timeout_ms=5000
            )
        assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        peers.close()
