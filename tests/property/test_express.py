"""The express lane and the general path are one: the same answers, logs and producer states for whatever is sent."""

import asyncio
import errno
from typing import NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.serving.express import Express
from tailrace.log.producers import MAX_SEQUENCE
from tailrace.sim.clock import SimClock
from tests.unit.broker.world import Peer, World, batch, create_topic, produce, produced, running

VERSIONS = (8, 9, 13)
PLACES = (("t", 0), ("t", 1), ("u", 0))
PRODUCERS = 3
# One fewer than there are producers, so that some are forgotten.
PRODUCERS_MAX = 2


class Attempt(NamedTuple):
    place: tuple[str, int]
    acks: int
    producer_id: int
    kind: str
    count: int
    back: int


class Burst(NamedTuple):
    """Sent at once; a failing disk is that of the first place."""

    attempts: list[Attempt]
    version: int
    is_failing: bool


ATTEMPTS = st.builds(
    Attempt,
    place=st.sampled_from(PLACES),
    acks=st.sampled_from([1, -1, -1, -1]),
    producer_id=st.integers(-1, PRODUCERS - 1),
    kind=st.sampled_from(["next"] * 6 + ["again", "again", "gap", "edge", "new epoch", "old epoch", "damaged"]),
    count=st.integers(1, 3),
    back=st.integers(0, 6),
)
# Most are of one producer, to some places in turn, as a client sends them.
RUNS = st.builds(
    lambda attempt, places: [*[attempt._replace(kind="next", place=place) for place in places], attempt],
    ATTEMPTS,
    st.lists(st.sampled_from(PLACES), max_size=8),
)
BURSTS = st.lists(
    st.builds(
        Burst,
        attempts=st.lists(RUNS, min_size=1, max_size=6).map(lambda runs: [each for run in runs for each in run]),
        version=st.sampled_from(VERSIONS),
        is_failing=st.sampled_from([False, False, True]),
    ),
    min_size=1,
    max_size=5,
)


class Client:
    """What a producer believes of itself in one partition. Nothing is learned from answers."""

    def __init__(self) -> None:
        self.epoch = 0
        self.next = 0
        self.sent: list[tuple[int, int, int]] = []

    def choose(self, attempt: Attempt) -> tuple[int, int, int]:
        """Epoch, first sequence, count."""
        match attempt.kind:
            case "again" if self.sent:
                return self.sent[max(0, len(self.sent) - 1 - attempt.back)]
            case "old epoch":
                return max(0, self.epoch - 1), self.next & MAX_SEQUENCE, attempt.count
            case "new epoch":
                self.epoch, self.next = self.epoch + 1, attempt.back % 2
            case "gap":
                self.next += 1 + attempt.back
            case "edge":
                self.next = MAX_SEQUENCE - attempt.back
        chosen = self.epoch, self.next & MAX_SEQUENCE, attempt.count
        self.next += attempt.count
        self.sent.append(chosen)
        return chosen


Clients = dict[tuple[tuple[str, int], int], Client]


def encode(clients: Clients, attempt: Attempt) -> bytes:
    values = [b"v" * (1 + attempt.back)] * attempt.count
    if attempt.producer_id < 0:
        records = batch(*values)
    else:
        client = clients.setdefault((attempt.place, attempt.producer_id), Client())
        epoch, sequence, count = client.choose(attempt)
        values = values[:1] * count
        records = batch(*values, producer_id=attempt.producer_id, producer_epoch=epoch, base_sequence=sequence)
    return records[:-1] + b"?" if attempt.kind == "damaged" else records


async def play(bursts: list[Burst]) -> tuple[list[tuple[int, int, int]], list[bytes], list[object]]:
    """Answers, logs, and what is remembered of producers."""
    clients: Clients = {}
    answers: list[tuple[int, int, int]] = []
    async with running(clock=SimClock()) as world:
        peer = await world.connect()
        topic_ids = {"t": await create_topic(peer, "t", partitions=2), "u": await create_topic(peer, "u")}
        logs = [world.broker.replicas.find(*place).log for place in PLACES]
        for log in logs:
            log.producers.max_producers = PRODUCERS_MAX
        for burst in bursts:
            answers += await send(world, peer, topic_ids, clients, burst)
        remembered: list[object] = [log.producers.snapshot() for log in logs]
        remembered.append({key: list(each) for key, each in world.broker.services.refused_batches._refused.items()})
        return answers, [log.active.file.read(0, log.size_bytes) for log in logs], remembered


async def send(
    world: World, peer: Peer, topic_ids: dict[str, bytes], clients: Clients, burst: Burst
) -> list[tuple[int, int, int]]:
    """What is told of a failed write depends on how many were written with it: its words are not compared."""
    requests = []
    for attempt in burst.attempts:
        name, index = attempt.place
        records = encode(clients, attempt)
        requests.append(produce(name, records, partition=index, acks=attempt.acks, topic_id=topic_ids[name]))
    if burst.is_failing:
        world.disk.fail("append", "*t-0*", error=errno.ENOSPC)
    peer.writer.write(b"".join(peer.frame(request, burst.version) for request in requests))
    given = [produced(await peer.receive()) for _ in requests]
    world.disk.heal()
    return [(answer.error_code, answer.base_offset, answer.log_start_offset) for answer in given]


@settings(max_examples=60, deadline=None)
@given(BURSTS)
def test_both_ways_agree_on_idempotent_producers(bursts: list[Burst]) -> None:
    # Without a rest, so that every request is tried.
    with patch("tailrace.broker.serving.express._REST", 0):
        express = asyncio.run(play(bursts))
    with patch.object(Express, "take", lambda self, buffer, view, position, end: position):
        general = asyncio.run(play(bursts))
    assert express == general
