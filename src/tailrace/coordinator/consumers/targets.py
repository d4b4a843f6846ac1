"""Computes the targets of a group: who is to have which partitions.

It is done once for all that changed within group.consumer.assignment.interval.ms, so that 1,000 members that join are a
few assignments and not 1,000; the first one of a group is done at once. It runs in slices. Members that came meanwhile
have to wait for the next one, and those that left get nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from typing import NamedTuple

from tailrace.controller.effective import group_config
from tailrace.controller.image import MetadataImage
from tailrace.coordinator.assignors import ASSIGNORS
from tailrace.coordinator.assignors.spec import MemberSpec, Partitions, TopicSpec
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.records import target_epoch_record, target_record
from tailrace.coordinator.consumers.topics import rack_of, topic_spec
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Call, Result, Steps, StoredRecord, unchanged
from tailrace.model.ids import Uuid

# Members, or topics, between two steps: well below half a millisecond.
_STEP_MEMBERS = 50
_STEP_TOPICS = 20
# About the size of a target's record: group and member ids, and the id of each topic.
_RECORD_BYTES = 200
_TOPIC_BYTES = 20


def want_targets(state: GroupState, call: Call, group: ConsumerGroup) -> None:
    """New ones, as soon as may be. Expressions that are being resolved come first, for they change them anyway."""
    if group.is_resolving:
        return
    delay_ms = targets_delay_ms(call, group)
    if delay_ms <= 0:
        state.deadlines.cancel((group.group_id, "consumer.targets", ""))
        state.work["consumer.targets", group.group_id] = lambda begun: _compute(state, begun, group)
    else:
        state.deadlines.set((group.group_id, "consumer.targets", ""), call.monotonic_ms + delay_ms)


def targets_delay_ms(call: Call, group: ConsumerGroup) -> int:
    """For how long the next assignment has to wait."""
    interval_ms = group_config(call.config, call.image, group.group_id).consumer_assignment_interval_ms
    if not group.assignment_timestamp_ms:
        return 0
    # The wall clock may have been set back.
    return min(group.assignment_timestamp_ms + interval_ms - call.now_ms, interval_ms)


class _Plan(NamedTuple):
    """New targets that have yet to be stored."""

    epoch: int
    # With the instance ids of static members.
    targets: deque[tuple[str, str | None, Partitions]]


def _compute(state: GroupState, call: Call, group: ConsumerGroup) -> Steps:
    if state.groups.get(group.group_id) is not group or not group.members or group.epoch <= group.assignment_epoch:
        return Result()
    epoch = group.epoch
    name = group.preferred_assignor() or call.config.group_consumer_assignors[0]
    members = yield from _describe_members(group, call.image)
    topics = yield from _describe_topics(members, call.image)
    targets = yield from ASSIGNORS[name](members, topics)
    planned = deque((member_id, members[member_id].instance_id, target) for member_id, target in targets.items())
    return _store(state, call, group, _Plan(epoch, planned))


def _go_on_storing(state: GroupState, call: Call, group: ConsumerGroup, plan: _Plan) -> Steps:
    yield
    return _store(state, call, group, plan)


def _store(state: GroupState, call: Call, group: ConsumerGroup, plan: _Plan) -> Result:
    """As much as one batch holds, and the epoch with the last part: until then members go to their old targets, and the
    owners see to it that no two of them meet."""
    if state.groups.get(group.group_id) is not group or plan.epoch <= group.assignment_epoch:
        return Result()  # It is gone, or newer targets were stored between two parts of these.
    records: list[StoredRecord] = []
    size_bytes = 0
    while plan.targets and size_bytes < records_max_bytes(call):
        planned_id, instance_id, target = plan.targets.popleft()
        # A static member may have come back under another member id since: what was meant for it is its own.
        member_id = planned_id if instance_id is None else group.static_members.get(instance_id, planned_id)
        if member_id in group.members and target != group.targets.get(member_id):
            records.append(target_record(group.group_id, member_id, target))
            size_bytes += _RECORD_BYTES + sum(_TOPIC_BYTES + 4 * len(partitions) for partitions in target.values())
    if plan.targets:
        state.work["consumer.storing", group.group_id] = lambda begun: _go_on_storing(state, begun, group, plan)
        return Result(records, on_refused=unchanged)
    records.append(target_epoch_record(group.group_id, plan.epoch, call.now_ms))
    for waiting_id, waiting in group.waiting.items():
        if waiting.epoch <= plan.epoch:
            state.deadlines.set((group.group_id, "consumer.answer", waiting_id), call.monotonic_ms)
    if group.epoch > plan.epoch:
        interval_ms = group_config(call.config, call.image, group.group_id).consumer_assignment_interval_ms
        state.deadlines.set((group.group_id, "consumer.targets", ""), call.monotonic_ms + interval_ms)
    return Result(records, on_refused=unchanged)


def records_max_bytes(call: Call) -> int:
    """What an op should not exceed by much: a batch of __consumer_offsets must hold its records."""
    return call.config.message_max_bytes // 2


def _describe_members(group: ConsumerGroup, image: MetadataImage) -> Generator[None, None, dict[str, MemberSpec]]:
    specs: dict[str, MemberSpec] = {}
    # Most members have the same subscription.
    subscriptions: dict[tuple[tuple[str, ...], str], frozenset[Uuid]] = {}
    for count, member in enumerate(list(group.members.values())):
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        topic_ids = subscriptions.get(subscription)
        if topic_ids is None:
            topic_ids = subscriptions[subscription] = group.subscribed_topic_ids(member, image)
        target = group.targets.get(member.member_id, {})
        specs[member.member_id] = MemberSpec(member.instance_id, member.rack_id, topic_ids, target)
        if count % _STEP_MEMBERS == _STEP_MEMBERS - 1:
            yield
    return specs


def _describe_topics(
    members: Mapping[str, MemberSpec], image: MetadataImage
) -> Generator[None, None, dict[Uuid, TopicSpec]]:
    racks = rack_of(image)
    specs: dict[Uuid, TopicSpec] = {}
    for topic_ids in {member.subscribed_topic_ids for member in members.values()}:
        for topic_id in topic_ids:
            topic = image.topic_by_id(topic_id)
            if topic_id not in specs and topic is not None:
                specs[topic_id] = topic_spec(topic, racks)
                if len(specs) % _STEP_TOPICS == 0:
                    yield
    return dict(sorted(specs.items()))
