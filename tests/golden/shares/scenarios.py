"""What members of a share group, administrators and share coordinators' callers ask for, in this order, each time of a
new topic and group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.model.ids import Uuid
from tailrace.wire.apis import shares
from tailrace.wire.apis.data import DeleteRecordsRequest
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest
from tests.golden.shares.members import ACCEPT, REJECT, RELEASE, RENEW, Member, Queue, code

Scenario = Callable[[Queue], Awaitable[None]]

LOCK_MS = 1000
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.assignment.interval.ms": "0",
    "auto.create.topics.enable": "false",
}
_RENEWAL = {"is_renew_ack": True, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}


async def sessions(queue: Queue) -> None:
    await queue.write(1)
    a = await queue.member("a")
    await a.say((0, 0, [ACCEPT]), epoch=0)
    await a.say((0, 0, [ACCEPT]), epoch=1)
    await a.say(epoch=-1)
    await a.ask((0, 0, [ACCEPT]), epoch=0)
    await a.ask(epoch=1)
    await a.ask(epoch=-1)
    await a.ask(epoch=-2)
    await a.take()
    await a.ask(epoch=5)
    await a.say((0, 0, [ACCEPT]), epoch=5)
    await a.say((0, 0, [RELEASE]), epoch=-1)
    await a.say((0, 0, [ACCEPT]), epoch=2)
    await a.ask(epoch=-1)
    await a.take()
    # A session that is opened again takes the place of the one before, and what is held stays held.
    a.epoch = 0
    await a.look()
    await a.say((0, 0, [ACCEPT]))
    await a.ask(epoch=-1)
    for wrong in ({"member_id": ""}, {"member_id": None}, {"group_id": None}):
        await a.ask(epoch=0, **wrong)
        await a.say(epoch=1, **wrong)


async def nonsense(queue: Queue) -> None:
    """Ranges that are inverted, overlap or are out of order; types that do not fit; what was never given out."""
    await queue.write(4)
    a = await queue.member("a")
    await a.take()
    for wrong in (
        [(1, 0, [ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
        [(0, 1, [ACCEPT]), (0, 1, [ACCEPT])],
        [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [ACCEPT, ACCEPT])],
        [(0, 0, [])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(0, 4, [ACCEPT])],
        [(4, 4, [ACCEPT])],
        [(7, 9, [ACCEPT])],
        [(-3, -1, [ACCEPT])],
        [(-1, 0, [ACCEPT])],
    ):
        await a.say(*wrong)
    for version in (1, 2):
        await a.say((0, 0, [RENEW]), version=version)
        await a.say((0, 0, [5]), version=version)
    await a.look((1, 0, [ACCEPT]))
    await a.look((0, 0, []))
    await a.look((0, 0, [5]))
    await a.look((0, 1, [ACCEPT]), (1, 2, [ACCEPT]))
    await a.look((0, 9, [ACCEPT]))
    await a.look((0, 0, [RENEW]))
    # All of it is still there.
    await a.say((0, 3, [ACCEPT]))
    await a.look()


async def not_held(queue: Queue) -> None:
    """Of another member, twice, released, given up, or before the start."""
    await queue.write(3, 3)
    a, b = await queue.member("a"), await queue.member("b")
    await a.take(max_records=3)
    await b.take()
    await b.say((0, 0, [ACCEPT]))
    await a.say((0, 3, [ACCEPT]))
    await a.say((1, 1, [ACCEPT]))
    await a.say((1, 1, [ACCEPT]))
    await a.say((1, 1, [RELEASE]))
    await a.say((2, 2, [RELEASE]))
    await a.say((2, 2, [ACCEPT]))
    await b.take()
    await a.say((2, 2, [ACCEPT]))
    await b.say((2, 2, [REJECT]))
    await b.say((2, 2, [ACCEPT]))
    await a.say((0, 0, [ACCEPT]))
    await a.say((0, 0, [ACCEPT]))
    await a.say((0, 2, [ACCEPT]))
    await b.say((0, 5, [ACCEPT]))
    await b.say((3, 5, [ACCEPT]))
    await b.say((3, 5, [ACCEPT]))
    await describe_offsets(queue)


async def types_of_each(queue: Queue) -> None:
    """One type for each offset, gaps among them, on a fetch and without one."""
    await queue.write(8)
    a = await queue.member("a")
    await a.take()
    await a.say((0, 3, [ACCEPT, RELEASE, REJECT, 0]))
    await a.take()
    await a.look((4, 7, [0, ACCEPT, ACCEPT, REJECT]))
    await a.say((1, 1, [RELEASE]))
    await a.take()
    await describe_offsets(queue)


async def counts(queue: Queue) -> None:
    """What comes back again and again comes in smaller company, and is given up at the limit."""
    await queue.write(8)
    a = await queue.member("a")
    for _ in range(40):
        before = len(queue.told)
        await a.look()
        ((_, told),) = queue.told[before:]
        if not told:
            break
        ranges = [(first, last, [RELEASE]) for first, last, _ in told[0]["acquired"]]
        await a.say(*ranges)
    await describe_offsets(queue)


async def limit_of_two(queue: Queue) -> None:
    await queue.configure("share.delivery.count.limit", "2")
    await queue.write(4)
    a = await queue.member("a")
    await a.take()
    await a.say((0, 3, [RELEASE]))
    await a.take()
    await a.say((0, 1, [RELEASE]))
    await a.look()
    await a.look((2, 3, [RELEASE]))
    await describe_offsets(queue)


async def locks(queue: Queue) -> None:
    """A lock that runs out gives the record to another, and whoever had it is told."""
    await queue.configure("share.record.lock.duration.ms", str(LOCK_MS))
    await queue.write(2)
    a, b = await queue.member("a"), await queue.member("b")
    await a.take()
    await b.look()
    await a.say((0, 0, [ACCEPT]))
    await b.take()
    await a.say((1, 1, [ACCEPT]))
    await b.say((1, 1, [ACCEPT]))
    await describe_offsets(queue)


async def renewals(queue: Queue) -> None:
    await queue.configure("share.record.lock.duration.ms", str(LOCK_MS))
    await queue.write(2)
    a, b = await queue.member("a"), await queue.member("b")
    await a.take()
    await a.ask((0, 1, [RENEW]), epoch=a.epoch, is_renew_ack=True)
    for _ in range(3):
        await asyncio.sleep(LOCK_MS / 2000)
        await a.say((0, 1, [RENEW]), is_renew_ack=True)
    await b.look()
    await a.ask((0, 0, [RENEW]), (1, 1, [ACCEPT]), epoch=a.epoch, **_RENEWAL)
    await b.say((0, 0, [RENEW]), epoch=b.epoch, is_renew_ack=True)
    await a.say((5, 5, [RENEW]), is_renew_ack=True)
    await queue.configure("share.renew.acknowledge.enable", "false")
    await a.say((0, 0, [RENEW]), is_renew_ack=True)
    await a.ask((0, 0, [RENEW]), epoch=a.epoch, **_RENEWAL)
    await a.say((0, 0, [RELEASE]), is_renew_ack=True)


async def batches_and_limits(queue: Queue) -> None:
    """Whole batches, pieces of them, and no more than was asked for."""
    await queue.write(5, 1, 1, 10)
    a, b = await queue.member("a"), await queue.member("b")
    await a.take(max_records=2)
    await b.take(max_records=2, share_acquire_mode=1)
    await b.take(max_records=3, share_acquire_mode=1)
    await a.say((0, 4, [RELEASE]))
    await b.take(max_records=2, share_acquire_mode=1)
    await a.take(max_records=2)
    await queue.write(3, 3, 3)
    await a.take(batch_size=2)
    await a.ask(epoch=-1)
    await b.take(max_records=1, share_acquire_mode=1, version=2)
    await b.take(max_records=1, version=1)


async def leaving(queue: Queue) -> None:
    """A session that ends gives back what is held, and takes what is said with its last request."""
    await queue.write(3)
    a, b = await queue.member("a"), await queue.member("b")
    await a.take()
    await a.ask((0, 0, [ACCEPT]), epoch=-1)
    await b.take()
    await b.say((1, 1, [ACCEPT]), epoch=-1)
    await a.take()
    # A connection that ends does the same.
    await a.peer.close()
    await asyncio.sleep(0.5)
    await b.take()


async def retention(queue: Queue) -> None:
    await queue.write(2, 2, 2)
    a = await queue.member("a")
    await a.take(max_records=2)
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=4)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name=queue.topic, partitions=[partition])
    deleted = await queue.root.request(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    assert deleted.topics[0].partitions[0].error_code == 0
    await a.take()
    await a.say((0, 1, [ACCEPT]))
    await a.say((4, 5, [ACCEPT]))
    await describe_offsets(queue)


async def unknown_topics(queue: Queue) -> None:
    await queue.write(1)
    a = await queue.member("a")
    await a.take()
    for topic_id, index in ((Uuid(b"\x07" * 16), 0), (queue.topic_id, 7)):
        say = shares.ShareAcknowledgeRequest
        queue.note("an unknown partition", index)
        told = say.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
        partition = say.AcknowledgePartition(partition_index=index, acknowledgement_batches=[told])
        await a.say(topics=[say.AcknowledgeTopic(topic_id=topic_id, partitions=[partition])])


async def offsets(queue: Queue) -> None:
    """As administrators see and set them."""
    await queue.write(5)
    await describe_offsets(queue)
    await _alter(queue, {queue.topic: {0: 1}})
    a = await queue.member("a")
    await a.take(max_records=1, share_acquire_mode=1)
    await a.say((0, 0, [ACCEPT]))
    await _alter(queue, {queue.topic: {0: 1}})
    await _delete(queue, queue.topic)
    await _delete_group(queue)
    await a.ask(epoch=-1)
    await a.leave()
    await _alter(queue, {queue.topic: {0: 3}})
    await describe_offsets(queue)
    await _alter(queue, {queue.topic: {7: 3}})
    await _alter(queue, {"nowhere": {0: 3}})
    await _delete(queue, "nowhere")
    await _delete(queue, queue.topic)
    await describe_offsets(queue)
    await _delete(queue, queue.topic)
    c = await queue.member("c")
    await c.leave()
    await _delete_group(queue)
    await describe_offsets(queue)
    await _alter(queue, {queue.topic: {0: 2}})
    await _delete(queue, queue.topic)


async def heartbeats(queue: Queue) -> None:
    a = await queue.stranger("a")

    async def beat(who: Member, epoch: int, topics: list[str] | None = None, **fields: Any) -> None:
        """`epoch` from 100 on is as far behind that of the member."""
        asked = epoch if epoch < 100 else who.member_epoch + epoch - 100
        told = await who.beat(asked, topics, **fields)
        if told.member_epoch > 0 and not told.error_code:
            who.member_epoch = told.member_epoch
        chosen = " ".join(f"{name}={value}" for name, value in fields.items())
        named = None if topics is None else len(topics)
        queue.note(f"{who.letter} beats in {epoch} of {named} topics {chosen}".strip(), code(told.error_code))

    await beat(a, 5)
    await beat(a, -1)
    await beat(a, 0)
    await beat(a, 0, [])
    await beat(a, 0, [queue.topic], member_id="")
    await beat(a, 0, [queue.topic], group_id="")
    await beat(a, 0, [queue.topic], rack_id="")
    await beat(a, -2, [queue.topic])
    await beat(a, 0, [queue.topic])
    await a.join()
    await beat(a, 100)
    await beat(a, 107)
    await beat(a, 100, [])
    await beat(a, 100, ["nowhere"])
    b = await queue.stranger("b")
    await beat(b, 3, [queue.topic])
    other = ConsumerGroupHeartbeatRequest(
        group_id=queue.group, member_id=b.id, member_epoch=0, rebalance_timeout_ms=5000,
        subscribed_topic_names=[queue.topic], topic_partitions=[],
    )  # fmt: skip
    queue.note("a consumer comes", code((await queue.root.request(other, 1)).error_code))
    await beat(a, -1)
    await beat(a, -1)


async def descriptions(queue: Queue) -> None:
    async def describe(*group_ids: str) -> None:
        asked = shares.ShareGroupDescribeRequest(group_ids=list(group_ids))
        groups = (await queue.root.request(asked, 1)).groups
        for each in sorted(groups, key=lambda each: str(each.group_id)):
            told = [code(each.error_code), each.group_state, each.assignor_name, len(each.members)]
            queue.note(f"describe {'the group' if each.group_id == queue.group else each.group_id}", told)

    await describe(queue.group)
    await describe("nobody", "")
    a = await queue.member("a")
    await describe(queue.group)
    await a.leave()
    await describe(queue.group)
    await _delete_group(queue)
    await describe(queue.group)
    await _delete_group(queue)


async def states(queue: Queue) -> None:
    """What brokers say to share coordinators."""
    topic_id = queue.topic_id

    async def ask(request: Any, data: Any, wrapped: Any, version: int = 0, **group: Any) -> None:
        asked = request(topics=[wrapped(topic_id=topic_id, partitions=[data])], **({"group_id": queue.group} | group))
        (result,) = (await queue.root.request(asked, version)).results
        (told,) = result.partitions
        kept = {name: getattr(told, name) for name in ("state_epoch", "start_offset") if hasattr(told, name)}
        batches = [
            [each.first_offset, each.last_offset, each.delivery_state, each.delivery_count]
            for each in getattr(told, "state_batches", ())
        ]
        words = f"{request.__name__} {data!r} {group or ''}".replace("PartitionData", "").strip()
        queue.note(words, [code(told.error_code), kept, batches] if not told.error_code else code(told.error_code))

    async def initialize(state_epoch: int, start_offset: int, **group: Any) -> None:
        request = shares.InitializeShareGroupStateRequest
        data = request.PartitionData(partition=0, state_epoch=state_epoch, start_offset=start_offset)
        await ask(request, data, request.InitializeStateData, **group)

    async def read(leader_epoch: int, **group: Any) -> None:
        request = shares.ReadShareGroupStateRequest
        await ask(
            request, request.PartitionData(partition=0, leader_epoch=leader_epoch), request.ReadStateData, **group
        )

    async def write(state_epoch: int, leader_epoch: int, start: int, *batches: tuple[int, int, int, int]) -> None:
        request = shares.WriteShareGroupStateRequest
        told = [
            request.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ]
        data = request.PartitionData(
            partition=0, state_epoch=state_epoch, leader_epoch=leader_epoch, start_offset=start, state_batches=told
        )
        await ask(request, data, request.WriteStateData)

    async def summarize(leader_epoch: int) -> None:
        request = shares.ReadShareGroupStateSummaryRequest
        data = request.PartitionData(partition=0, leader_epoch=leader_epoch)
        await ask(request, data, request.ReadStateSummaryData)

    async def delete(**group: Any) -> None:
        request = shares.DeleteShareGroupStateRequest
        await ask(request, request.PartitionData(partition=0), request.DeleteStateData, **group)

    member = await queue.member("a")  # Its group's state is initialized, and so the topic of states is there.
    await member.leave()
    await _delete_group(queue)
    await asyncio.sleep(1.0)
    await read(0)
    await write(0, 0, 0)
    await summarize(0)
    await delete()
    await initialize(3, 10)
    await initialize(2, 10)
    await initialize(3, 12)
    await summarize(0)
    await read(4)
    await read(3)
    await write(3, 4, -1, (12, 20, 2, 1), (22, 22, 0, 2))
    await write(2, 4, 12, (12, 20, 2, 1))
    await write(4, 4, 12, (12, 20, 2, 1))
    await write(3, 3, 12, (12, 20, 2, 1))
    await read(4)
    await write(3, 5, 14, (15, 16, 4, 5), (21, 21, 2, 1))
    await read(5)
    await summarize(5)
    await write(3, 5, 23)
    await read(6)
    await initialize(4, 30)
    await read(6)
    await delete()
    await read(6)


async def describe_offsets(queue: Queue) -> None:
    request = shares.DescribeShareGroupOffsetsRequest
    for topics in (None, [request.DescribeShareGroupOffsetsRequestTopic(topic_name=queue.topic, partitions=[0])]):
        group = request.DescribeShareGroupOffsetsRequestGroup(group_id=queue.group, topics=topics)
        answer = await queue.root.request(request(groups=[group]), 1)
        (told,) = answer.groups
        found = [
            # Kafka tells the start offset that is stored, which is behind; that is told in docs/queues.md.
            [each.partition_index, each.lag, code(each.error_code)]
            for topic in told.topics
            for each in topic.partitions
        ]
        queue.note(f"offsets of {'all' if topics is None else 'the'} topics", [code(told.error_code), found])


async def _alter(queue: Queue, wanted: dict[str, dict[int, int]]) -> None:
    request = shares.AlterShareGroupOffsetsRequest
    topics = [
        request.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                request.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in partitions.items()
            ],
        )
        for name, partitions in wanted.items()
    ]
    answer = await queue.root.request(request(group_id=queue.group, topics=topics), 0)
    codes = [code(each.error_code) for topic in answer.responses for each in topic.partitions]
    indexes = [list(each.values()) for each in wanted.values()]
    queue.note(f"set offsets {indexes}", code(answer.error_code) if answer.error_code else codes)


async def _delete(queue: Queue, name: str) -> None:
    request = shares.DeleteShareGroupOffsetsRequest
    topic = request.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
    answer = await queue.root.request(request(group_id=queue.group, topics=[topic]), 0)
    codes = [code(each.error_code) for each in answer.responses]
    queue.note("delete offsets", code(answer.error_code) if answer.error_code else codes)


async def _delete_group(queue: Queue) -> None:
    from tailrace.wire.apis.groups import DeleteGroupsRequest

    answer = await queue.root.request(DeleteGroupsRequest(groups_names=[queue.group]), 2)
    queue.note("delete the group", code(answer.results[0].error_code))


SCENARIOS: tuple[Scenario, ...] = (
    sessions,
    nonsense,
    not_held,
    types_of_each,
    counts,
    limit_of_two,
    locks,
    renewals,
    batches_and_limits,
    leaving,
    retention,
    unknown_topics,
    offsets,
    heartbeats,
    descriptions,
    states,
)
