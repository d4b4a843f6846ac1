"""A classic group becomes a consumer group while its members go on: the first member of the new protocol has come.

The members stay what they are, clients of the classic protocol; each has, as target and as what it owns, the assignment
of the last generation, which is the first epoch of the new group. They are told to join again, and from then on the
broker assigns (`classic_members`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.coordinator.classic.member import ClassicMember
from tailrace.coordinator.consumers import records
from tailrace.coordinator.consumers.change import ConsumerGroupChange
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.member import Member
from tailrace.coordinator.consumers.replay import replay_into
from tailrace.coordinator.consumers.topics import metadata_hash
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.migration.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    MEMBER_BYTES,
    by_topic_id,
    read_assignment,
    read_subscription,
    topic_names,
)
from tailrace.coordinator.op import Call, Caller, StoredRecord
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.groups import JoinGroupResponse, SyncGroupResponse
from tailrace.wire.apis.stored_records import ConsumerGroupMemberMetadataValue, ConsumerProtocolSubscription
from tailrace.wire.schema import Message

_POLICIES = frozenset({"bidirectional", "upgrade"})

Answers = Sequence[tuple[Caller, Message]]


def upgrade_group(
    state: GroupState, call: Call, group: ClassicGroup
) -> tuple[list[StoredRecord], ConsumerGroup, Answers]:
    """What turns the one into the other, the group as it will be, and what those hear who wait for the old one.

    The classic group is as it was, for what comes after may still fail; only the members have new sessions, which
    count if it does not. Raises GROUP_ID_NOT_FOUND if the group has to stay classic.
    """
    _check(call, group)
    group_id, generation = group.group_id, group.generation
    try:
        subscriptions = {member_id: _read_metadata(group, member) for member_id, member in group.members.items()}
        held = _find_held(group, subscriptions, call.image)
    except ProtocolError as fault:
        raise _refusal(group, "the embedded consumer protocol is malformed") from fault
    members = [
        _convert(member, subscriptions[member_id], held[member_id], generation)
        for member_id, member in group.members.items()
    ]
    consumer_records = [records.member_record(group_id, member) for member in members]
    topics = {name for member in members for name in member.subscribed_topic_names}
    consumer_records.append(records.epoch_record(group_id, generation, metadata_hash(topics, call.image)))
    for member in members:
        target = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
        consumer_records.append(records.target_record(group_id, member.member_id, target))
    consumer_records.append(records.target_epoch_record(group_id, generation, 0))
    consumer_records += [records.current_record(group_id, member) for member in members]
    upgraded = ConsumerGroup(group_id)
    for record in consumer_records:
        replay_into(upgraded, record.key, record.value)
    change = ConsumerGroupChange(state, call, upgraded)
    for member in members:
        change.keep_session(member)
    return [*group.deletion_records(), *consumer_records], upgraded, _answers(group)


def _check(call: Call, group: ClassicGroup) -> None:
    if call.config.group_consumer_migration_policy not in _POLICIES:
        raise _refusal(group, "group.consumer.migration.policy does not allow it")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(group, f"its members are not consumers but {group.protocol_type!r}")
    if len(group.members) > call.config.group_consumer_max_size:
        raise _refusal(group, "it has more members than group.consumer.max.size")
    if sum(_stored_bytes(group, member) for member in group.members.values()) > call.config.message_max_bytes:
        raise _refusal(group, "what is known of its members does not fit into one batch (message.max.bytes)")


def _refusal(group: ClassicGroup, cause: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Classic group {group.group_id} cannot become a consumer group: {cause}."
    )


def _stored_bytes(group: ClassicGroup, member: ClassicMember) -> int:
    """Roughly, and rather too much: its ids are in three keys, topics are stored twice, partitions four times."""
    metadata_bytes = sum(len(protocol.metadata) for protocol in member.protocols)
    ids_bytes = 3 * (len(group.group_id) + len(member.member_id))
    return ids_bytes + 2 * metadata_bytes + 4 * len(member.assignment) + MEMBER_BYTES


def _read_metadata(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    """That of the protocol that was chosen, if one was and the member still knows it; else of its preferred one."""
    return read_subscription(member.metadata(group.protocol_name) or member.protocols[0].metadata)


def _find_held(
    group: ClassicGroup, subscriptions: Mapping[str, ConsumerProtocolSubscription], image: MetadataImage
) -> dict[str, Partitions]:
    """What each member has: the last assignment, and of what it kept when it last joined all that is nobody else's. A
    cooperative member has that until it joins again, be it that the assignment takes it away and has not arrived, or
    that a rebalance that did not come to its end has taken the assignment out of the group."""
    held: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in group.members}
    taken: dict[Uuid, set[int]] = {}

    def take(member_id: str, partitions: Partitions) -> None:
        for topic_id, indexes in partitions.items():
            free = indexes - taken.setdefault(topic_id, set())
            if free:
                taken[topic_id] |= free
                held[member_id].setdefault(topic_id, set()).update(free)

    for member_id, member in group.members.items():
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _refusal(
                group,
                "its assignor sends data of its own to the members, which would be lost; switch to one that consumers"
                " come with first",
            )
        take(member_id, by_topic_id(assignment.assigned_partitions, image))
    for member_id, subscription in subscriptions.items():
        take(member_id, by_topic_id(subscription.owned_partitions, image))
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
        for member_id, partitions in held.items()
    }


def _convert(
    member: ClassicMember, subscription: ConsumerProtocolSubscription, held: Partitions, generation: int
) -> Member:
    return Member(
        member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=topic_names(subscription),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.protocols
            ],
        ),
        member_epoch=generation,
        previous_member_epoch=generation,
        assigned={topic_id: dict.fromkeys(sorted(partitions), generation) for topic_id, partitions in held.items()},
    )


def _answers(group: ClassicGroup) -> Answers:
    """They join again, and find the new group."""
    answers: list[tuple[Caller, Message]] = []
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        if member.join_caller is not None:
            answers.append((member.join_caller, JoinGroupResponse(error_code=code, member_id=member.member_id)))
        if member.sync_caller is not None:
            answers.append((member.sync_caller, SyncGroupResponse(error_code=code)))
    return answers
