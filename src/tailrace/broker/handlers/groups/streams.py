"""Streams groups at their coordinator: heartbeats, descriptions, and the topics that a group makes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, cast

from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.broker.handlers.groups.parts import answer_of, ask_each
from tailrace.controller.effective import group_config
from tailrace.controller.features import STREAMS_VERSION
from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.coordinator.streams.topology import StatusCode
from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services
    from tailrace.coordinator.machine import GroupMachine
    from tailrace.coordinator.streams.topology import InternalTopic
    from tailrace.wire.schema import Message

_PROTOCOL = "streams"
# Topics whose failure a sentence tells.
_FAILURES_TOLD = 3


async def handle_streams_group_heartbeat(
    services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    _check_enabled(services)
    call = CoordinatorCall(context, request)
    services.coordination.groups.submit(request.group_id, call)
    answer = cast("StreamsGroupHeartbeatResponse", await answer_of(call))
    told = [each for each in answer.status or () if each.status_code == StatusCode.MISSING_INTERNAL_TOPICS]
    if told:
        told[0].status_detail += _create_missing(services, context, request.group_id)
    return answer


def handle_streams_group_describe(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    _check_enabled(services)
    with_operations = request.include_authorized_operations
    parts = [
        (group_id, StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=with_operations))
        for group_id in request.group_ids
    ]
    return ask_each(services, context, parts, _join_described)


def _join_described(answers: list[StreamsGroupDescribeResponse]) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])


def _check_enabled(services: Services) -> None:
    is_allowed = _PROTOCOL in services.config.group_coordinator_rebalance_protocols
    if not is_allowed or services.image.features.get(STREAMS_VERSION, 0) < 1:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"There are no streams groups: {STREAMS_VERSION} is 0, or group.coordinator.rebalance.protocols is without"
            f" {_PROTOCOL}.",
        )


def _create_missing(services: Services, context: RequestContext, group_id: str) -> str:
    """Begins to create the group's internal topics. What the member is to know of it ends a sentence."""
    topics = _missing(services, group_id)
    refused = _refused(services, context, topics)
    if refused:
        return f"; Unauthorized to CREATE on topics {', '.join(refused)}."
    interval_ms = group_config(services.config, services.image, group_id).streams_heartbeat_interval_ms
    creations = services.coordination.streams_topics
    creations.create(topics, told_for_ms=2 * interval_ms)
    failures = [f"{name} ({reason})" for name, reason in creations.failures(topics).items()]
    if not failures:
        return ""
    left = len(failures) - _FAILURES_TOLD
    more = f" and {left} more" if left > 0 else ""
    return f"; Creation failed: {', '.join(failures[:_FAILURES_TOLD])}{more}."


def _missing(services: Services, group_id: str) -> dict[str, InternalTopic]:
    """As the coordinator found it in the heartbeat that was just answered."""
    try:
        shard = services.coordination.groups.find(group_id)
    except KafkaError:
        return {}  # Another broker coordinates the group by now.
    group = cast("GroupMachine", shard.machine).state.groups.get(group_id)
    if not isinstance(group, StreamsGroup) or group.configured is None:
        return {}
    return {name: each for name, each in group.configured.missing.items() if name not in services.image.topics}


def _refused(services: Services, context: RequestContext, names: dict[str, InternalTopic]) -> list[str]:
    access = services.access
    if access is None or access.may(context, Operation.CREATE, Kind.CLUSTER, is_logged=False):
        return []
    return [name for name in names if not access.may(context, Operation.CREATE, Kind.TOPIC, name)]
