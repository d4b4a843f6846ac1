"""Share groups at their coordinator: heartbeats, descriptions, and offsets as an administrator sees and sets them.

The coordinator of a group knows which share-partitions it has; where each of them stands share coordinators know. So
requests about offsets ask those, and answer once what the group remembers of it is committed.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.broker.handlers.groups.parts import ask_each
from tailrace.broker.shares.groups import check_enabled
from tailrace.broker.shares.offsets import about_places, decide_on, find_share_shard, set_start_offsets
from tailrace.coordinator.shares.change import joined
from tailrace.coordinator.shares.group import ShareGroup, ShareTopic, ShareTopics
from tailrace.coordinator.shares.states import (
    begin_deletion,
    find_share_group,
    on_deleted,
)
from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, PartitionIndex, Uuid
from tailrace.wire.apis.data import ListOffsetsRequest, ListOffsetsResponse
from tailrace.wire.apis.shares import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupStateRequest,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ReadShareGroupStateSummaryRequest,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.broker.services import Services
    from tailrace.coordinator.machine import GroupMachine
    from tailrace.wire.schema import Message

_LATEST = -1
_LIST_TIMEOUT_MS = 5000
_CHANNEL = "shares"
_FIRST_VERSION_WITH_LAG = 1
_NO_OFFSET = -1

Place = tuple[Uuid, int]


def handle_share_group_heartbeat(
    services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> CoordinatorCall:
    check_enabled(services.image)
    call = CoordinatorCall(context, request)
    services.coordination.groups.submit(request.group_id, call)
    return call


def handle_share_group_describe(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    check_enabled(services.image)
    with_operations = request.include_authorized_operations
    parts = [
        (group_id, ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=with_operations))
        for group_id in request.group_ids
    ]
    return ask_each(services, context, parts, _join_described)


def _join_described(answers: list[ShareGroupDescribeResponse]) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])


# ---- where a group stands


async def handle_describe_share_group_offsets(
    services: Services, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    check_enabled(services.image)
    groups = []
    for asked in request.groups:
        try:
            topics = await _describe_offsets(services, context, asked)
            groups.append(
                DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup(
                    group_id=asked.group_id, topics=topics
                )
            )
        except KafkaError as error:
            groups.append(
                DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup(
                    group_id=asked.group_id, error_code=int(error.code), error_message=error.message or None
                )
            )
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _describe_offsets(services: Services, context: RequestContext, asked: Any) -> list[Any]:
    _, group = find_share_shard(services.coordination, asked.group_id)
    image, initialized = services.image, group.initialized
    if asked.topics is None:
        wanted = [
            (topic_id, topic.name, sorted(topic.partitions))
            for topic_id, topic in initialized.items()
            if topic_id in image.topic_names
        ]
    else:
        wanted = [
            (image.topics[each.topic_name].id if each.topic_name in image.topics else ZERO_UUID, each.topic_name,
             each.partitions)
            for each in asked.topics
        ]  # fmt: skip
    hidden = {name for _, name, _ in wanted if not _may_describe(services, context, name)}
    if asked.topics is None:
        wanted = [each for each in wanted if each[1] not in hidden]
    known = {
        (topic_id, index)
        for topic_id, name, partitions in wanted
        for index in partitions
        if name not in hidden and topic_id in initialized and index in initialized[topic_id].partitions
    }
    request = ReadShareGroupStateSummaryRequest
    found = await services.coordination.share_states.ask(
        about_places(
            request(group_id=asked.group_id),
            request.ReadStateSummaryData,
            known,
            lambda place: request.PartitionData(partition=place[1], leader_epoch=-1),
        )
    )
    ends = await _ends(services, known) if context.api_version >= _FIRST_VERSION_WITH_LAG else {}
    answer = DescribeShareGroupOffsetsResponse
    return [
        answer.DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=topic_id,
            partitions=[
                _refused_offset(index)
                if name in hidden
                else _described(index, found.get((topic_id, index)), ends.get((topic_id, index)))
                for index in partitions
            ],
        )
        for topic_id, name, partitions in wanted
    ]


def _may_describe(services: Services, context: RequestContext, name: str) -> bool:
    return services.access is None or services.access.may(context, Operation.DESCRIBE, Kind.TOPIC, name)


def _refused_offset(index: int) -> Any:
    return DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=_NO_OFFSET, error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )


def _described(index: int, found: Any, end: int | None) -> Any:
    partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=_NO_OFFSET
    )
    if found is None:
        return partition
    if found.error_code:
        partition.error_code, partition.error_message = found.error_code, found.error_message
        return partition
    partition.start_offset, partition.leader_epoch = found.start_offset, found.leader_epoch
    is_known = end is not None and found.start_offset >= 0 and found.delivery_complete_count >= 0
    if is_known:
        partition.lag = max(0, cast("int", end) - found.start_offset - found.delivery_complete_count)
    return partition


async def _ends(services: Services, places: set[Place]) -> dict[Place, int]:
    """Where partitions end for consumers, as their leaders tell it; what nobody tells is left out."""
    by_leader: dict[int, list[Place]] = {}
    ends: dict[Place, int] = {}
    for place in places:
        topic = services.image.topic_by_id(place[0])
        state = None if topic is None else topic.partitions.get(PartitionIndex(place[1]))
        if topic is None or state is None or state.leader < 0:
            continue
        if state.leader == services.node_id:
            ends[place] = services.replicas.find(topic.name, place[1]).high_watermark
        else:
            by_leader.setdefault(state.leader, []).append(place)
    for found in await gather(*(_ends_at(services, leader, each) for leader, each in by_leader.items())):
        ends |= found
    return ends


async def _ends_at(services: Services, leader: int, places: list[Place]) -> dict[Place, int]:
    names = services.image.topic_names
    request = ListOffsetsRequest
    topics: dict[str, list[Any]] = {}
    for topic_id, index in places:
        topics.setdefault(names[topic_id], []).append(
            request.ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
        )
    try:
        answer = await services.node.call_broker(
            leader,
            request(
                replica_id=-1,
                topics=[request.ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
            ),
            ListOffsetsResponse,
            channel=_CHANNEL,
            timeout_ms=_LIST_TIMEOUT_MS,
        )
    except KafkaError:
        return {}
    ids = {names[topic_id]: topic_id for topic_id, _ in places}
    return {
        (ids[topic.name], each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code
    }


# ---- offsets are set and forgotten


async def handle_alter_share_group_offsets(
    services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> CoordinatorCall:
    call = CoordinatorCall(context, request)
    await set_start_offsets(services.image, services.coordination, call)
    return call


async def handle_delete_share_group_offsets(
    services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> CoordinatorCall:
    check_enabled(services.image)
    shard, group = _find(services, request.group_id)
    group.check_deletion()
    known = joined(joined(group.initialized, group.initializing), _deleting(services, group))
    ids = {topic.name: topic_id for topic_id, topic in known.items()}
    names = [topic.topic_name for topic in request.topics]
    topic_ids = frozenset(ids[name] for name in names if name in ids)
    again = {topic_id: topic for topic_id, topic in _deleting(services, group).items() if topic_id in topic_ids}
    going = decide_on(shard, lambda state, call: begin_deletion(state, call, request.group_id, topic_ids))
    failed = await _delete_states(services, request.group_id, joined(going, again))
    machine = cast("GroupMachine", shard.machine)
    gone = frozenset(topic_ids - failed.keys())
    shard.decide(lambda call: [on_deleted(machine.state, call, request.group_id, gone)])
    answer = DeleteShareGroupOffsetsResponse
    responses = []
    for name in names:
        topic_id = ids.get(name, ZERO_UUID)
        error = failed.get(topic_id)
        if name not in ids:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The group has no offsets of topic {name}.")
        responses.append(
            answer.DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic_id,
                error_code=0 if error is None else int(error.code),
                error_message=None if error is None else error.message,
            )
        )
    return _confirm(shard, context, request, answer(responses=responses))


async def delete_share_group(services: Services, group_id: str) -> None:
    """The states of its share-partitions, before the group itself is deleted. Raises KafkaError if one cannot be."""
    _, group = _find(services, group_id)
    group.check_deletion()
    known = joined(joined(group.initialized, group.initializing), _deleting(services, group))
    for error in (await _delete_states(services, group_id, known)).values():
        raise error


def is_share_group(services: Services, group_id: str) -> bool:
    """Of those that are coordinated here."""
    try:
        _find(services, group_id)
    except KafkaError:
        return False
    return True


def _deleting(services: Services, group: ShareGroup) -> ShareTopics:
    """Topics whose deletion was begun, with all partitions that they have now."""
    return {
        topic_id: ShareTopic(name, frozenset(topic.partitions))
        for topic_id, name in group.deleting.items()
        if (topic := services.image.topic_by_id(topic_id)) is not None
    }


async def _delete_states(services: Services, group_id: str, topics: ShareTopics) -> dict[Uuid, KafkaError]:
    request = DeleteShareGroupStateRequest
    places = {(topic_id, index) for topic_id, topic in topics.items() for index in topic.partitions}
    results = await services.coordination.share_states.ask(
        about_places(
            request(group_id=group_id),
            request.DeleteStateData,
            places,
            lambda place: request.PartitionData(partition=place[1]),
        )
    )
    return {
        topic_id: KafkaError(ErrorCode(result.error_code), result.error_message or "")
        for (topic_id, _), result in results.items()
        if result.error_code
    }


# ---- what these have in common


def _find(services: Services, group_id: str) -> tuple[Shard, ShareGroup]:
    """Raises KafkaError."""
    shard = services.coordination.groups.find(group_id)
    return shard, find_share_group(cast("GroupMachine", shard.machine).state, group_id)


def _confirm(shard: Shard, context: RequestContext, request: Message, answer: Message) -> CoordinatorCall:
    call = CoordinatorCall(context, request)
    shard.confirm(call, answer)
    return call
