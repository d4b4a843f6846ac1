"""Share groups over the wire: sessions, acknowledgements, and what is refused."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, PartitionIndex, TopicPartition
from tailrace.wire.apis.admin import DeleteTopicsRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import DeleteRecordsRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.shares import (
    DescribeShareGroupOffsetsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from tailrace.wire.apis.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from tests.unit.broker.world import Peer, World, batch, create_topic, produce, running

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
}
TOPIC_RESOURCE, GROUP_RESOURCE = 2, 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
WAIT_MS = 5000


class Member:
    """A member of group g that asks for what a test says, right or wrong."""

    def __init__(self, peer: Peer, topic_id: bytes, name: str) -> None:
        self.peer = peer
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0

    async def fetch(
        self,
        *acknowledged: tuple[int, int, Sequence[int]],
        epoch: int | None = None,
        max_records: int = 500,
        wait_ms: int = WAIT_MS,
        version: int = 2,
        **fields: Any,
    ) -> Any:
        request = ShareFetchRequest
        told = [
            request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acknowledged
        ]
        wanted = request.FetchPartition(partition_index=0, acknowledgement_batches=told)
        asked = request(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_records=max_records,
            batch_size=500,
            topics=[request.FetchTopic(topic_id=self.topic_id, partitions=[wanted])],
            **fields,
        )
        answer = await self.peer.request(asked, version)
        if not answer.error_code and epoch is None:
            self.epoch += 1
        return answer

    async def take(self, *acknowledged: tuple[int, int, Sequence[int]], **fields: Any) -> list[tuple[int, int, int]]:
        """What it has acquired."""
        answer = await self.fetch(*acknowledged, **fields)
        assert answer.error_code == 0
        partitions = [each for topic in answer.responses for each in topic.partitions]
        assert not any(each.error_code or each.acknowledge_error_code for each in partitions), partitions
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for partition in partitions
            for each in partition.acquired_records
        ]

    async def acknowledge(
        self, *batches: tuple[int, int, Sequence[int]], epoch: int | None = None, **fields: Any
    ) -> Any:
        request = ShareAcknowledgeRequest
        asked = request(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                request.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        request.AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                request.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, types in batches
                            ],
                        )
                    ],
                )
            ],
            **fields,
        )
        answer = await self.peer.request(asked, 2)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        if epoch is None:
            self.epoch += 1
        return ErrorCode(answer.responses[0].partitions[0].error_code) if answer.responses else ErrorCode.NONE


async def prepared(world: World, *, earliest: bool = True) -> Member:
    """A group that reads topic t from its beginning, with one member."""
    peer = await world.connect()
    await create_topic(peer, "t")
    await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    if earliest:
        await configure(peer, "share.auto.offset.reset", "earliest")
    beat = await peer.request(
        ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0, subscribed_topic_names=["t"]), 1
    )
    assert beat.error_code == 0
    ((topic_id, partitions),) = [(each.topic_id, each.partitions) for each in beat.assignment.topic_partitions]
    assert partitions == [0]
    return Member(peer, topic_id, "a")


async def configure(peer: Peer, name: str, value: str, *, kind: int = GROUP_RESOURCE, resource_name: str = "g") -> None:
    request = IncrementalAlterConfigsRequest
    answer = await peer.request(
        request(
            resources=[
                request.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=resource_name,
                    configs=[request.AlterableConfig(name=name, value=value, config_operation=0)],
                )
            ]
        ),
        1,
    )
    assert answer.responses[0].error_code == 0, answer


async def another(world: World, member: Member, name: str = "b") -> Member:
    return Member(await world.connect(), member.topic_id, name)


async def start_offset(member: Member) -> tuple[int, int]:
    """With the lag."""
    request = DescribeShareGroupOffsetsRequest
    group = request.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    answer = await member.peer.request(request(groups=[group]), 1)
    partition = answer.groups[0].topics[0].partitions[0]
    return partition.start_offset, partition.lag


async def write(member: Member, count: int) -> None:
    for number in range(count):
        await member.peer.request(produce("t", batch(b"%d" % number)), 9)


async def test_records_go_to_one_member_at_a_time_and_are_done_with_once_accepted() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        two = await another(world, one)
        await write(one, 4)
        assert await one.take(max_records=2) == [(0, 1, 1)]
        assert await two.take() == [(2, 3, 1)]
        # Acknowledgements ride on the next fetch.
        assert await one.take((0, 0, [ACCEPT]), (1, 1, [RELEASE])) == [(1, 1, 2)]
        assert await two.acknowledge((2, 3, [ACCEPT, REJECT])) is ErrorCode.NONE
        assert await start_offset(one) == (1, 1)
        assert await one.acknowledge((1, 1, [ACCEPT])) is ErrorCode.NONE
        assert await start_offset(one) == (4, 0)


async def test_a_fetch_waits_for_records_and_for_those_that_are_released() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        two = await another(world, one)
        waiting = asyncio.create_task(one.take(wait_ms=60_000))
        while not any(each.readers for each in world.broker.services.shares.partitions.values()):
            await asyncio.sleep(0.01)
        await write(two, 1)
        assert await waiting == [(0, 0, 1)]
        assert await two.take(wait_ms=0) == []
        waiting = asyncio.create_task(two.take(wait_ms=60_000))
        await one.acknowledge((0, 0, [RELEASE]))
        assert await waiting == [(0, 0, 2)]


async def test_a_session_that_is_closed_or_lost_gives_back_what_it_holds() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        two = await another(world, one)
        await write(one, 2)
        assert await two.take() == [(0, 1, 1)]
        assert await two.acknowledge((0, 0, [ACCEPT]), epoch=-1) is ErrorCode.NONE
        assert await one.take() == [(1, 1, 2)]
        await one.acknowledge((1, 1, [RELEASE]))
        three = await another(world, one, "c")
        assert await three.take() == [(1, 1, 3)]
        await three.peer.close()
        assert await one.take(wait_ms=60_000) == [(1, 1, 4)]


async def test_who_is_gone_while_a_state_is_stored_is_given_nothing() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        other = await another(world, one)
        await write(one, 10)
        assert await one.take(max_records=4, share_acquire_mode=1) == [(0, 3, 1)]
        (share_partition,) = world.broker.services.shares.partitions.values()
        write_state, is_stored = share_partition._write_state, asyncio.Event()

        async def write_slowly(changes: Any) -> Any:
            await is_stored.wait()
            return await write_state(changes)

        share_partition._write_state = write_slowly
        fetching = asyncio.ensure_future(one.fetch((0, 3, [ACCEPT])))
        await asyncio.sleep(0.1)
        await one.peer.close()
        fetching.cancel()
        await asyncio.sleep(0.1)
        is_stored.set()
        assert await other.take() == [(4, 9, 1)], "what is accepted is done with, and the rest was never given out"


async def test_a_fetch_that_waits_is_given_nothing_once_its_member_goes_on_by_another_connection() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        assert await one.take(wait_ms=0) == []
        waiting = asyncio.ensure_future(one.take(wait_ms=60_000))
        await asyncio.sleep(0.1)
        again = Member(await world.connect(), one.topic_id, one.name)
        assert await again.take(wait_ms=0) == []
        await write(again, 3)
        assert await waiting == []
        assert await again.take() == [(0, 2, 1)]


async def test_sessions_have_epochs() -> None:
    async with running(SETTINGS | {"group.share.max.share.sessions": "1"}) as world:
        one = await prepared(world)
        assert await one.acknowledge((0, 0, [ACCEPT]), epoch=0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await one.acknowledge((0, 0, [ACCEPT]), epoch=1) is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (await one.fetch((0, 0, [ACCEPT]))).error_code == ErrorCode.INVALID_REQUEST
        assert (await one.fetch(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await one.take(wait_ms=0) == []
        assert (await one.fetch(epoch=5)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        two = await another(world, one)
        assert (await two.fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        nobody = Member(one.peer, one.topic_id, "")
        assert (await nobody.fetch()).error_code == ErrorCode.INVALID_REQUEST


async def test_what_a_member_says_without_waiting_is_stored_together() -> None:
    count = 50
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await write(one, count)
        assert await one.take(max_records=count) == [(0, count - 1, 1)]
        places = [TopicPartition(SHARE_GROUP_STATE_TOPIC, PartitionIndex(index)) for index in range(2)]
        logs = [world.broker.replicas.partitions[place].log for place in places]
        stored = sum(log.log_end_offset for log in logs)
        for offset in range(count):
            one.peer.send(acknowledgement(one, offset, one.epoch + offset), 2)
        for _ in range(count):
            answer = await one.peer.receive()
            assert answer.responses[0].partitions[0].error_code == 0
        assert sum(log.log_end_offset for log in logs) - stored < count
        assert await start_offset(one) == (count, 0)


def acknowledgement(member: Member, offset: int, epoch: int) -> ShareAcknowledgeRequest:
    request = ShareAcknowledgeRequest
    batch = request.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])
    partition = request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topics = [request.AcknowledgeTopic(topic_id=member.topic_id, partitions=[partition])]
    return request(group_id="g", member_id=member.name, share_session_epoch=epoch, topics=topics)


async def test_acknowledgements_that_make_no_sense_are_refused() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await write(one, 4)
        assert await one.take() == [(0, 3, 1)]
        for wrong in (
            [(1, 0, [ACCEPT])],
            [(0, 1, [ACCEPT]), (0, 2, [ACCEPT])],
            [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
            [(0, 2, [ACCEPT, ACCEPT])],
            [(0, 0, [])],
            [(0, 0, [5])],
            [(0, 0, [-1])],
            [(0, 0, [RENEW])],
            [(0, 4, [ACCEPT])],
        ):
            assert await one.acknowledge(*wrong) is ErrorCode.INVALID_REQUEST, wrong
        assert await one.acknowledge((0, 1, [ACCEPT]), (1, 2, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
        two = await another(world, one)
        assert await two.take(wait_ms=0) == []
        assert await two.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE
        assert await one.acknowledge((0, 0, [RENEW]), is_renew_ack=True) is ErrorCode.NONE
        assert await one.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NONE
        assert await start_offset(one) == (4, 0)
        # What lies before the start is done with, whoever says what of it.
        assert await one.acknowledge((0, 3, [ACCEPT])) is ErrorCode.NONE


async def test_a_request_that_renews_fetches_nothing() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await write(one, 2)
        assert await one.take(max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
        wrong = await one.fetch((0, 0, [RENEW]), is_renew_ack=True)
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        renewal = {"is_renew_ack": True, "wait_ms": 0, "max_records": 0, "max_bytes": 0}
        assert await one.take((0, 0, [RENEW]), **renewal) == []
        answer = await one.fetch((0, 0, [ACCEPT]), share_acquire_mode=7)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_a_lock_that_runs_out_gives_the_record_to_another() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await configure(one.peer, "share.record.lock.duration.ms", "1000")
        await write(one, 1)
        assert await one.take() == [(0, 0, 1)]
        two = await another(world, one)
        assert await two.take(wait_ms=60_000) == [(0, 0, 2)]
        assert await one.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


async def test_a_broker_that_starts_again_knows_what_is_done_with() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await write(one, 5)
        await one.take()
        await one.acknowledge((0, 0, [ACCEPT]), (2, 2, [REJECT]), (3, 3, [RELEASE]))
        await world.broker.stop()
        await world.start(SETTINGS)
        again = Member(await world.connect(), one.topic_id, "a")
        assert await again.take(wait_ms=60_000) == [(1, 1, 1), (3, 3, 2), (4, 4, 1)]


async def test_the_log_of_states_is_cut_and_nothing_of_them_is_forgotten() -> None:
    """Each acknowledgement is a record there, and only the first record of t is not done with at the end."""
    settings = SETTINGS | {"share.coordinator.state.topic.prune.interval.ms": "100"}
    count = 1200
    async with running(settings) as world:
        one = await prepared(world)
        await write(one, count)
        await one.take()
        taken = 500
        for offset in range(1, count):
            if offset == taken:
                taken = (await one.take())[-1][1] + 1
            assert await one.acknowledge((offset, offset, [ACCEPT])) is ErrorCode.NONE
        await one.acknowledge((0, 0, [RELEASE]))
        places = [TopicPartition(SHARE_GROUP_STATE_TOPIC, PartitionIndex(index)) for index in range(2)]
        logs = [world.broker.replicas.partitions[place].log for place in places]
        async with asyncio.timeout(20):
            while not any(log.log_start_offset > 1000 for log in logs):
                await asyncio.sleep(0.05)
        await world.broker.stop()
        await world.start(settings)
        again = Member(await world.connect(), one.topic_id, "a")
        assert await again.take(wait_ms=60_000) == [(0, 0, 2)]


async def test_a_new_group_begins_at_the_end_and_stays_there() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world, earliest=False)
        await write(one, 3)
        assert await one.take(wait_ms=0) == []
        assert await start_offset(one) == (3, 0)
        await write(one, 1)
        await world.broker.stop()
        await world.start(SETTINGS)
        again = Member(await world.connect(), one.topic_id, "a")
        assert await again.take(wait_ms=60_000) == [(3, 3, 1)]


async def test_records_of_aborted_transactions_are_kept_from_who_asks_for_committed_ones() -> None:
    settings = {f"transaction.state.log.{name}": "1" for name in ("replication.factor", "min.isr", "num.partitions")}
    async with running(SETTINGS | settings) as world:
        one = await prepared(world)
        await configure(one.peer, "share.isolation.level", "read_committed")
        await one.peer.request(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 6)
        init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        producer = await one.peer.request(init, 5)
        who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        for number, is_committed in enumerate((True, False, True)):
            add = AddPartitionsToTxnRequest
            topic = add.AddPartitionsToTxnTopic(name="t", partitions=[0])
            old = {f"v3_and_below_{name}": value for name, value in who.items()}
            asked = add(v3_and_below_transactional_id="x", v3_and_below_topics=[topic], **old)
            await one.peer.request(asked, 3)
            records = batch(b"a", b"b", base_sequence=2 * number, transactional=True, **who)
            await one.peer.request(produce("t", records, transactional_id="x"), 9)
            ending = EndTxnRequest(transactional_id="x", committed=is_committed, **who)
            assert (await one.peer.request(ending, 3)).error_code == 0
        taken: list[tuple[int, int, int]] = []
        while len(taken) < 2:
            taken += await one.take()
        assert taken == [(0, 1, 1), (6, 7, 1)], "neither aborted records nor markers"
        assert await one.acknowledge((0, 1, [ACCEPT]), (6, 7, [ACCEPT])) is ErrorCode.NONE
        # The last marker may be still to be passed over.
        assert await one.take(wait_ms=0) == []
        assert (await start_offset(one))[0] in {8, 9}


async def test_what_retention_takes_is_not_waited_for() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await write(one, 4)
        assert await one.take(max_records=1) == [(0, 0, 1)]
        request = DeleteRecordsRequest
        topic = request.DeleteRecordsTopic(
            name="t", partitions=[request.DeleteRecordsPartition(partition_index=0, offset=3)]
        )
        await one.peer.request(request(topics=[topic], timeout_ms=10_000), 2)
        assert await one.take((0, 0, [ACCEPT])) == [(3, 3, 1)]


async def test_who_waits_is_told_that_the_records_of_the_group_cannot_be_stored() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)

        async def beat(member_id: str, epoch: int, topics: list[str] | None = None) -> int:
            request = ShareGroupHeartbeatRequest(
                group_id="g", member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
            )
            async with asyncio.timeout(20):
                answer = await one.peer.request(request, 1)
            return answer.member_epoch if not answer.error_code else -answer.error_code

        epoch = await beat("a", 0, ["t"])
        place = {"kind": TOPIC_RESOURCE, "resource_name": CONSUMER_OFFSETS_TOPIC}
        await configure(one.peer, "max.message.bytes", "100", **place)
        assert await beat("b", 0, ["t"]) == -ErrorCode.UNKNOWN_SERVER_ERROR
        assert await beat("a", epoch) == epoch, "the others go on"
        await configure(one.peer, "max.message.bytes", "1000000", **place)
        assert await beat("b", 0, ["t"]) > epoch


async def test_topics_that_are_not_there_are_told_of() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await write(one, 1)
        assert await one.take() == [(0, 0, 1)]
        state = DeleteTopicsRequest.DeleteTopicState(name="t")
        await one.peer.request(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)
        answer = await one.fetch((0, 0, [ACCEPT]), wait_ms=0)
        ((partition,),) = [topic.partitions for topic in answer.responses]
        assert partition.error_code == partition.acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert world.broker.services.shares.partitions == {}


async def test_two_hundred_members_share_one_partition() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        members = [one, *[await another(world, one, f"m{number}") for number in range(199)]]

        async def join(member: Member) -> int:
            request = ShareGroupHeartbeatRequest(
                group_id="g", member_id=member.name, member_epoch=0, subscribed_topic_names=["t"]
            )
            answer = await member.peer.request(request, 1)
            if not answer.error_code:
                assert [each.partitions for each in answer.assignment.topic_partitions] == [[0]]
            return answer.error_code

        assert set(await asyncio.gather(*(join(each) for each in members[1:]))) == {0}
        assert await join(await another(world, one, "m199")) == ErrorCode.GROUP_MAX_SIZE_REACHED
        await write(one, 1000)
        taken = await asyncio.gather(*(each.take(max_records=5, share_acquire_mode=1) for each in members))
        offsets = [offset for each in taken for first, last, _ in each for offset in range(first, last + 1)]
        assert sorted(offsets) == list(range(1000))
        assert {sum(last - first + 1 for first, last, _ in each) for each in taken} == {5}
        said = [
            each.acknowledge(*((*one[:2], [ACCEPT]) for one in got)) for each, got in zip(members, taken, strict=True)
        ]
        assert set(await asyncio.gather(*said)) == {ErrorCode.NONE}
        assert await start_offset(one) == (1000, 0)
