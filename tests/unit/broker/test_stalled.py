"""Requests that are begun and not ended, in virtual time: who is given up, when, and who is not."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.wire.apis.data import MetadataRequest
from tests.unit.broker.cluster_world import ClusterWorld, simulated
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced

LOOK_SECONDS = 1.5  # Looks are a second apart, and what is closed takes a moment to be seen.


@asynccontextmanager
async def alone(settings: dict[str, str] | None = None) -> AsyncIterator[ClusterWorld]:
    """One broker, whose clock is exact."""
    world = ClusterWorld(["broker,controller"], settings or {})
    world.nodes[1].clock_drift_max = 0.0
    await world.start_all()
    yield world
    for peer in world.peers:
        await peer.close()
    await world.stop_all()
    world.check()


async def seconds_until_closed(peer: Peer, *, at_most: float = 700) -> float:
    """How long the other side goes on, if nothing more is sent."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(at_most):
        try:
            while await peer.reader.read(1 << 16):
                pass
        except ConnectionResetError:
            pass
    return loop.time() - began


async def is_served(world: ClusterWorld) -> bool:
    peer = await world.connect(1)
    return (await peer.request(MetadataRequest(topics=[]), 9)).error_code == 0


async def drip(peer: Peer, data: bytes, *, bytes_per_second: int) -> None:
    for start in range(0, len(data), bytes_per_second):
        peer.writer.write(data[start : start + bytes_per_second])
        await asyncio.sleep(1)


@simulated
async def test_a_request_that_stops_is_given_up_after_the_window():
    async with alone() as world:
        for begun in (b"\0", b"\0\0\0", struct.pack(">i", 50_000) + bytes(20_000)):
            peer = await world.connect(1)
            peer.writer.write(begun)
            assert 30 <= await seconds_until_closed(peer) <= 30 + LOOK_SECONDS
        assert await is_served(world)


@simulated
async def test_a_byte_every_two_seconds_is_no_progress():
    async with alone() as world:
        peer = await world.connect(1)
        peer.writer.write(struct.pack(">i", 90_000_000) + bytes(2_000_000))
        closed = asyncio.ensure_future(seconds_until_closed(peer))
        while not closed.done():
            peer.writer.write(b"\0")
            await asyncio.sleep(2)
        assert 30 <= closed.result() <= 33 + LOOK_SECONDS
        assert world.running[0].statistics()["request_buffer_bytes"] == 0


@simulated
async def test_a_slow_line_gets_a_large_request_through():
    async with alone() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", min_insync_replicas="1")
        frame = peer.frame(produce("t", batch(b"x" * 500_000)), 9)
        await drip(peer, frame, bytes_per_second=1800)  # 278 s
        assert produced(await peer.receive()).base_offset == 0


@simulated
async def test_a_line_that_stalls_now_and_then_gets_its_request_through():
    async with alone() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", min_insync_replicas="1")
        frame = peer.frame(produce("t", batch(b"x" * 300_000)), 9)
        for start in range(0, len(frame), 40_000):
            peer.writer.write(frame[start : start + 40_000])
            await asyncio.sleep(28)
        assert produced(await peer.receive()).base_offset == 0


@simulated
async def test_no_request_takes_longer_than_the_deadline():
    async with alone() as world:
        peer = await world.connect(1)
        closed = asyncio.ensure_future(seconds_until_closed(peer))
        dripping = asyncio.ensure_future(
            drip(peer, struct.pack(">i", 5_000_000) + bytes(800_000), bytes_per_second=2000)
        )
        assert 300 <= await closed <= 300 + LOOK_SECONDS
        dripping.cancel()


@simulated
async def test_pipelined_requests_are_each_timed_for_themselves():
    """At every moment the first part of a request waits for its rest, and never the same for long."""
    async with alone() as world:
        peer = await world.connect(1)
        frames = b"".join(peer.frame(MetadataRequest(topics=[]), 9) for _ in range(400))
        for start in range(0, len(frames), 20):
            peer.writer.write(frames[start : start + 20])
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() > 300
        for _ in range(400):
            assert (await peer.receive()).error_code == 0


@simulated
async def test_while_earlier_requests_hold_it_back_a_request_has_time():
    async with alone() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", min_insync_replicas="1")
        peer.send(fetch("t", 0, max_wait_ms=100_000), 11)
        peer.writer.write(b"\0\0")
        await asyncio.sleep(101)
        assert fetched(await peer.receive()).error_code == 0
        assert 28 <= await seconds_until_closed(peer) <= 30 + LOOK_SECONDS


@simulated
async def test_who_holds_memory_that_others_wait_for_has_less_time():
    settings = {"queued.max.request.bytes": str(256 << 10)}
    async with alone(settings) as world:
        holder, waiting = await world.connect(1), await world.connect(1)
        await create_topic(waiting, "t", min_insync_replicas="1")
        holder.writer.write(struct.pack(">i", 90_000_000) + bytes(200_000))
        await asyncio.sleep(1)
        waiting.send(produce("t", batch(b"x" * 150_000)), 9)
        assert await is_served(world)
        assert 8 <= await seconds_until_closed(holder) <= 10 + LOOK_SECONDS
        assert produced(await waiting.receive()).base_offset == 0


@simulated
async def test_requests_that_wait_for_each_other_are_given_up_soon_and_the_small_ones_last():
    settings = {"queued.max.request.bytes": str(8 << 20), "queued.max.request.bytes.per.ip": "-1"}
    async with alone(settings) as world:
        honest = await world.connect(1)
        await create_topic(honest, "t", min_insync_replicas="1")
        crowd = [await world.connect(1) for _ in range(20)]
        for peer in crowd:
            peer.writer.write(struct.pack(">i", 90_000_000) + bytes(700_000))
        await asyncio.sleep(2)
        honest.send(produce("t", batch(b"x" * 60_000)), 9)
        assert await is_served(world)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(seconds_until_closed(peer) for peer in crowd))
        # Those who waited lose what they hold after 10 s, and so do those who have it then and do not go on.
        assert asyncio.get_running_loop().time() - began < 60
        assert produced(await honest.receive()).base_offset == 0
        assert world.running[0].statistics()["request_buffer_bytes"] == 0


@simulated
async def test_a_client_that_leaves_while_it_waits_for_memory_frees_what_it_holds():
    settings = {"queued.max.request.bytes": str(1 << 20), "queued.max.request.bytes.per.ip": "-1"}
    async with alone(settings) as world:
        holder, leaving, last = [await world.connect(1) for _ in range(3)]
        await create_topic(last, "t", min_insync_replicas="1")
        holder.writer.write(struct.pack(">i", 90_000_000) + bytes(600_000))
        await asyncio.sleep(1)
        leaving.writer.write(struct.pack(">i", 90_000_000) + bytes(400_000))
        await asyncio.sleep(0.5)
        held_bytes = world.running[0].statistics()["request_buffer_bytes"]
        await leaving.close()
        await asyncio.sleep(LOOK_SECONDS)
        assert world.running[0].statistics()["request_buffer_bytes"] < held_bytes
        assert world.running[0].statistics()["connections"] == 2


@simulated
async def test_a_whole_request_of_a_client_that_has_left_is_served_once_there_is_memory():
    settings = {"queued.max.request.bytes": str(1 << 20), "queued.max.request.bytes.per.ip": "-1"}
    async with alone(settings) as world:
        holder, leaving, last = [await world.connect(1) for _ in range(3)]
        await create_topic(last, "t", min_insync_replicas="1")
        holder.writer.write(struct.pack(">i", 90_000_000) + bytes(1_000_000))
        await asyncio.sleep(1)
        leaving.send(produce("t", batch(b"x" * 60_000), acks=0), 9)
        await asyncio.sleep(0.5)
        await leaving.close()
        await asyncio.sleep(LOOK_SECONDS)
        await holder.close()
        await asyncio.sleep(LOOK_SECONDS)
        assert fetched(await last.request(fetch("t", 0), 11)).high_watermark == 1
