"""controller_mutation_rate: what clients are told who make and delete more partitions than they may, by the broker that
decides itself and by one that hands requests on to the controller."""

import asyncio
from typing import Any

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from tailrace.wire.apis.data import MetadataRequest
from tests.unit.broker.cluster_world import running_cluster, simulated
from tests.unit.broker.quotas.test_throttling import USER, set_quota, timed
from tests.unit.broker.world import Peer

# Clusters of one process, and of two: the second hands requests on.
CLUSTERS = (("broker,controller",), ("controller", "broker"))
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def create(peer: Peer, *names: str, version: int, partitions: int = 6) -> Any:
    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return await peer.request(CreateTopicsRequest(topics=topics, timeout_ms=5000), version, patience_seconds=60)


async def delete(peer: Peer, *names: str, version: int) -> Any:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=5000)
    if version >= 6:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names], timeout_ms=5000
        )
    return await peer.request(request, version, patience_seconds=60)


async def grow(peer: Peer, name: str, count: int, *, version: int) -> Any:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return await peer.request(CreatePartitionsRequest(topics=[topic], timeout_ms=5000), version, patience_seconds=60)


@simulated
@pytest.mark.parametrize("roles", CLUSTERS)
async def test_old_versions_are_done_and_throttled(roles: tuple[str, ...]) -> None:
    async with running_cluster(*roles) as world:
        broker = len(roles)
        peer, other = await world.connect(broker), await world.connect(broker)
        await set_quota(peer, USER, controller_mutation_rate=1.0)
        await asyncio.sleep(0.1)  # Until the broker has heard of it, too.
        first = await create(peer, "a", version=5)
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
        second = await create(peer, "b", version=5)
        assert second.topics[0].error_code == 0
        assert second.throttle_time_ms == pytest.approx(1000, abs=300)
        waited, _ = await timed(peer, MetadataRequest(topics=[]), 9)
        assert waited == pytest.approx(second.throttle_time_ms / 1000, abs=0.05)
        deleted = await delete(other, "a", version=4)
        assert deleted.responses[0].error_code == 0
        assert deleted.throttle_time_ms > 4000


@simulated
@pytest.mark.parametrize("roles", CLUSTERS)
async def test_a_throttle_is_no_longer_than_can_be_told(roles: tuple[str, ...]) -> None:
    async with running_cluster(*roles) as world:
        peer = await world.connect(len(roles))
        await set_quota(peer, USER, controller_mutation_rate=1e-300)
        await asyncio.sleep(0.1)
        for name, code in (("a", 0), ("b", 89)):
            answer = await create(peer, name, version=6)
            assert answer.topics[0].error_code == code
            assert answer.throttle_time_ms == (2**31 - 1) * (code != 0)


@simulated
@pytest.mark.parametrize("roles", CLUSTERS)
async def test_new_versions_are_refused_and_nothing_is_done(roles: tuple[str, ...]) -> None:
    async with running_cluster(*roles) as world:
        broker = len(roles)
        peer = await world.connect(broker)
        await set_quota(peer, USER, controller_mutation_rate=1.0)
        await asyncio.sleep(0.1)  # Until the broker has heard of it, too.
        answer = await create(peer, "a", "b", "c", version=7)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        assert codes == {"a": 0, "b": 0, "c": EXCEEDED}, "what overdraws the bucket is done, and nothing after it"
        assert answer.throttle_time_ms == pytest.approx(1000, abs=300)
        for version, code in ((5, EXCEEDED), (6, EXCEEDED)):
            other = await world.connect(broker)
            assert (await delete(other, "a", version=version)).responses[0].error_code == code
        other = await world.connect(broker)
        grown = await grow(other, "a", 7, version=3)
        assert (grown.results[0].error_code, grown.throttle_time_ms > 0) == (EXCEEDED, True)
        names = {topic.name for topic in (await timed(other, MetadataRequest(topics=None), 9))[1].topics}
        assert {"a", "b"} <= names
        assert "c" not in names
        # Once it is paid back, it goes on.
        assert (await grow(other, "a", 7, version=3)).results[0].error_code == 0


@simulated
async def test_topics_that_come_to_be_by_metadata_are_counted() -> None:
    async with running_cluster(
        "broker,controller", settings={"num.partitions": "6", "default.replication.factor": "1"}
    ) as world:
        peer = await world.connect(1)
        await set_quota(peer, USER, controller_mutation_rate=1.0)
        throttles = []
        for name in ("a", "b", "b", "c"):
            topic = MetadataRequest.MetadataRequestTopic(name=name)
            _, answer = await timed(peer, MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 9)
            throttles.append(answer.throttle_time_ms)
        assert throttles[0] == throttles[2] == 0, "what is there is not made again"
        assert throttles[1] == pytest.approx(1000, abs=300)
        assert throttles[3] == pytest.approx(6000, abs=300)
        names = {topic.name for topic in (await timed(peer, MetadataRequest(topics=None), 9))[1].topics}
        assert {"a", "b", "c"} <= names


@simulated
async def test_what_fails_for_another_reason_costs_nothing() -> None:
    async with running_cluster("broker,controller") as world:
        peer = await world.connect(1)
        await set_quota(peer, USER, controller_mutation_rate=1.0)
        for _ in range(20):
            answer = await create(peer, "not a name!", version=7)
            assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert answer.throttle_time_ms == 0
        assert (await create(peer, "a", version=7)).topics[0].error_code == 0
