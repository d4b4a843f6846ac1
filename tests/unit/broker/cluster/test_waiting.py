"""Requests that need the controller on their way, while there is none: they hold nobody back for long."""

import asyncio

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tailrace.wire.schema import Message
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer, create_topic

WAIT_MS = 100
# What the way there and back takes in the simulator.
SLACK_MS = 30
ALL_BUT_A_CONTROLLER = ("controller", "broker")


def named(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])


def idempotent() -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


async def timed(world: ClusterWorld, peer: Peer, *requests: tuple[Message, int]) -> tuple[list[Message], float]:
    """The answers to requests that are sent at once, and how many milliseconds all of them took."""
    broker = world.nodes[2].broker
    assert broker is not None
    start_ms = broker.ports.clock.monotonic_ms()
    for request, version in requests:
        peer.send(request, version)
    answers = [await peer.receive() for _ in requests]
    return answers, broker.ports.clock.monotonic_ms() - start_ms


@simulated
async def test_a_missing_topic_holds_nobody_back_and_is_created_once_there_is_a_controller():
    async with running_cluster(*ALL_BUT_A_CONTROLLER, settings={"default.replication.factor": "1"}) as world:
        peer = await world.connect(2)
        await create_topic(peer, "healthy")
        await world.kill(1)
        answers, took_ms = await timed(world, peer, (named("missing", "healthy"), 12), (named("healthy"), 12))
        assert [topic.error_code for topic in answers[0].topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert answers[1].topics[0].error_code == 0
        assert WAIT_MS <= took_ms <= WAIT_MS + SLACK_MS
        # The creation has had its moment: who asks again is answered at once.
        answers, took_ms = await timed(world, peer, (named("missing"), 12))
        assert took_ms <= SLACK_MS
        await world.start(1)
        broker = world.nodes[2].broker
        assert broker is not None
        await world.wait(lambda: "missing" in broker.image.topics, "what was asked for is created")


@simulated
async def test_a_topic_that_is_created_in_time_is_in_the_answer():
    async with running_cluster(*ALL_BUT_A_CONTROLLER, settings={"default.replication.factor": "1"}) as world:
        answers, took_ms = await timed(world, await world.connect(2), (named("missing"), 12))
        assert [(topic.error_code, len(topic.partitions)) for topic in answers[0].topics] == [(0, 1)]
        assert took_ms <= WAIT_MS


@simulated
async def test_how_many_creations_may_be_under_way():
    settings = {"auto.create.topics.max.pending": "2", "default.replication.factor": "1"}
    async with running_cluster(*ALL_BUT_A_CONTROLLER, settings=settings) as world:
        peer = await world.connect(2)
        await world.kill(1)
        await timed(world, peer, (named("a", "b", "c"), 12))
        await world.start(1)
        broker = world.nodes[2].broker
        assert broker is not None
        await world.wait(lambda: {"a", "b"} <= set(broker.image.topics), "two are created")
        await asyncio.sleep(2)
        assert set(broker.image.topics) == {"a", "b"}
        await peer.request(named("c"), 12)
        await world.wait(lambda: "c" in broker.image.topics, "it is created once it is asked for again")


@simulated
async def test_a_coordinator_whose_topic_cannot_be_created_now_is_not_available():
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    async with running_cluster(*ALL_BUT_A_CONTROLLER, settings=settings) as world:
        peer = await world.connect(2)
        await world.kill(1)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
        (answer,), took_ms = await timed(world, peer, (request, 4))
        assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert took_ms <= WAIT_MS + SLACK_MS
        await world.start(1)
        broker = world.nodes[2].broker
        assert broker is not None
        await world.wait(lambda: "__consumer_offsets" in broker.image.topics, "its topic is created")
        answer = await peer.request(request, 4)
        assert answer.coordinators[0].error_code == 0


@simulated
async def test_producer_ids_last_without_a_controller_and_then_the_client_asks_again():
    async with running_cluster(*ALL_BUT_A_CONTROLLER) as world:
        peer = await world.connect(2)
        ids = [(await peer.request(idempotent(), 4)).producer_id for _ in range(950)]
        await asyncio.sleep(1)  # The next block is fetched while this one lasts.
        await world.kill(1)
        ids += [(await peer.request(idempotent(), 4)).producer_id for _ in range(1050)]
        assert sorted(ids) == list(range(min(ids), min(ids) + 2000))
        (answer,), took_ms = await timed(world, peer, (idempotent(), 4))
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert took_ms <= WAIT_MS + SLACK_MS
        (answer,), took_ms = await timed(
            world, peer, (InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), 4)
        )
        assert answer.error_code
        assert took_ms <= WAIT_MS + SLACK_MS
        await world.start(1)
        await asyncio.sleep(2)
        assert (await peer.request(idempotent(), 4)).producer_id not in ids
