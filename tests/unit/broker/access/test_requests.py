"""Requests of somebody with few rights, seen from outside. What each API asks is compared with Apache Kafka in
tests/golden/test_access.py; here is what that cannot show."""

from __future__ import annotations

import asyncio

from tailrace.catalogue import CATALOGUE
from tailrace.model.acls import Kind, Operation, PatternType
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.data import FetchRequest, MetadataRequest
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, FindCoordinatorRequest
from tailrace.wire.apis.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.unit.broker.access.secured_world import allow, deny, secured
from tests.unit.broker.test_commits_again import commit
from tests.unit.broker.world import batch, create_topic, fetch, fetched, produce, produced, running

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WRITE = allow(Operation.WRITE, Kind.TOPIC, "t")
READ = allow(Operation.READ, Kind.TOPIC, "t")


async def test_without_an_authorizer_there_are_no_acls_and_no_steps() -> None:
    async with running() as world:
        peer = await world.connect()
        described = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        assert (await peer.request(described, 3)).error_code == ErrorCode.SECURITY_DISABLED
        created = await peer.request(CreateAclsRequest(creations=[CreateAclsRequest.AclCreation()]), 3)
        assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED]
        deleted = await peer.request(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()]), 3)
        assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
        await peer.request(MetadataRequest(topics=None), 9)
        assert world.broker.services.access is None
        routes = world.broker.protocols[0].dispatcher._routes
        unaudited = [route.before for (key, _), route in routes.items() if not CATALOGUE[key].is_audited]
        assert unaudited == [()] * len(unaudited)
        assert len(unaudited) >= 2


async def test_a_producer_loses_its_lane_with_its_right() -> None:
    async with secured() as world:
        await create_topic(world.root, "t")
        await world.add(WRITE)
        alice = await world.connect_as("alice")
        for _ in range(3):
            assert produced(await alice.request(produce("t", batch(b"a")), 9)).error_code == ErrorCode.NONE
        (express,) = [each._express for each in world._connections() if each.principal.name == "alice"]
        assert len(express._lanes) == 1
        await world.add(deny(Operation.WRITE, Kind.TOPIC, "t"))
        for _ in range(3):
            assert produced(await alice.request(produce("t", batch(b"a")), 9)).error_code == REFUSED
        assert not express._lanes
        await world.clear()
        await world.add(WRITE)
        assert produced(await alice.request(produce("t", batch(b"a")), 9)).base_offset == 3


async def test_without_an_answer_the_end_of_the_connection_tells() -> None:
    """What is allowed is written before."""
    async with secured() as world:
        await create_topic(world.root, "t")
        await create_topic(world.root, "u")
        await world.add(WRITE)
        alice = await world.connect_as("alice")
        both = produce("t", batch(b"a"), acks=0)
        both.topic_data += produce("u", batch(b"a")).topic_data
        alice.send(both, 9, expects_answer=False)
        assert await alice.is_closed()
        assert fetched(await world.root.request(fetch("t", 0), 11)).high_watermark == 1
        assert fetched(await world.root.request(fetch("u", 0), 11)).high_watermark == 0
        again = await world.connect_as("alice")
        again.send(produce("u", batch(b"a"), acks=0), 9, expects_answer=False)
        assert await again.is_closed()


async def test_a_session_notices_what_has_changed() -> None:
    async with secured() as world:
        await create_topic(world.root, "t")
        await world.add(READ)
        alice = await world.connect_as("alice")
        first = await alice.request(fetch("t", 0, session_epoch=0, max_bytes=1 << 20), 11)
        assert fetched(first).error_code == ErrorCode.NONE
        await world.clear()
        again = FetchRequest(
            session_id=first.session_id, session_epoch=1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20
        )
        assert fetched(await alice.request(again, 11)).error_code == REFUSED
        await world.add(READ)
        again.session_epoch = 2
        assert fetched(await alice.request(again, 11)).error_code == ErrorCode.NONE


async def test_a_parked_fetch_is_not_given_what_may_not_be_read_any_more() -> None:
    async with secured() as world:
        await create_topic(world.root, "t")
        await world.add(READ)
        alice = await world.connect_as("alice")
        alice.send(fetch("t", 0, max_wait_ms=5000, max_bytes=1 << 20), 11)
        await alice.writer.drain()
        await asyncio.sleep(0.05)
        await world.clear()
        await world.root.request(produce("t", batch(b"secret")), 9)
        answer = fetched(await alice.receive())
        assert (answer.error_code, answer.records) == (REFUSED, b"")


async def test_a_topic_that_is_refused_does_not_cut_the_wait_short() -> None:
    async with secured() as world:
        await create_topic(world.root, "t")
        await create_topic(world.root, "u")
        await world.add(READ)
        alice = await world.connect_as("alice")
        both = fetch("t", 0, max_wait_ms=200, max_bytes=1 << 20)
        both.topics += fetch("u", 0).topics
        before = asyncio.get_running_loop().time()
        answer = await alice.request(both, 11)
        assert asyncio.get_running_loop().time() - before >= 0.19
        told = {topic.topic: topic.partitions[0].error_code for topic in answer.responses}
        assert told == {"t": ErrorCode.NONE, "u": REFUSED}


async def test_what_is_hidden_is_not_created() -> None:
    async with secured({"auto.create.topics.enable": "true"}) as world:
        alice = await world.connect_as("alice")
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])

        async def ask() -> int:
            (topic,) = (await alice.request(asked, 9)).topics
            return int(topic.error_code)

        assert await ask() == REFUSED
        await world.add(allow(Operation.DESCRIBE, Kind.TOPIC, "new"))
        assert await ask() == REFUSED
        await world.add(allow(Operation.CREATE, Kind.TOPIC, "ne", pattern_type=PatternType.PREFIXED))
        assert await ask() == ErrorCode.NONE
        assert "new" in world.world.broker.image.topics


async def test_nobody_is_told_of_all_topics_by_an_old_request_for_hidden_ones() -> None:
    """In version 0 an empty list asks for all."""
    async with secured() as world:
        await create_topic(world.root, "t")
        alice = await world.connect_as("alice")
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        answer = await alice.request(asked, 0)
        assert [(topic.name, topic.error_code, topic.partitions) for topic in answer.topics] == [("t", REFUSED, [])]


async def test_a_cache_that_is_full_is_begun_anew() -> None:
    async with secured({"authorizer.cache.max.entries": "10"}) as world:
        alice = await world.connect_as("alice")
        for number in range(40):
            topic = MetadataRequest.MetadataRequestTopic(name=f"t{number}")
            await alice.request(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 9)
        access = world.world.broker.services.access
        assert access is not None
        assert 0 < len(access._decided) <= 10


async def test_an_expression_does_not_stand_for_hidden_topics() -> None:
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    async with secured(settings) as world:
        shown = await create_topic(world.root, "orders")
        await create_topic(world.root, "orders-secret")
        await world.add(allow(Operation.READ, Kind.GROUP, "g"), allow(Operation.DESCRIBE, Kind.TOPIC, "orders"))
        alice = await world.connect_as("alice")
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="AAAAAAAAAAAAAAAAAAAAAA",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_regex="orders.*",
            topic_partitions=[],
        )
        for _ in range(100):
            await alice.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
            answer = await alice.request(beat, 1)
            if answer.error_code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
                break
        assert answer.error_code == ErrorCode.NONE
        assert [each.topic_id for each in answer.assignment.topic_partitions] == [shown]


async def test_a_consumer_loses_its_short_way_with_its_right() -> None:
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    async with secured(settings) as world:
        await create_topic(world.root, "t")
        rights = [allow(Operation.READ, Kind.GROUP, "g"), allow(Operation.READ, Kind.TOPIC, "t")]
        await world.add(*rights)
        alice = await world.connect_as("alice")
        await alice.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)

        async def committed() -> int:
            answer = await alice.request(commit({"t": b""}, {("t", 0): (1, 0)}), 9)
            return int(answer.topics[0].partitions[0].error_code)

        while await committed() in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert await committed() == ErrorCode.NONE
        (commits,) = [each._express._commits for each in world._connections() if each.principal.name == "alice"]
        assert len(commits._forms) == 1
        await world.add(deny(Operation.READ, Kind.TOPIC, "t"))
        for _ in range(3):
            assert await committed() == REFUSED
        assert not commits._forms
        await world.clear()
        await world.add(rights[1])
        for _ in range(3):
            assert await committed() == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert not commits._forms
        await world.add(rights[0])
        for _ in range(3):
            assert await committed() == ErrorCode.NONE
        assert len(commits._forms) == 1
