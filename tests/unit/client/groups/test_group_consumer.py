"""Group consumers and the group admin client against our own broker on this loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from tailrace.client.admin import Admin
from tailrace.client.consumer import LATEST, ConsumerOptions
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.groups.assignors import COOPERATIVE_STICKY, RANGE
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.ports import real_ports
from tailrace.testing import Broker
from tailrace.wire.apis.data import DeleteRecordsRequest, DeleteRecordsResponse

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 20,
    "group.consumer.heartbeat.interval.ms": 20,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.session.timeout.ms": 500,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 3,
}
PARTITIONS = [TopicPartition("t", index) for index in range(4)]
CLASSIC, CONSUMER = GroupProtocol.CLASSIC, GroupProtocol.CONSUMER
KINDS = [(CONSUMER, ()), (CLASSIC, (RANGE,)), (CLASSIC, (COOPERATIVE_STICKY,))]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Broker(SETTINGS, in_process=True) as broker:
        cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap), client_id="tests")
        await Admin(cluster).create_topic("t", partition_count=len(PARTITIONS))
        yield cluster
        cluster.close()


class Member:
    """A consumer that polls by itself, and whose partitions are never another's at the same time."""

    def __init__(
        self,
        cluster: Cluster,
        seen: dict[tuple[TopicPartition, int], int],
        owners: dict[TopicPartition, Member],
        kind: tuple[GroupProtocol, tuple[str, ...]] = (CONSUMER, ()),
        instance_id: str | None = None,
    ) -> None:
        self._owners = owners
        self._seen = seen
        self._is_stopping = False
        self.consumer = consumer_of(
            cluster, kind, instance_id=instance_id, on_assigned=self._take, on_revoked=self._drop, on_lost=self._drop
        )
        self._task = asyncio.create_task(self._run())

    def _take(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            assert partition not in self._owners, "one owner at a time"
            self._owners[partition] = self

    def _drop(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            assert self._owners.pop(partition) is self

    async def _run(self) -> None:
        while not self._is_stopping:
            for partition, records in (await self.consumer.poll(50)).items():
                for record in records:
                    place = partition, record.offset
                    self._seen[place] = self._seen.get(place, 0) + 1

    async def stop(self) -> None:
        self._is_stopping = True
        await self._task
        await self.consumer.close()


def consumer_of(
    cluster: Cluster,
    kind: tuple[GroupProtocol, tuple[str, ...]] = (CONSUMER, ()),
    *,
    group: str = "g",
    auto_commit_interval_ms: int | None = 50,
    start: int = -2,
    instance_id: str | None = None,
    **callbacks: Callable[[list[TopicPartition]], None],
) -> GroupConsumer:
    protocol, assignors = kind
    member = MemberOptions(
        topics=("t",),
        instance_id=instance_id,
        session_timeout_ms=500,
        heartbeat_interval_ms=20,
        rebalance_timeout_ms=5000,
        assignors=assignors,
        metadata_max_age_ms=50,
    )
    options = GroupOptions(
        group,
        member,
        protocol=protocol,
        start=start,
        auto_commit_interval_ms=auto_commit_interval_ms,
        fetching=ConsumerOptions(fetch_max_wait_ms=20),
    )
    return GroupConsumer(cluster, options, **callbacks)


async def produce(cluster: Cluster, count: int) -> None:
    async with Producer(cluster) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % len(PARTITIONS))


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.02)


async def read(consumer: GroupConsumer, count: int) -> dict[tuple[TopicPartition, int], bytes]:
    found: dict[tuple[TopicPartition, int], bytes] = {}
    async with asyncio.timeout(15):
        while len(found) < count:
            for partition, records in (await consumer.poll(100)).items():
                found |= {(partition, record.offset): record.value or b"" for record in records}
    return found


def shares(members: list[Member]) -> list[int]:
    return sorted(len(member.consumer.assignment) for member in members)


@pytest.mark.parametrize("kind", KINDS)
async def test_members_share_a_topic_and_lose_nothing_when_they_come_and_go(
    cluster: Cluster, kind: tuple[GroupProtocol, tuple[str, ...]]
):
    seen: dict[tuple[TopicPartition, int], int] = {}
    owners: dict[TopicPartition, Member] = {}
    first = Member(cluster, seen, owners, kind)
    await wait_until(lambda: len(owners) == 4)
    await produce(cluster, 100)
    second = Member(cluster, seen, owners, kind)
    await wait_until(lambda: shares([first, second]) == [2, 2])
    await produce(cluster, 100)
    third = Member(cluster, seen, owners, kind)
    await wait_until(lambda: shares([first, second, third]) == [1, 1, 2])
    await first.stop()
    await wait_until(lambda: shares([second, third]) == [2, 2])
    await produce(cluster, 100)
    await wait_until(lambda: len(seen) == 300)
    await second.stop()
    await third.stop()
    assert set(seen.values()) == {1}
    assert owners == {}
    committed = await GroupAdmin(cluster).offsets_of("g", lambda offsets: offsets.fetch())
    assert {partition: found.offset for partition, found in committed.items()} == dict.fromkeys(PARTITIONS, 75)


async def test_a_group_changes_its_protocol_while_it_works(cluster: Cluster):
    seen: dict[tuple[TopicPartition, int], int] = {}
    owners: dict[TopicPartition, Member] = {}
    old = Member(cluster, seen, owners, (CLASSIC, (RANGE,)))
    await wait_until(lambda: len(owners) == 4)
    new = Member(cluster, seen, owners)
    await wait_until(lambda: shares([old, new]) == [2, 2])
    await produce(cluster, 40)
    await wait_until(lambda: len(seen) == 40)
    assert (await GroupAdmin(cluster).describe("g")).type == "consumer"
    assert sorted(member.protocol for member in (await GroupAdmin(cluster).describe("g")).members) == [
        "classic",
        "consumer",
    ]
    await new.stop()
    await wait_until(lambda: shares([old]) == [4])
    assert (await GroupAdmin(cluster).describe("g")).type == "classic"
    await old.stop()
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("kind", KINDS)
async def test_new_partitions_reach_members(cluster: Cluster, kind: tuple[GroupProtocol, tuple[str, ...]]):
    owners: dict[TopicPartition, Member] = {}
    member = Member(cluster, {}, owners, kind)
    await wait_until(lambda: len(owners) == 4)
    await Admin(cluster).create_partitions("t", 6)
    await wait_until(lambda: len(owners) == 6)
    await member.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_goes_on_where_it_has_stopped(cluster: Cluster, kind: tuple[GroupProtocol, tuple[str, ...]]):
    await produce(cluster, 8)
    consumer = consumer_of(cluster, kind, auto_commit_interval_ms=None)
    first = await read(consumer, 8)
    await consumer.commit()
    await produce(cluster, 4)
    second = await read(consumer, 4)
    assert not first.keys() & second.keys()
    assert await consumer.committed(PARTITIONS) == dict.fromkeys(PARTITIONS, 2)
    await consumer.close()
    again = consumer_of(cluster, kind)
    assert await read(again, 4) == second
    await again.close()


async def test_what_was_given_back_is_not_committed(cluster: Cluster):
    await produce(cluster, 40)
    consumer = consumer_of(cluster)
    await read(consumer, 40)
    consumer.seek(PARTITIONS[0], 3)
    await consumer.close()
    again = consumer_of(cluster)
    assert {offset for (partition, offset) in await read(again, 7) if partition == PARTITIONS[0]} == set(range(3, 10))
    await again.close()


async def test_records_that_are_gone_are_passed_over(cluster: Cluster):
    await produce(cluster, 40)
    consumer = consumer_of(cluster)
    await read(consumer, 40)
    consumer.seek(PARTITIONS[0], 1)
    await consumer.commit()
    await consumer.close()
    connection = await cluster.any_connection()
    cut = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=8)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[cut])
    await connection.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), DeleteRecordsResponse)
    again = consumer_of(cluster)
    assert set(await read(again, 2)) == {(PARTITIONS[0], 8), (PARTITIONS[0], 9)}
    await again.close()


async def test_a_group_that_begins_at_the_end_misses_nothing_between_two_members(cluster: Cluster):
    await produce(cluster, 4)
    consumer = consumer_of(cluster, start=LATEST)
    async with asyncio.timeout(15):
        while not consumer.assignment:
            await consumer.poll(20)
    await consumer.close()
    await produce(cluster, 4)
    again = consumer_of(cluster, start=LATEST)
    assert {offset for _, offset in await read(again, 4)} == {1}
    await again.close()


async def test_a_stranger_cannot_commit_for_a_group_with_members(cluster: Cluster):
    member = Member(cluster, {}, owners := {})
    await wait_until(lambda: len(owners) == 4)
    admin = GroupAdmin(cluster)
    with pytest.raises(KafkaError) as refused:
        await admin.offsets_of("g", lambda offsets: offsets.commit({PARTITIONS[0]: 1}))
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    await member.stop()
    await admin.offsets_of("g", lambda offsets: offsets.commit({PARTITIONS[0]: 1}))


async def test_groups_as_an_administrator_sees_them(cluster: Cluster):
    admin = GroupAdmin(cluster)
    assert await admin.groups() == []
    member = Member(cluster, {}, owners := {}, instance_id="static-1")
    await wait_until(lambda: len(owners) == 4)
    classic = consumer_of(cluster, KINDS[1], group="old")
    async with asyncio.timeout(15):
        while not classic.assignment:
            await classic.poll(20)
    assert [(each.group_id, each.type, each.state) for each in await admin.groups()] == [
        ("g", "consumer", "Stable"),
        ("old", "classic", "Stable"),
    ]
    assert [each.group_id for each in await admin.groups(types=["classic"])] == ["old"]
    assert await admin.groups(states=["Empty"]) == []
    described = await admin.describe("g")
    assert (described.type, described.state, described.assignor) == ("consumer", "Stable", "uniform")
    (found,) = described.members
    assert (found.client_id, found.client_host, found.instance_id) == ("tests", "127.0.0.1", "static-1")
    assert sorted(found.assignment) == sorted(found.target or ()) == PARTITIONS
    old = await admin.describe("old")
    assert (old.type, old.assignor, old.epoch) == ("classic", RANGE, None)
    assert sorted(old.members[0].assignment) == PARTITIONS
    with pytest.raises(KafkaError) as refused:
        await admin.delete("old")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    await classic.close()
    await admin.delete("old")
    with pytest.raises(KafkaError, match="group old does not exist") as refused:
        await admin.describe("old")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    await member.stop()


async def test_the_history_tells_why(cluster: Cluster):
    seen: dict[tuple[TopicPartition, int], int] = {}
    owners: dict[TopicPartition, Member] = {}
    first = Member(cluster, seen, owners)
    await wait_until(lambda: len(owners) == 4)
    second = Member(cluster, seen, owners)
    await wait_until(lambda: shares([first, second]) == [2, 2])
    left_id = first.consumer.member_id
    await first.stop()
    await wait_until(lambda: shares([second]) == [4])
    history = await GroupAdmin(cluster).history("g")
    assert [each.cause for each in history] == ["member joined", "member joined", "member left"]
    assert history[2].member_id == left_id
    assert left_id in history[2].detail
    assert {each.client_id for each in history} == {"tests"}
    assert history[0].at_ms <= history[1].at_ms <= history[2].at_ms
    assert await GroupAdmin(cluster).history("nobody") == []
    await second.stop()


async def test_rewinding_goes_back_to_what_was_committed_or_else_to_where_it_began(cluster: Cluster):
    await produce(cluster, 8)
    consumer = consumer_of(cluster, start=LATEST, auto_commit_interval_ms=None)
    while len(consumer.assignment) < 4:
        await consumer.poll(50)
    await produce(cluster, 8)
    given = 0
    while given < 8:
        given += sum(map(len, (await consumer.poll(50)).values()))
    await consumer.commit({PARTITIONS[0]: 3})
    await consumer.rewind()
    assert [consumer.position(partition) for partition in PARTITIONS] == [3, 2, 2, 2]
    again = 0
    while again < 7:
        again += sum(map(len, (await consumer.poll(50)).values()))
    await consumer.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_that_was_put_out_has_no_metadata_until_it_knows(
    cluster: Cluster, kind: tuple[GroupProtocol, tuple[str, ...]]
):
    lost: list[TopicPartition] = []
    consumer = consumer_of(cluster, kind, auto_commit_interval_ms=None, on_lost=lost.extend)
    while len(consumer.assignment) < 4:
        await consumer.poll(50)
    assert consumer.group_metadata() == ("g", (consumer.member_id, consumer.epoch, None))
    # As if the coordinator had said that it does not know it. It may join anew before the next poll.
    consumer._member._lose()
    with pytest.raises(KafkaError, match="no member of group g"):
        consumer.group_metadata()
    await consumer.poll(50)
    assert sorted(lost) == PARTITIONS
    await consumer.close()
