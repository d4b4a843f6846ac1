"""How fast connections may come, in virtual time: who waits, who is closed, and who is not counted."""

import asyncio

import pytest

from tailrace.wire.apis.data import MetadataRequest
from tests.unit.broker.cluster_world import ClusterWorld, simulated
from tests.unit.broker.quotas.test_throttling import set_quota
from tests.unit.broker.test_stalled import alone
from tests.unit.broker.world import Peer

# Two at once are free.
WINDOWS = {"quota.window.num": "3", "quota.window.size.seconds": "1"}


async def is_answered(peer: Peer) -> bool:
    """Whether it is let in, and does not see its connection closed instead."""
    try:
        await peer.request(MetadataRequest(topics=[]), 9, patience_seconds=120)
    except (asyncio.IncompleteReadError, ConnectionError):
        peer._sent.clear()
        return False
    return True


async def seconds_until_served(world: ClusterWorld) -> float:
    began = asyncio.get_running_loop().time()
    assert await is_answered(await world.connect(1))
    return asyncio.get_running_loop().time() - began


@simulated
@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
async def test_whoever_comes_too_fast_waits(name: str) -> None:
    async with alone({**WINDOWS, name: "1"}) as world:
        loop = asyncio.get_running_loop()
        began = loop.time()
        waits = await asyncio.gather(*(seconds_until_served(world) for _ in range(8)))
        assert sorted(waits)[:2] == [pytest.approx(0, abs=0.1)] * 2
        # Their order is that of arrival, and each waits for at most a window after the one before it.
        assert sorted(waits)[7] == pytest.approx(6, abs=1)
        assert loop.time() - began == pytest.approx(6, abs=1)
        await asyncio.sleep(10)
        assert await seconds_until_served(world) == pytest.approx(0, abs=0.1)


@simulated
async def test_a_full_gate_turns_away_at_once() -> None:
    async with alone({**WINDOWS, "max.connection.creation.rate": "1", "socket.listen.backlog.size": "3"}) as world:
        peers = [await world.connect(1) for _ in range(12)]
        answered = await asyncio.gather(*map(is_answered, peers))
        assert answered.count(True) == 5, "two at once, and three that wait"


@simulated
async def test_an_address_that_comes_too_fast_is_closed_after_a_while() -> None:
    async with alone(WINDOWS) as world:
        admin = await world.connect(1)
        await set_quota(admin, {"ip": None}, connection_creation_rate=1.0)
        loop = asyncio.get_running_loop()
        assert [await is_answered(await world.connect(1)) for _ in range(2)] == [True, True]
        began = loop.time()
        assert not await is_answered(await world.connect(1))
        assert 0.2 < loop.time() - began <= 1.1, "coming again at once does not pay"
        await asyncio.sleep(5)
        assert await is_answered(await world.connect(1))
        await set_quota(admin, {"ip": None}, connection_creation_rate=None)
        assert all([await is_answered(await world.connect(1)) for _ in range(5)])


@simulated
async def test_who_is_refused_does_not_count_for_the_broker() -> None:
    async with alone({**WINDOWS, "max.connection.creation.rate": "4"}) as world:
        admin = await world.connect(1)
        await set_quota(admin, {"ip": None}, connection_creation_rate=1.0)
        for _ in range(2):
            assert await is_answered(await world.connect(1))
        refused = [asyncio.ensure_future(is_answered(await world.connect(1))) for _ in range(20)]
        await asyncio.sleep(0.05)
        await set_quota(admin, {"ip": None}, connection_creation_rate=None)
        assert await seconds_until_served(world) == pytest.approx(0, abs=0.1)
        assert not any(await asyncio.gather(*refused))


@simulated
async def test_a_stop_lets_nobody_wait() -> None:
    async with alone({**WINDOWS, "max.connection.creation.rate": "1"}) as world:
        peers = [await world.connect(1) for _ in range(6)]
        asked = [asyncio.ensure_future(is_answered(peer)) for peer in peers]
        await asyncio.sleep(0.2)
        (broker,) = world.running
        await broker.acceptors[0].close(answers_timeout_ms=0)
        assert (await asyncio.gather(*asked)).count(False) >= 3
