"""Connections to other nodes: kept, opened anew after a failure, and never waited for beyond the call's time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.cluster.peers import Peers
from tailrace.controller.image import BrokerImage, MetadataImage
from tailrace.model.config import Endpoint, parse_broker_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis.data import ApiVersionsRequest, MetadataRequest, MetadataResponse
from tests.unit.broker.world import World, running
from tests.unit.client.peer import SILENCE
from tests.unit.client.peer import Peer as ScriptedPeer
from tests.unit.simulated import simulated

CONFIG = parse_broker_config({"node.id": "9", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "data"})
REQUEST = MetadataRequest(topics=[])


@asynccontextmanager
async def peers_of(world: World, **options) -> AsyncIterator[Peers]:
    peers = Peers(CONFIG, world.ports, **options)
    try:
        yield peers
    finally:
        peers.close()


@asynccontextmanager
async def listening(serve) -> AsyncIterator[int]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def call(peers: Peers, port: int, *, timeout_ms: int = 5000, channel: str = "") -> MetadataResponse:
    return await peers.call_address(
        "127.0.0.1", port, REQUEST, MetadataResponse, timeout_ms=timeout_ms, channel=channel
    )


async def test_calls_of_a_channel_share_one_connection():
    async with running() as world, peers_of(world) as peers:
        answers = await asyncio.gather(*(call(peers, world.broker.port) for _ in range(5)))
        assert [answer.brokers[0].node_id for answer in answers] == [1] * 5
        assert world.broker.statistics()["connections"] == 1
        await call(peers, world.broker.port, channel="other")
        assert world.broker.statistics()["connections"] == 2


async def test_a_lost_connection_is_opened_anew_by_the_next_call():
    async with running() as world, peers_of(world) as peers:
        await call(peers, world.broker.port)
        for connection in list(world.broker.acceptors[0].connections):
            connection.close()
        await asyncio.sleep(0.01)
        assert (await call(peers, world.broker.port)).brokers


async def test_a_peer_that_is_not_there_is_not_hammered():
    attempts = 0

    def refuse(_reader, writer) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    async with listening(refuse) as port, peers_of(World()) as peers:
        start = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < start + 0.5:
            with pytest.raises(KafkaError) as caught:
                await call(peers, port)
            assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        # After 0, 50, 150, 350 ms, each a tenth sooner or later.
        assert 3 <= attempts <= 5


async def test_a_silent_peer_costs_the_calls_time_and_the_connection():
    held = []
    async with listening(lambda reader, writer: held.append(writer)) as port, peers_of(World()) as peers:
        async with asyncio.timeout(3):
            with pytest.raises(KafkaError, match=r"no answer from .* within 100 ms") as caught:
                await call(peers, port, timeout_ms=100)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        for writer in held:
            writer.close()


@simulated
async def test_a_host_that_vanishes_while_it_is_connected_to_is_given_up():
    """It has accepted, and never says which versions it has; the next one at its address does."""
    async with ScriptedPeer() as there:
        answer = there.scripts[ApiVersionsRequest]
        there.scripts[ApiVersionsRequest] = lambda _: SILENCE
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        peers = Peers(parse_broker_config({"node.id": "2"}), there.ports)
        host, port = there.address
        for _ in range(3):
            with pytest.raises(KafkaError) as raised:
                await peers.call_address(host, port, MetadataRequest(topics=[]), MetadataResponse, timeout_ms=1000)
            assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
        there.scripts[ApiVersionsRequest] = answer
        begun = loop.time()
        while True:
            try:
                await peers.call_address(host, port, MetadataRequest(topics=[]), MetadataResponse, timeout_ms=1000)
                break
            except KafkaError:
                assert loop.time() < begun + 9
        peers.close()


async def test_closing_fails_the_calls_that_are_under_way():
    held = []
    async with listening(lambda reader, writer: held.append(writer)) as port:
        peers = Peers(CONFIG, World().ports)
        under_way = asyncio.ensure_future(call(peers, port, timeout_ms=30_000))
        await asyncio.sleep(0.05)
        peers.close()
        with pytest.raises(KafkaError) as caught:
            await asyncio.wait_for(under_way, 3)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        with pytest.raises(KafkaError, match="stopping"):
            await call(peers, port)
        for writer in held:
            writer.close()


async def test_brokers_are_called_by_the_listener_of_brokers():
    async with running({"listeners": "CLIENTS://127.0.0.1:0,REPLICAS://127.0.0.1:0"}) as world:
        used = next(listener for listener in world.broker.listeners if listener.name == "REPLICAS")
        node = BrokerImage(
            NodeId(1),
            epoch=0,
            incarnation_id=Uuid(bytes(16)),
            endpoints=(Endpoint("CLIENTS", "127.0.0.1", 1), Endpoint("REPLICAS", "127.0.0.1", used.port)),
            rack=None,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
        )
        image = MetadataImage("cluster", brokers={1: node})
        async with peers_of(world, image=lambda: image, listener_name="REPLICAS") as peers:
            answer = await peers.call(1, REQUEST, MetadataResponse, timeout_ms=5000)
            assert answer.brokers[0].port == used.port
            with pytest.raises(KafkaError, match="cannot reach broker 2") as caught:
                await peers.call(2, REQUEST, MetadataResponse, timeout_ms=5000)
            assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
