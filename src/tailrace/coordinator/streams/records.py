"""The stored records of streams groups: types 17 to 23 of __consumer_offsets, in Kafka's forms. What has no order of
its own is written in ascending order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.coordinator.assignors.sticky import Target, Tasks
from tailrace.coordinator.op import StoredRecord
from tailrace.coordinator.streams.member import ActiveTasks, Held, StreamsMember
from tailrace.wire.apis.stored_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
)

if TYPE_CHECKING:
    from tailrace.coordinator.streams.group import Basis
    from tailrace.coordinator.streams.topology import Topology

_Current = StreamsGroupCurrentMemberAssignmentValue


def epoch_record(group_id: str, epoch: int, basis: Basis) -> StoredRecord:
    value = StreamsGroupMetadataValue
    return StoredRecord(
        StreamsGroupMetadataKey(group_id=group_id),
        value(
            epoch=epoch,
            metadata_hash=basis.metadata_hash,
            validated_topology_epoch=basis.validated_topology_epoch,
            last_assignment_configs=[
                value.LastAssignmentConfig(key=key, value=text) for key, text in sorted(basis.configs.items())
            ],
        ),
    )


def topology_record(group_id: str, topology: Topology) -> StoredRecord:
    return StoredRecord(StreamsGroupTopologyKey(group_id=group_id), topology.stored)


def member_record(group_id: str, member: StreamsMember) -> StoredRecord:
    value = StreamsGroupMemberMetadataValue
    endpoint = member.endpoint
    return StoredRecord(
        StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        value(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            topology_epoch=member.topology_epoch,
            process_id=member.process_id,
            user_endpoint=None if endpoint is None else value.Endpoint(host=endpoint[0], port=endpoint[1]),
            client_tags=[value.KeyValue(key=key, value=text) for key, text in member.client_tags],
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    return StoredRecord(
        StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Target) -> StoredRecord:
    value = StreamsGroupTargetAssignmentMemberValue
    return StoredRecord(
        StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        value(
            active_tasks=write_tasks(value.TaskIds, target.active),
            standby_tasks=write_tasks(value.TaskIds, target.standby),
            warmup_tasks=write_tasks(value.TaskIds, target.warmup),
        ),
    )


def current_record(group_id: str, member: StreamsMember) -> StoredRecord:
    assigned, pending = member.assigned, member.pending_revocation
    return StoredRecord(
        StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        _Current(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            active_tasks=_write_active(assigned.active),
            standby_tasks=write_tasks(_Current.TaskIds, assigned.standby),
            warmup_tasks=write_tasks(_Current.TaskIds, assigned.warmup),
            active_tasks_pending_revocation=_write_active(pending.active),
            standby_tasks_pending_revocation=write_tasks(_Current.TaskIds, pending.standby),
            warmup_tasks_pending_revocation=write_tasks(_Current.TaskIds, pending.warmup),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """The member itself goes last: Kafka cannot load a log in which a member goes that still has more."""
    return [
        StoredRecord(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[StoredRecord]:
    records = [record for member_id in member_ids for record in member_tombstones(group_id, member_id)]
    return [
        *records,
        StoredRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        StoredRecord(StreamsGroupMetadataKey(group_id=group_id), None),
        StoredRecord(StreamsGroupTopologyKey(group_id=group_id), None),
    ]


def write_tasks(task_ids: type[Any], tasks: Mapping[str, Iterable[int]]) -> list[Any]:
    """As structs of the message that has `task_ids`."""
    return [task_ids(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def read_tasks(task_ids: Iterable[Any]) -> Tasks:
    found: dict[str, frozenset[int]] = {}
    for each in task_ids:
        if each.partitions:
            found[each.subtopology_id] = found.get(each.subtopology_id, frozenset()).union(each.partitions)
    return found


def read_target(value: Any) -> Target:
    """Of anything that has the three kinds of tasks; null stands for none."""
    return Target(*(read_tasks(each or ()) for each in (value.active_tasks, value.standby_tasks, value.warmup_tasks)))


def read_assigned(value: _Current) -> Held:
    return Held(
        _read_active(value.active_tasks, value.member_epoch),
        read_tasks(value.standby_tasks),
        read_tasks(value.warmup_tasks),
    )


def read_pending(value: _Current) -> Held:
    return Held(
        _read_active(value.active_tasks_pending_revocation, value.member_epoch),
        read_tasks(value.standby_tasks_pending_revocation),
        read_tasks(value.warmup_tasks_pending_revocation),
    )


def _write_active(tasks: ActiveTasks) -> list[_Current.TaskIds]:
    return [
        _Current.TaskIds(
            subtopology_id=name,
            partitions=sorted(tasks[name]),
            assignment_epochs=[tasks[name][index] for index in sorted(tasks[name])],
        )
        for name in sorted(tasks)
    ]


def _read_active(task_ids: Iterable[_Current.TaskIds], member_epoch: int) -> ActiveTasks:
    """Brokers before 4.3 wrote no epochs: those tasks count as given in the member's."""
    found: dict[str, dict[int, int]] = {}
    for each in task_ids:
        epochs = each.assignment_epochs or ()
        if len(epochs) != len(each.partitions):
            epochs = [member_epoch] * len(each.partitions)
        if each.partitions:
            found.setdefault(each.subtopology_id, {}).update(zip(each.partitions, epochs, strict=True))
    return found
