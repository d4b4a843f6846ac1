"""What there is: ListGroups, DescribeGroups of classic groups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.coordinator.classic.group import ClassicGroup, ClassicState
from tailrace.coordinator.groups import Group, GroupState, GroupType, shown
from tailrace.coordinator.offsets.batch_capacity import BatchCapacity
from tailrace.coordinator.offsets.deletion import places_of
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.op import Call, Caller, Result, Steps, StoredRecord, unchanged
from tailrace.model.acls import OPERATIONS, Kind, bit_field
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsResponse,
)

_Described = DescribeGroupsResponse.DescribedGroup
_Member = DescribeGroupsResponse.DescribedGroupMember

# What may be done to a group, as bits by the numbers of Kafka's AclOperation. Without ACLs everybody may.
ALL_GROUP_OPERATIONS = bit_field(OPERATIONS[Kind.GROUP])
_FIRST_DESCRIBE_WITH_NOT_FOUND = 6
_DEAD = "Dead"


def list_group(
    state: GroupState, group_id: str, *, states: Collection[str], types: Collection[str]
) -> ListGroupsResponse.ListedGroup | None:
    """None if it does not pass the filters, or is gone. They are in lower case, and pass everything if empty."""
    group = find_group(state, group_id)
    if group is None or (states and group.state_name.lower() not in states):
        return None
    if types and group.type.value not in types:
        return None
    return ListGroupsResponse.ListedGroup(
        group_id=group_id,
        protocol_type=group.protocol_type,
        group_state=group.state_name,
        group_type=group.type.value,
    )


def describe_group(state: GroupState, _call: Call, caller: Caller, request: DescribeGroupsRequest) -> Result:
    (group_id,) = request.groups
    group = find_group(state, group_id)
    if group is None:
        described = _not_found(caller, group_id, f"Group {shown(group_id)} not found.")
    elif group.type is not GroupType.CLASSIC:
        described = _not_found(caller, group_id, f"Group {shown(group_id)} is not a classic group.")
    else:
        described = _Described(
            group_id=group_id, group_state=group.state_name, protocol_type=group.protocol_type, protocol_data=""
        )
        if isinstance(group, ClassicGroup):
            _describe_members(described, group)
        if request.include_authorized_operations:
            described.authorized_operations = ALL_GROUP_OPERATIONS
    return Result(answers=((caller, DescribeGroupsResponse(groups=[described])),))


def _describe_members(described: _Described, group: ClassicGroup) -> None:
    """Their metadata is told of a stable group alone: before, it is not decided which protocol it belongs to."""
    is_stable = group.state is ClassicState.STABLE
    described.protocol_data = (group.protocol_name or "") if is_stable else ""
    described.members = [
        _Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


def _not_found(caller: Caller, group_id: str, message: str) -> _Described:
    described = _Described(group_id=group_id, group_state=_DEAD, protocol_type="", protocol_data="")
    if caller.api_version >= _FIRST_DESCRIBE_WITH_NOT_FOUND:
        described.error_code, described.error_message = ErrorCode.GROUP_ID_NOT_FOUND, message
    return described


def delete_group(state: GroupState, _call: Call, caller: Caller, request: DeleteGroupsRequest) -> Result:
    """With its offsets; only without members. Many offsets go in several batches, the group with the last of them."""
    (group_id,) = request.groups_names
    return _delete_some(state, _find_deletable(state, group_id), caller)


def _find_deletable(state: GroupState, group_id: str) -> Group:
    group = find_group(state, group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    group.check_deletion()
    return group


def _delete_some(state: GroupState, group: Group, caller: Caller) -> Result:
    """As many offsets as one batch takes; if they are all, also the group."""
    group_id, room = group.group_id, BatchCapacity()
    records: list[StoredRecord] = []
    for topic, partition in places_of(state, group_id):
        if not room.takes(group_id, topic):
            # Each caller has work of its own: two may ask for the same group.
            state.work[f"offsets.delete {id(caller)}", group_id] = lambda _: _delete_more(state, group_id, caller)
            return Result(records, on_refused=unchanged)
        records.append(offset_record(group_id, topic, partition, None))
    records += group.deletion_records()
    return Result(records, ((caller, _deleted(group_id, ErrorCode.NONE)),), on_refused=unchanged)


def _delete_more(state: GroupState, group_id: str, caller: Caller) -> Steps:
    yield
    try:
        group = _find_deletable(state, group_id)
    except KafkaError as error:
        return Result(answers=((caller, _deleted(group_id, error.code)),))
    return _delete_some(state, group, caller)


def _deleted(group_id: str, error: ErrorCode) -> DeleteGroupsResponse:
    result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
    return DeleteGroupsResponse(results=[result])
