"""Start offsets of a share group are set, by whoever coordinates it: for an administrator, or a link that mirrors them.

The group's coordinator fences whoever knows the state before, share coordinators keep the new one, and the answer waits
until what the group remembers of it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tailrace.broker.shares.groups import check_enabled
from tailrace.coordinator.shares.group import ShareGroup, ShareTopic
from tailrace.coordinator.shares.states import begin_reset, on_initialized, share_group_or_new
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis.shares import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    InitializeShareGroupStateRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.broker.coordinators.calls import CoordinatorCall
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.controller.image import MetadataImage
    from tailrace.coordinator.machine import GroupMachine

Place = tuple[Uuid, int]


async def set_start_offsets(image: MetadataImage, coordination: Coordination, call: CoordinatorCall) -> None:
    """Begins the answer to an AlterShareGroupOffsets. Raises KafkaError, while the group has members for one."""
    check_enabled(image)
    request = call.request
    assert isinstance(request, AlterShareGroupOffsetsRequest), "what this answers"
    shard, group = find_share_shard(coordination, request.group_id)
    group.check_deletion()
    offsets: dict[Place, int] = {}
    for topic in request.topics:
        found = image.topics.get(topic.topic_name)
        for each in topic.partitions:
            if found is not None and each.partition_index in found.partitions:
                offsets[found.id, each.partition_index] = each.start_offset
    wanted = _topics(offsets, image.topic_names)
    epoch = decide_on(shard, lambda state, op: begin_reset(state, op, request.group_id, wanted))
    initialize = InitializeShareGroupStateRequest
    results = await coordination.share_states.ask(
        about_places(
            initialize(group_id=request.group_id),
            initialize.InitializeStateData,
            set(offsets),
            lambda place: initialize.PartitionData(partition=place[1], state_epoch=epoch, start_offset=offsets[place]),
        )
    )
    done = {place: offsets[place] for place, result in results.items() if not result.error_code}
    machine = cast("GroupMachine", shard.machine)
    shard.decide(lambda op: [on_initialized(machine.state, op, request.group_id, _topics(done, image.topic_names))])
    shard.confirm(call, _answer(image, request, results))


def _answer(
    image: MetadataImage, request: AlterShareGroupOffsetsRequest, results: Mapping[Place, Any]
) -> AlterShareGroupOffsetsResponse:
    answer = AlterShareGroupOffsetsResponse
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    responses = []
    for topic in request.topics:
        topic_id = image.topics[topic.topic_name].id if topic.topic_name in image.topics else ZERO_UUID
        partitions = []
        for each in topic.partitions:
            result = results.get((topic_id, each.partition_index))
            partitions.append(
                answer.AlterShareGroupOffsetsResponsePartition(
                    partition_index=each.partition_index,
                    error_code=unknown if result is None else result.error_code,
                    error_message=None if result is None else result.error_message,
                )
            )
        responses.append(
            answer.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions
            )
        )
    return answer(responses=responses)


def find_share_shard(coordination: Coordination, group_id: str) -> tuple[Shard, ShareGroup]:
    """With the group, or a new one. Raises KafkaError."""
    shard = coordination.groups.find(group_id)
    return shard, share_group_or_new(cast("GroupMachine", shard.machine).state, group_id)


def decide_on(shard: Shard, begin: Any) -> Any:
    """What an op that gives more than a result has found. Nothing is refused any more: it was looked before."""
    found: list[Any] = []

    def decide(call: Any) -> list[Any]:
        value, result = begin(cast("GroupMachine", shard.machine).state, call)
        found.append(value)
        return [result]

    shard.decide(decide)
    if not found:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The coordinator failed; the broker's log says why.")
    return found[0]


def about_places(request: Any, topic_type: Any, places: set[Place], describe: Any) -> Any:
    """The request, with what `describe` gives for each of these share-partitions."""
    topics: dict[Uuid, Any] = {}
    for place in sorted(places):
        if place[0] not in topics:
            topics[place[0]] = topic_type(topic_id=place[0])
        topics[place[0]].partitions.append(describe(place))
    request.topics = list(topics.values())
    return request


def _topics(places: Mapping[Place, int], names: Mapping[Uuid, str]) -> dict[Uuid, ShareTopic]:
    topics: dict[Uuid, ShareTopic] = {}
    for topic_id, index in places:
        known = topics.get(topic_id) or ShareTopic(names[topic_id], frozenset())
        topics[topic_id] = ShareTopic(known.name, known.partitions | {index})
    return topics
