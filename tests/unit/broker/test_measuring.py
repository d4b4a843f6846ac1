"""What requests have taken, as the meters of a node hear it: in virtual time, so that the numbers are exact. Only what
the network takes is left to chance: some milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tailrace.broker.metrics.requests import Meter, RequestMeters
from tailrace.broker.serving.measuring import Measurement
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.keys import ApiKey
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer, batch, fetch, fetched, produce, produced

FETCH_VERSION = 12
EXPRESS_VERSION, GENERAL_VERSION = 9, 6  # The express lane begins with version 7.
TRAVEL_MAX_MS = 30.0
SETTINGS = {"metrics.listeners": "HTTP://:9404", "metrics.express.sample.every": "1"}


class Seen(NamedTuple):
    api_key: int
    measured: Measurement
    weight: int
    meter: Meter


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    found: list[Seen] = []
    keys: dict[Meter, int] = {}
    of, measure, measure_run = RequestMeters.of, Meter.measure, Meter._measure_run

    def noting_of(meters: RequestMeters, api_key: int, version: int) -> Meter:
        meter = of(meters, api_key, version)
        keys[meter] = api_key
        return meter

    def noting(original: Callable[[Meter, Measurement], None]) -> Callable[[Meter, Measurement], None]:
        def note(meter: Meter, measured: Measurement) -> None:
            before = meter.times.total.count
            original(meter, measured)
            if keys[meter] in (ApiKey.PRODUCE, ApiKey.FETCH):
                found.append(Seen(keys[meter], measured, meter.times.total.count - before, meter))

        return note

    monkeypatch.setattr(RequestMeters, "of", noting_of)
    monkeypatch.setattr(Meter, "measure", noting(measure))
    monkeypatch.setattr(Meter, "_measure_run", noting(measure_run))
    return found


def times(seen: Seen) -> tuple[float, float, float]:
    measured = seen.measured
    handled_ms = measured.answered_ms if measured.handled_ms is None else measured.handled_ms
    return handled_ms - measured.began_ms, measured.answered_ms - handled_ms, measured.sent_ms - measured.answered_ms


def of_produce(seen: list[Seen]) -> list[Seen]:
    """Without the fetches of followers."""
    return [each for each in seen if each.api_key == ApiKey.PRODUCE]


async def create_on(peer: Peer, *nodes: int) -> None:
    """The topic t, led by the first of the nodes."""
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=list(nodes))
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    answer = await peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


async def two_brokers(world: ClusterWorld) -> Peer:
    peer = await world.connect(1)
    await create_on(peer, 1, 2)
    answer = await peer.request(produce("t", batch(b"first"), acks=-1), GENERAL_VERSION)
    assert produced(answer).error_code == ErrorCode.NONE
    return peer


@simulated
async def test_a_fetch_that_waits_for_records(seen: list[Seen]) -> None:
    async with running_cluster("broker,controller", settings=SETTINGS) as world:
        peer = await world.connect(1)
        await create_on(peer, 1)
        asked = peer.frame(fetch("t", 0, max_wait_ms=500), FETCH_VERSION)
        peer.writer.write(asked)
        answer = await peer.receive_frame()
        (measured,) = seen
        assert times(measured) == (0, 500, 0)
        assert (measured.api_key, measured.weight, measured.measured.errors) == (ApiKey.FETCH, 1, {})
        totals = measured.meter.times
        assert (totals.received_bytes, totals.sent_bytes) == (len(asked) - 4, len(answer))
        assert (measured.meter.requests, totals.faultless, totals.errors) == (1, 1, {})


@simulated
async def test_a_fetch_whose_answer_is_taken_slowly(seen: list[Seen]) -> None:
    """It is parked for 500 ms, since it wants more than there is, and the client takes nothing for 700 ms after that:
    no more than a window of its 600 KB leaves the broker before."""
    async with running_cluster("broker,controller", settings=SETTINGS) as world:
        peer = await world.connect(1)
        await create_on(peer, 1)
        await peer.request(produce("t", batch(bytes(600_000))), GENERAL_VERSION)
        seen.clear()
        world.network.cut("node-1", "client")
        peer.send(fetch("t", 0, max_wait_ms=500, min_bytes=1 << 30), FETCH_VERSION)
        await asyncio.sleep(1.2)
        assert seen == []
        world.network.mend("node-1", "client")
        answer = await peer.receive()
        assert len(fetched(answer).records) > 600_000
        (measured,) = seen
        handling_ms, parked_ms, sending_ms = times(measured)
        assert (handling_ms, parked_ms) == (0, 500)
        assert 700 - TRAVEL_MAX_MS < sending_ms < 700 + TRAVEL_MAX_MS
        assert measured.measured.sent_bytes > 600_000


@simulated
async def test_a_produce_that_waits_for_replicas(seen: list[Seen]) -> None:
    async with running_cluster("broker,controller", "broker", settings=SETTINGS) as world:
        peer = await two_brokers(world)
        (confirmed,) = of_produce(seen)
        handling_ms, parked_ms, sending_ms = times(confirmed)
        assert handling_ms == sending_ms == 0
        assert 0 < parked_ms < TRAVEL_MAX_MS
        world.network.cut("node-2", "node-1")
        await asyncio.sleep(0.01)
        answer = await peer.request(produce("t", batch(b"a"), acks=-1, timeout_ms=300), GENERAL_VERSION)
        assert produced(answer).error_code == ErrorCode.REQUEST_TIMED_OUT
        measured = of_produce(seen)[-1]
        assert times(measured) == (0, 300, 0)
        assert measured.meter.times.errors == {ErrorCode.REQUEST_TIMED_OUT: 1}


@simulated
async def test_an_answer_is_sent_behind_those_before_it(seen: list[Seen]) -> None:
    async with running_cluster("broker,controller", "broker", settings=SETTINGS) as world:
        peer = await two_brokers(world)
        world.network.cut("node-2", "node-1")
        await asyncio.sleep(0.01)
        seen.clear()
        frames = [
            peer.frame(produce("t", batch(b"a"), acks=-1, timeout_ms=300), GENERAL_VERSION),
            peer.frame(produce("t", batch(b"b"), acks=1), GENERAL_VERSION),
        ]
        peer.writer.write(b"".join(frames))
        for _ in frames:
            await peer.receive()
        assert [times(each) for each in of_produce(seen)] == [(0, 300, 0), (0, 0, 300)]


@simulated
async def test_a_run_of_the_express_lane_is_measured_together(seen: list[Seen]) -> None:
    async with running_cluster("broker,controller", "broker", settings=SETTINGS) as world:
        peer = await two_brokers(world)
        await peer.request(produce("t", batch(b"a"), acks=-1, timeout_ms=300), EXPRESS_VERSION)
        world.network.cut("node-2", "node-1")
        await asyncio.sleep(0.01)
        (before,) = of_produce(seen)[-1:]
        received, sent = before.meter.times.received_bytes, before.meter.times.sent_bytes
        seen.clear()
        frames = [
            peer.frame(produce("t", batch(b"%d" % number), acks=-1, timeout_ms=300), EXPRESS_VERSION)
            for number in range(3)
        ]
        peer.writer.write(b"".join(frames))
        answers = [await peer.receive_frame() for _ in frames]
        (measured,) = of_produce(seen)
        totals = measured.meter.times
        assert (measured.weight, totals.errors) == (3, {ErrorCode.REQUEST_TIMED_OUT: 3})
        assert times(measured) == (0, 300, 0)
        assert measured.meter.requests == 1 + 3  # One was before.
        assert totals.received_bytes - received == sum(map(len, frames)) - 4 * 3
        assert totals.sent_bytes - sent == sum(map(len, answers))
        assert totals.faultless == 2  # That one, and one of a version that has no lane.


@simulated
async def test_one_that_wants_no_answer(seen: list[Seen]) -> None:
    async with running_cluster("broker,controller", settings=SETTINGS) as world:
        peer = await world.connect(1)
        await create_on(peer, 1)
        asked = peer.frame(produce("t", batch(b"a"), acks=0), GENERAL_VERSION, expects_answer=False)
        peer.writer.write(asked)
        await world.wait(lambda: bool(seen), "the request is measured")
        (measured,) = seen
        assert (measured.meter.times.received_bytes, measured.meter.times.sent_bytes) == (len(asked) - 4, 0)
        assert times(measured) == (0, 0, 0)


@simulated
async def test_errors_are_counted_wherever_they_stand_in_an_answer(seen: list[Seen]) -> None:
    async with running_cluster("broker,controller", settings=SETTINGS) as world:
        peer = await world.connect(1)
        await create_on(peer, 1)
        asked = produce("t", batch(b"a"))
        asked.topic_data += produce("missing", batch(b"a")).topic_data
        asked.topic_data += produce("missing", batch(b"a"), partition=1).topic_data
        await peer.request(asked, GENERAL_VERSION)
        (measured,) = seen
        assert measured.measured.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2}
