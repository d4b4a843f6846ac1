"""ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups.

A client lists the groups of all brokers, and asks each group's coordinator about the rest.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Coroutine
from typing import TYPE_CHECKING, cast

from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.broker.handlers.groups.parts import answer_of, ask_each
from tailrace.broker.handlers.groups.shares import delete_share_group, is_share_group
from tailrace.coordinator.listing import list_group
from tailrace.coordinator.offsets.simple import all_group_ids
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services
    from tailrace.coordinator.machine import GroupMachine
    from tailrace.wire.schema import Message

# Listed before the loop turns; each takes about two microseconds.
_GROUPS_PER_TURN = 200


async def handle_list_groups(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    try:
        shards = services.coordination.groups.active_shards()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    states = {state.strip().lower() for state in request.states_filter}
    types = {each.strip().lower() for each in request.types_filter}
    calls = []
    for shard in shards:
        machine = cast("GroupMachine", shard.machine)
        listed: dict[str, ListGroupsResponse.ListedGroup] = {}
        for number, group_id in enumerate(all_group_ids(machine.state)):
            if number % _GROUPS_PER_TURN == _GROUPS_PER_TURN - 1:
                await sleep(0)
            group = list_group(machine.state, group_id, states=states, types=types)
            if group is not None:
                listed[group_id] = group
        call = CoordinatorCall(context, request)
        calls.append(call)
        if shard.machine is machine:
            shard.confirm(call, ListGroupsResponse(groups=list(listed.values())))
        else:
            call.fail(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "It was loaded anew meanwhile"))
    # What was listed may not be committed yet, and another leader might not know of it.
    answers = [cast("ListGroupsResponse", await answer_of(call)) for call in calls]
    if any(answer.error_code for answer in answers):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # Clients ask again then.
    return ListGroupsResponse(groups=[group for answer in answers for group in answer.groups])


def handle_describe_groups(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    with_operations = request.include_authorized_operations
    parts = [
        (group_id, DescribeGroupsRequest(groups=[group_id], include_authorized_operations=with_operations))
        for group_id in request.groups
    ]
    return ask_each(services, context, parts, _join_described)


def _join_described(answers: list[DescribeGroupsResponse]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[group for answer in answers for group in answer.groups])


def handle_consumer_group_describe(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    with_operations = request.include_authorized_operations
    parts = [
        (group_id, ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=with_operations))
        for group_id in request.group_ids
    ]
    return ask_each(services, context, parts, _join_described_consumers)


def _join_described_consumers(answers: list[ConsumerGroupDescribeResponse]) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])


def handle_delete_groups(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    # Each group once: the answer is a set in Kafka, and a second deletion would only find nothing.
    names = dict.fromkeys(request.groups_names)
    if any(is_share_group(services, group_id) for group_id in names):
        return _delete_with_shares(services, context, list(names))
    parts = [(group_id, DeleteGroupsRequest(groups_names=[group_id])) for group_id in names]
    return ask_each(services, context, parts, _join_deleted)


async def _delete_with_shares(services: Services, context: RequestContext, names: list[str]) -> DeleteGroupsResponse:
    """What share coordinators keep of a share group goes first: else nobody would know of it."""
    results = []
    for group_id in names:
        try:
            if is_share_group(services, group_id):
                await delete_share_group(services, group_id)
        except KafkaError as error:
            result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=int(error.code))
            results.append(result)
            continue
        call = CoordinatorCall(context, DeleteGroupsRequest(groups_names=[group_id]))
        services.coordination.groups.submit(group_id, call)
        results += cast("DeleteGroupsResponse", await answer_of(call)).results
    return DeleteGroupsResponse(results=results)


def _join_deleted(answers: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[result for answer in answers for result in answer.results])
