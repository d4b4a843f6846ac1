"""Who may see and use groups, and the topics of which they tell.

What a group has committed or was assigned tells of topics: those that may not be described are refused or left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.broker.access.access import refusal
from tailrace.broker.access.judging import (
    access_of,
    ask,
    change_answer,
    keep_allowed,
    may_by_cluster,
    name_of,
    require,
)
from tailrace.coordinator.streams.topology import topic_names
from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)
from tailrace.wire.apis.shares import ShareGroupDescribeResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.apis.groups import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupHeartbeatRequest,
        DescribeGroupsRequest,
        FindCoordinatorRequest,
        ListGroupsRequest,
        ListGroupsResponse,
        OffsetDeleteRequest,
        OffsetFetchRequest,
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeResponse,
        StreamsGroupHeartbeatRequest,
    )
    from tailrace.wire.apis.shares import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest

_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_FIRST_FIND_OF_MANY = 4
_FIRST_FIND_OF_SHARES = 6
_FIRST_OFFSET_FETCH_OF_GROUPS = 8
_SHARE_KEYS = 2
# By the type of the key that a coordinator is looked for by.
_KINDS = {0: Kind.GROUP, 1: Kind.TRANSACTIONAL_ID}


def judge_find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorRequest:
    if request.key_type == _SHARE_KEYS and context.api_version >= _FIRST_FIND_OF_SHARES:
        require(services, context, Operation.CLUSTER_ACTION, Kind.CLUSTER)
    kind = _KINDS.get(request.key_type)
    if kind is None:
        return request
    if context.api_version < _FIRST_FIND_OF_MANY:
        require(services, context, Operation.DESCRIBE, kind, request.key)
        return request
    error = refusal(context, Operation.DESCRIBE, kind)
    kept: FindCoordinatorRequest = keep_allowed(
        context,
        request,
        "coordinator_keys",
        lambda key: None if ask(services, context, Operation.DESCRIBE, kind, key) else error,
    )
    return kept


def judge_offset_fetch(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchRequest:
    if context.api_version < _FIRST_OFFSET_FETCH_OF_GROUPS:
        require(services, context, Operation.DESCRIBE, Kind.GROUP, request.group_id)
        _keep_topics(services, context, request, group_id=None)
        return request
    error = refusal(context, Operation.DESCRIBE, Kind.GROUP)
    kept: OffsetFetchRequest = keep_allowed(
        context,
        request,
        "groups",
        lambda group: None if ask(services, context, Operation.DESCRIBE, Kind.GROUP, group.group_id) else error,
    )
    for group in kept.groups:
        _keep_topics(services, context, group, group_id=group.group_id)
    return kept


def _keep_topics(services: Services, context: RequestContext, asked: Any, *, group_id: str | None) -> None:
    """`asked` is the request of an old version, or one of the groups that a new one asks for."""

    def may(topic: Any) -> bool:
        name = name_of(services, topic, "name")
        return name is None or ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name)

    if asked.topics is None:
        change_answer(context, lambda answer: _change_topics(answer, group_id, lambda told: list(filter(may, told))))
        return
    allowed = [topic for topic in asked.topics if may(topic)]
    if len(allowed) < len(asked.topics):
        refused = [_refuse_offsets(topic, group_id) for topic in asked.topics if topic not in allowed]
        asked.topics = allowed
        change_answer(context, lambda answer: _change_topics(answer, group_id, lambda told: [*told, *refused]))


def _change_topics(answer: OffsetFetchResponse, group_id: str | None, change: Any) -> OffsetFetchResponse:
    """Where the coordinator has answered with offsets."""
    for told in [answer] if group_id is None else [each for each in answer.groups if each.group_id == group_id]:
        if not told.error_code:
            told.topics = change(told.topics)
    return answer


def _refuse_offsets(topic: Any, group_id: str | None) -> Any:
    if group_id is None:
        return OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=_REFUSED
                )
                for index in topic.partition_indexes
            ],
        )
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=_REFUSED
            )
            for index in topic.partition_indexes
        ],
    )


def judge_offset_delete(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteRequest:
    """The coordinator is asked even if no topic is left: that there is no such group is said first."""
    allowed = [topic for topic in request.topics if ask(services, context, Operation.READ, Kind.TOPIC, topic.name)]
    refused = [
        OffsetDeleteResponse.OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=each.partition_index, error_code=_REFUSED
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
        if topic not in allowed
    ]

    def join(answer: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not answer.error_code:
            answer.topics = [*answer.topics, *refused]
        return answer

    if refused:
        request.topics = allowed
        change_answer(context, join)
    return request


def judge_consumer_group_heartbeat(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest:
    names = request.subscribed_topic_names or ()
    # All are asked, so that the log has them all.
    answers = [ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name) for name in names]
    if not all(answers):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"DESCRIBE on a topic of the subscription is not allowed to {context.principal}",
        )
    return request


def judge_told_operations(
    services: Services, context: RequestContext, request: DescribeGroupsRequest | ConsumerGroupDescribeRequest
) -> DescribeGroupsRequest | ConsumerGroupDescribeRequest:
    """What may be done with a group, as its description tells it."""

    def tell(answer: Any) -> Any:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = access_of(services).operations(context, Kind.GROUP, group.group_id)
        return answer

    if request.include_authorized_operations:
        change_answer(context, tell)
    return request


def judge_consumer_group_describe(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeRequest:
    """A group with a topic that may not be described is not described."""

    def is_hidden(group: ConsumerGroupDescribeResponse.DescribedGroup) -> bool:
        names = {
            each.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for each in assignment.topic_partitions
        }
        answers = [ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name) for name in names]
        return not all(answers)

    def hide(answer: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        answer.groups = [
            ConsumerGroupDescribeResponse.DescribedGroup(
                group_id=group.group_id,
                error_code=_REFUSED,
                error_message="The group has topics that may not be described.",
            )
            if is_hidden(group)
            else group
            for group in answer.groups
        ]
        return answer

    change_answer(context, hide)
    return request


def judge_share_group_describe(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeRequest:
    """A group with a topic that may not be described is not described."""

    def is_hidden(group: ShareGroupDescribeResponse.DescribedGroup) -> bool:
        names = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
        answers = [ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name) for name in names]
        return not all(answers)

    def hide(answer: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        for group in filter(is_hidden, answer.groups):
            group.error_code, group.error_message = _REFUSED, "The group has topics that may not be described."
            group.members = []
        return answer

    change_answer(context, hide)
    return request


def judge_streams_group_heartbeat(
    services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatRequest:
    """All topics of the topology must be known to the member. Those that are to be created are judged then."""
    names = set(topic_names(request.topology))
    # All are asked, so that the log has them all.
    answers = [ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name) for name in sorted(names)]
    if not all(answers):
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"DESCRIBE on a topic of the topology is not allowed to {context.principal}",
        )
    return request


def judge_streams_group_describe(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeRequest:
    """A group with a topic that may not be described is not described."""

    def is_hidden(group: StreamsGroupDescribeResponse.DescribedGroup) -> bool:
        names = set(topic_names(group.topology))
        answers = [ask(services, context, Operation.DESCRIBE, Kind.TOPIC, name) for name in sorted(names)]
        return not all(answers)

    def hide(answer: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        for group in filter(is_hidden, answer.groups):
            group.error_code = _REFUSED
            group.error_message = "The described group uses topics that the client is not authorized to describe."
            group.members, group.topology = [], None
        return answer

    change_answer(context, hide)
    return request


def judge_list_groups(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsRequest:
    def without_hidden(answer: ListGroupsResponse) -> ListGroupsResponse:
        answer.groups = [
            group
            for group in answer.groups
            if ask(services, context, Operation.DESCRIBE, Kind.GROUP, group.group_id, is_logged=False)
        ]
        return answer

    if not may_by_cluster(services, context, Operation.DESCRIBE):
        change_answer(context, without_hidden)
    return request
