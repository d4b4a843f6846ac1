"""Streams groups of a broker: who may do what with them, and the topics that they make."""

from __future__ import annotations

import asyncio
from typing import Any

from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import UpdateFeaturesRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest, StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from tests.unit.broker.access.secured_world import allow, secured
from tests.unit.broker.world import World, create_topic, running

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_Request = StreamsGroupHeartbeatRequest
_TRIES = 500


def join(*, changelog: str = "g-store-changelog", replicas: int = 0, **settings: str) -> _Request:
    pairs = [_Request.KeyValue(key=name.replace("_", "."), value=value) for name, value in settings.items()]
    stored = _Request.TopicInfo(name=changelog, replication_factor=replicas, topic_configs=pairs)
    subtopology = _Request.Subtopology(
        subtopology_id="0", source_topics=["t"], state_changelog_topics=[stored] if changelog else []
    )
    return _Request(
        group_id="g",
        member_id="a",
        rebalance_timeout_ms=1_000,
        process_id="p",
        topology=_Request.Topology(subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def detail(answer: Any) -> str:
    return " | ".join(each.status_detail for each in answer.status)


def topics_of(world: World) -> Any:
    return world.broker.node.image.topics


async def find_coordinator(peer: Any) -> None:
    for _ in range(_TRIES):
        answer = await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        if not answer.coordinators[0].error_code:
            return
        await asyncio.sleep(0.01)


async def test_a_member_needs_the_group_and_all_topics_of_its_topology() -> None:
    async with secured(SETTINGS) as world:
        await create_topic(world.root, "t")
        await find_coordinator(world.root)
        alice = await world.connect_as("alice")
        assert (await alice.request(join(), 0)).error_code == NO_GROUP
        await world.add(allow(Operation.READ, Kind.GROUP, "g"))
        assert (await alice.request(join(), 0)).error_code == NO_TOPIC
        await world.add(allow(Operation.DESCRIBE, Kind.TOPIC, "t"))
        assert (await alice.request(join(), 0)).error_code == NO_TOPIC, "the changelog too"
        await world.add(allow(Operation.DESCRIBE, Kind.TOPIC, "g-store-changelog"))
        refused = await alice.request(join(), 0)
        assert "Unauthorized to CREATE on topics g-store-changelog." in detail(refused)
        assert "g-store-changelog" not in topics_of(world.world)
        await world.add(allow(Operation.CREATE, Kind.TOPIC, "g-store-changelog"))
        answer = await alice.request(join(), 0)
        assert detail(answer) == "Internal topics are missing: g-store-changelog"


async def test_who_describes_a_group_needs_its_topics() -> None:
    async with secured(SETTINGS) as world:
        await create_topic(world.root, "t")
        await find_coordinator(world.root)
        assert (await world.root.request(join(changelog=""), 0)).error_code == 0
        alice = await world.connect_as("alice")
        describe = StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
        (group,) = (await alice.request(describe, 0)).groups
        assert group.error_code == NO_GROUP
        await world.add(allow(Operation.DESCRIBE, Kind.GROUP, "g"))
        (group,) = (await alice.request(describe, 0)).groups
        assert (group.error_code, group.members, group.topology) == (NO_TOPIC, [], None)
        await world.add(allow(Operation.DESCRIBE, Kind.TOPIC, "t"))
        (group,) = (await alice.request(describe, 0)).groups
        assert (group.error_code, len(group.members)) == (ErrorCode.NONE, 1)
        assert group.authorized_operations == 1 << Operation.DESCRIBE


async def test_internal_topics_are_made_as_the_application_asks() -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=3)
        await find_coordinator(peer)
        answer = await peer.request(join(cleanup_policy="compact", segment_bytes="52428800"), 0)
        for _ in range(_TRIES):
            if "g-store-changelog" in topics_of(world):
                break
            await asyncio.sleep(0.01)
        assert len(topics_of(world)["g-store-changelog"].partitions) == 3
        beat = _Request(group_id="g", member_id="a", member_epoch=answer.member_epoch)
        answer = await peer.request(beat, 0)
        assert (answer.status, answer.active_tasks[0].partitions) == ([], [0, 1, 2])


async def test_a_topic_that_cannot_be_made_is_told_for_a_while() -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await find_coordinator(peer)
        told = ""
        for _ in range(_TRIES):
            told = detail(await peer.request(join(replicas=3), 0))
            if "Creation failed" in told:
                break
            await asyncio.sleep(0.01)
        assert "; Creation failed: g-store-changelog (" in told
        assert "replication factor" in told.lower()


async def test_streams_groups_are_turned_off_by_their_feature_or_a_setting() -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await find_coordinator(peer)
        update = UpdateFeaturesRequest
        lower = update.FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        answer = await peer.request(update(timeout_ms=1_000, feature_updates=[lower]), 2)
        assert answer.error_code == 0, answer.error_message
        assert (await peer.request(join(), 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = (await peer.request(StreamsGroupDescribeRequest(group_ids=["g"]), 0)).groups
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
    async with running({"group.coordinator.rebalance.protocols": "classic,consumer"}) as world:
        peer = await world.connect()
        assert (await peer.request(join(), 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
