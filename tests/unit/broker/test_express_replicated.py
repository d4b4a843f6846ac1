"""The express lane with followers: answers wait for them, and are byte for byte those of the general path."""

import asyncio
from collections.abc import Callable

import pytest

from tailrace.broker.serving.express import Express, PendingRun
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.replica.partition import Partition
from tailrace.sim.clock import SimClock
from tests.unit.broker.world import Peer, World, batch, create_topic, produce, produced, running
from tests.unit.replica.replicas import led_by

VERSION = 9
FOLLOWER = NodeId(2)
BOTH = (NodeId(1), FOLLOWER)

Ending = Callable[[Partition], None]


def confirm(partition: Partition) -> None:
    partition.note_fetch(FOLLOWER, 5, offset=partition.log.log_end_offset, log_start_offset=0)


def depose(partition: Partition) -> None:
    partition.follow_image(led_by(FOLLOWER, epoch=2, replicas=BOTH, isr=BOTH))


def shrink(partition: Partition) -> None:
    partition.follow_image(led_by(NodeId(1), epoch=1, replicas=BOTH, isr=BOTH[:1]))


def nothing(_partition: Partition) -> None:
    pass


@pytest.fixture
def runs(monkeypatch) -> list[PendingRun]:
    """The runs that had to wait."""
    seen: list[PendingRun] = []
    made = PendingRun.__init__

    def noted(self, *arguments):
        made(self, *arguments)
        seen.append(self)

    monkeypatch.setattr(PendingRun, "__init__", noted)
    return seen


async def replicated(world: World, peer: Peer) -> list[Partition]:
    """Two partitions with a follower that has not fetched yet."""
    await create_topic(peer, "t", partitions=2, min_insync_replicas="2")
    partitions = [world.broker.replicas.find("t", index) for index in range(2)]
    for partition in partitions:
        partition.follow_image(led_by(NodeId(1), epoch=1, replicas=BOTH, isr=BOTH))
    return partitions


def burst(peer: Peer, timeout_ms: int) -> list[bytes]:
    idempotent = batch(b"i", producer_id=1, producer_epoch=0, base_sequence=0)
    requests = [produce("t", batch(b"x"), partition=index, acks=-1, timeout_ms=timeout_ms) for index in (0, 0, 1, 0, 1)]
    requests += [produce("t", batch(b"one"), acks=1), produce("t", idempotent, acks=-1, timeout_ms=timeout_ms)]
    requests += [produce("t", batch(b"y"), partition=1, acks=-1, timeout_ms=timeout_ms) for _ in range(3)]
    return [peer.frame(request, VERSION) for request in requests]


async def answers_after(endings: tuple[Ending, Ending], timeout_ms: int) -> list[bytes]:
    async with running(clock=SimClock()) as world:
        peer = await world.connect()
        partitions = await replicated(world, peer)
        frames = burst(peer, timeout_ms)
        peer.writer.write(b"".join(frames))
        async with asyncio.timeout(5):
            while [partition.log.log_end_offset for partition in partitions] != [5, 5]:
                await asyncio.sleep(0.01)
        first = asyncio.ensure_future(peer.receive_frame())
        await asyncio.sleep(0.02)
        assert not first.done(), "answered before the follower had it"
        for ending, partition in zip(endings, partitions, strict=True):
            ending(partition)
        answers = [await first] + [await peer.receive_frame() for _ in frames[1:]]
        assert not any(partition.produces for partition in partitions)
        return answers


@pytest.mark.parametrize(
    ("endings", "timeout_ms"),
    [
        ((confirm, confirm), 5000),
        ((depose, confirm), 5000),
        ((confirm, depose), 5000),
        ((Partition.close, confirm), 5000),
        ((nothing, confirm), 300),
        ((confirm, nothing), 300),
        ((shrink, nothing), 300),
    ],
)
async def test_both_ways_give_the_same_bytes(endings, timeout_ms, runs, monkeypatch):
    express = await answers_after(endings, timeout_ms)
    assert runs
    monkeypatch.setattr(Express, "take", lambda self, buffer, view, position, end: position)
    assert await answers_after(endings, timeout_ms) == express


async def test_a_run_is_answered_when_its_last_record_is_confirmed():
    async with running() as world:
        peer = await world.connect()
        partition, _other = await replicated(world, peer)
        peer.writer.write(b"".join(peer.frame(produce("t", batch(b"x"), acks=-1), VERSION) for _ in range(100)))
        while partition.log.log_end_offset < 100:
            await asyncio.sleep(0.01)
        partition.note_fetch(FOLLOWER, 5, offset=99, log_start_offset=0)
        answer = asyncio.ensure_future(peer.receive())
        await asyncio.sleep(0.05)
        assert not answer.done()
        confirm(partition)
        answers = [produced(await answer)] + [produced(await peer.receive()) for _ in range(99)]
        assert [each.base_offset for each in answers] == list(range(100))


async def test_too_few_replicas_in_sync_take_the_general_way(runs):
    async with running() as world:
        peer = await world.connect()
        partition, _other = await replicated(world, peer)
        shrink(partition)
        for _ in range(3):
            answer = produced(await peer.request(produce("t", batch(b"x"), acks=-1), VERSION))
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log.log_end_offset == 0
        assert not runs


async def test_a_client_that_leaves_is_waited_for_no_more(runs):
    async with running() as world:
        peer = await world.connect()
        partition, _other = await replicated(world, peer)
        peer.writer.write(b"".join(peer.frame(produce("t", batch(b"x"), acks=-1), VERSION) for _ in range(10)))
        while partition.log.log_end_offset < 10:
            await asyncio.sleep(0.01)
        assert partition.produces
        await peer.close()
        async with asyncio.timeout(5):
            while partition.produces:
                await asyncio.sleep(0.01)
        assert all(run.is_over for run in runs)


async def test_outstanding_answers_are_bounded():
    async with running({"max.pending.responses.per.connection": "50"}) as world:
        peer = await world.connect()
        partition, _other = await replicated(world, peer)
        frame = peer.frame(produce("t", batch(b"x"), acks=-1), VERSION)
        for _ in range(20):  # Not all at once: what arrives together is one run.
            peer.writer.write(frame * 20)
            await asyncio.sleep(0.01)
        assert 50 <= partition.log.log_end_offset < 100
        async with asyncio.timeout(5):
            while partition.log.log_end_offset < 400:
                confirm(partition)
                await asyncio.sleep(0.01)
