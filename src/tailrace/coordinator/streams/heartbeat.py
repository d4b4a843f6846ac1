"""StreamsGroupHeartbeat: members join, stay and leave by it.

    member_epoch 0    joins, or joins again, with its topology
    member_epoch > 0  stays
    -1                leaves

What happens to a group happens in heartbeats: the topics of its topology are looked at, new targets are computed, and
the member comes nearer to its own. What has to wait for topics, for more members or for tasks of others waits for the
next heartbeat, and the answer's status says what for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.controller.names import check_topic_name
from tailrace.coordinator.assignors.sticky import Target
from tailrace.coordinator.consumers.targets import records_max_bytes
from tailrace.coordinator.groups import GroupState, GroupType
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Caller, Result, StoredRecord
from tailrace.coordinator.streams.change import StreamsGroupChange, Why
from tailrace.coordinator.streams.endpoints import partitions_by_endpoint
from tailrace.coordinator.streams.group import Basis, StreamsGroup
from tailrace.coordinator.streams.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, StreamsMember
from tailrace.coordinator.streams.records import member_record, read_target, topology_record, write_tasks
from tailrace.coordinator.streams.topology import Configured, Status, StatusCode, Topology, read_topology, topic_names
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import INTERNAL_TOPICS
from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse


def heartbeat(state: GroupState, call: Call, caller: Caller, request: StreamsGroupHeartbeatRequest) -> Result:
    _check_size(call, request.topology)
    _check_topic_names(request.topology)
    _check_features(request)
    _check_request(request)
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return _leave(state, call, caller, request)
    group, records = _find_group(state, call, request)
    is_new_group = group.group_id not in state.groups or bool(records)
    old = _find_member(group, request)
    change = StreamsGroupChange(state, call, group, records)
    member = _updated(old, request, caller)
    if member != old:
        change.records.append(member_record(group.group_id, member))
    change.members[member.member_id] = member
    topology = _find_topology(change, request)
    configured, basis = change.configure(topology)
    _check_tasks(configured, request)
    # From here on nothing is refused: what is not on the log changes at once.
    change.keep_configured(configured)
    why = _why_new_epoch(group, old, member, basis)
    if why is not None:
        change.bump(why, basis, member)
    statuses = list(_stale_topology(group, member))
    _begin_initial_delay(change)
    epoch, target = _target(change, configured, member, statuses)
    owned = None if request.active_tasks is None else read_target(request)
    member = change.reconcile(member, epoch=epoch, target=target, owned=owned)
    change.keep_session(member.member_id)
    if request.shutdown_application and group.shutdown_member_id is None:
        group.shutdown_member_id = member.member_id
    if configured.problem is not None:
        statuses.append(configured.problem)
    if group.shutdown_member_id is not None:
        statuses.append(_shutdown(group.shutdown_member_id))
    is_wanted = request.member_epoch == JOIN_EPOCH or member.assigned != old.assigned
    is_told = _is_to_be_told(group, member, owned, caller, is_wanted=is_wanted)
    answer = _answer(change, member, statuses, is_told=is_told)
    if is_wanted and member.endpoint is not None:
        group.endpoint_epoch += 1
    if group.endpoint_epoch != request.endpoint_information_epoch:
        members = [*(each for each in group.members.values() if each.member_id != member.member_id), member]
        answer.partitions_by_user_endpoint = partitions_by_endpoint(members, configured, call.image)
    if is_new_group:
        group.endpoint_epoch = 0  # As in Kafka, which begins to count with the second heartbeat.
    else:
        answer.endpoint_information_epoch = group.endpoint_epoch
    change.answers.append((caller, answer))
    return change.finish()


# ---- what may be refused


def _check_topic_names(topology: StreamsGroupHeartbeatRequest.Topology | None) -> None:
    names = list(dict.fromkeys(topic_names(topology)))
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited.",
        )
    wrong = [name for name in names if not _is_topic_name(name)]
    if wrong:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(wrong)} are not valid topic names."
        )


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    """What Kafka has fields for, and nothing else yet."""
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None and any(each.source_topic_regex for each in request.topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_request(request: StreamsGroupHeartbeatRequest) -> None:
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for kind, tasks in _told_tasks(request):
            if tasks is None or tasks:
                raise _invalid(f"{kind} must be empty when (re-)joining.")
        if request.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    told = [tasks is not None for _, tasks in _told_tasks(request)]
    if any(told) and not all(told):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _told_tasks(
    request: StreamsGroupHeartbeatRequest,
) -> Sequence[tuple[str, list[StreamsGroupHeartbeatRequest.TaskIds] | None]]:
    return (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    )


def _find_group(
    state: GroupState, call: Call, request: StreamsGroupHeartbeatRequest
) -> tuple[StreamsGroup, list[StoredRecord]]:
    """With what has to be stored to put it in place of an empty classic group."""
    group_id, group = request.group_id, state.groups.get(request.group_id)
    records: list[StoredRecord] = []
    is_joining = request.member_epoch == JOIN_EPOCH
    if is_joining and (group is None or (group.type is GroupType.CLASSIC and group.is_empty)):
        records = [] if group is None else list(group.deletion_records())
        group = StreamsGroup(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
    if not isinstance(group, StreamsGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    members_max = call.config.group_streams_max_size
    if is_joining and len(group.members) >= members_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {members_max} members.",
        )
    return group, records


def _find_member(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> StreamsMember:
    """As it is known so far; one that joins may be new."""
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        return group.members.get(request.member_id) or StreamsMember(request.member_id)
    member = group.member(request.member_id)
    if epoch == member.member_epoch:
        return member
    # The answer that told of the last epoch may have been lost: the one before is as good, unless the member has tasks
    # that are no longer its own.
    is_greater = epoch > member.member_epoch
    is_behind = not is_greater and epoch == member.previous_member_epoch and request.active_tasks is not None
    if not is_behind or not member.assigned.holds(read_target(request)):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {'greater' if is_greater else 'smaller'} member epoch ({epoch}) than the"
            f" one known by the group coordinator ({member.member_epoch}). The member must abandon all its partitions"
            " and rejoin.",
        )
    return member


def _updated(old: StreamsMember, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsMember:
    """Null and -1 stand for no change."""
    endpoint, tags = request.user_endpoint, request.client_tags
    timeout_ms = request.rebalance_timeout_ms
    return old._replace(
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=old.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=old.process_id if request.process_id is None else request.process_id,
        endpoint=old.endpoint if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=old.client_tags if tags is None else tuple(sorted((each.key, each.value) for each in tags)),
        client_id=caller.client_id,
        client_host=caller.client_host,
    )


def _find_topology(change: StreamsGroupChange, request: StreamsGroupHeartbeatRequest) -> Topology:
    """The group's; that of its first member becomes the group's."""
    known = change.group.topology
    if request.topology is None:
        if known is None:
            # Its record was never here: whoever joins brings it.
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, f"Group {request.group_id} has no topology: join it again.")
        return known
    told = read_topology(request.topology)
    if known is None:
        change.records.append(topology_record(change.group.group_id, told))
        return told
    if known.epoch <= told.epoch and known != told:
        raise _invalid("Topology updates are not supported yet.")
    return known


def _check_size(call: Call, topology: StreamsGroupHeartbeatRequest.Topology | None) -> None:
    count, size = 0, 0
    for name in topic_names(topology):
        count, size = count + 1, size + len(name.encode())
    if size > records_max_bytes(call) // 2:
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"A topology of {count} topics is too large to be stored.")


def _check_tasks(configured: Configured, request: StreamsGroupHeartbeatRequest) -> None:
    if not configured.is_ready:
        return
    for _, tasks in _told_tasks(request):
        for each in tasks or ():
            subtopology = configured.subtopologies.get(each.subtopology_id)
            if subtopology is None:
                raise _invalid(f"Subtopology {each.subtopology_id} does not exist in the topology.")
            for partition in each.partitions:
                if not 0 <= partition < subtopology.task_count:
                    raise _invalid(
                        f"Task {partition} for subtopology {each.subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {subtopology.task_count}"
                    )


# ---- what follows


def _why_new_epoch(group: StreamsGroup, old: StreamsMember, member: StreamsMember, basis: Basis) -> Why | None:
    before = group.basis
    if member.member_id not in group.members:
        return Why(Cause.MEMBER_JOINED, f"member {member.member_id} joined, {len(group.members) + 1} now")
    if member != old:
        return Why(Cause.MEMBER_REJOINED, f"member {member.member_id} told other things about itself")
    if basis.validated_topology_epoch != before.validated_topology_epoch:
        what = "there" if basis.validated_topology_epoch >= 0 else "no longer there"
        return Why(Cause.PARTITIONS_CHANGED, f"all that the topology needs is {what}")
    if basis.metadata_hash != before.metadata_hash:
        return Why(Cause.PARTITIONS_CHANGED, "topics of the topology have changed")
    if basis.configs != before.configs:
        return Why(Cause.SUBSCRIPTION_CHANGED, "the settings of assignments have changed")
    return None


def _begin_initial_delay(change: StreamsGroupChange) -> None:
    """The first member waits for others, so that they need not take tasks from each other at once."""
    due = change.group.group_id, "streams.targets", ""
    delay_ms = change.config.streams_initial_rebalance_delay_ms
    if change.group.is_empty and delay_ms and change.state.deadlines.get(due) is None:
        change.state.deadlines.set(due, change.call.monotonic_ms + delay_ms)


def _target(
    change: StreamsGroupChange, configured: Configured, member: StreamsMember, statuses: list[Status]
) -> tuple[int, Target]:
    """The epoch that a member is to be brought to, and what it is to have then."""
    group = change.group
    target = group.targets.get(member.member_id, Target())
    if change.state.deadlines.get((group.group_id, "streams.targets", "")) is not None:
        statuses.append(_delayed("due to the configured initial rebalance delay."))
        return group.assignment_epoch, Target()
    if group.assignment_epoch >= change.epoch:
        return group.assignment_epoch, target
    if change.assignment_delay_ms() > 0:
        statuses.append(_delayed("due to the configured assignment interval."))
        return group.assignment_epoch, target
    targets = None if group.is_assigning else change.assign(configured)
    if targets is None:
        statuses.append(_delayed("while it is computed."))
        return group.assignment_epoch, target
    return change.epoch, targets[member.member_id]


def _delayed(why: str) -> Status:
    return Status(StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed {why}")


def _stale_topology(group: StreamsGroup, member: StreamsMember) -> Iterable[Status]:
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        yield Status(
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}.",
        )


def _shutdown(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire"
        " application.",
    )


def _is_to_be_told(
    group: StreamsGroup, member: StreamsMember, owned: Target | None, caller: Caller, *, is_wanted: bool
) -> bool:
    """Whether the answer has the member's tasks: if that is wanted, or if the last answer that had them may be lost."""
    if owned is not None and member.assigned.is_same(owned):
        group.unconfirmed.pop(member.member_id, None)
        return is_wanted
    if is_wanted or group.unconfirmed.get(member.member_id, caller.peer) != caller.peer:
        group.unconfirmed[member.member_id] = caller.peer
        return True
    return False


def _answer(
    change: StreamsGroupChange, member: StreamsMember, statuses: Iterable[Status], *, is_told: bool
) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse
    answer = response(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=change.config.streams_heartbeat_interval_ms,
        status=[response.Status(status_code=int(each.code), status_detail=each.detail) for each in statuses],
    )
    if is_told:
        answer.active_tasks = write_tasks(response.TaskIds, member.assigned.active)
        answer.standby_tasks = write_tasks(response.TaskIds, member.assigned.standby)
        answer.warmup_tasks = write_tasks(response.TaskIds, member.assigned.warmup)
    return answer


def _leave(state: GroupState, call: Call, caller: Caller, request: StreamsGroupHeartbeatRequest) -> Result:
    group = state.groups.get(request.group_id)
    if not isinstance(group, StreamsGroup):
        detail = f"Group {request.group_id} {'not found' if group is None else 'is not a streams group'}."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, detail)
    member = group.member(request.member_id)
    if request.shutdown_application and group.shutdown_member_id is None:
        group.shutdown_member_id = member.member_id
    change = StreamsGroupChange(state, call, group)
    change.remove(member, cause=Cause.MEMBER_LEFT, detail=f"member {member.member_id} left")
    answer = StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch, status=[])
    change.answers.append((caller, answer))
    return change.finish()


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
