"""What share coordinators have done about the states of a group's share-partitions. The shell asks them; these are
called with what came of it, and give the records that say so."""

from __future__ import annotations

from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.op import Call, Result
from tailrace.coordinator.shares.change import ShareGroupChange, joined, without
from tailrace.coordinator.shares.group import ShareGroup, ShareTopics
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid


def find_share_group(state: GroupState, group_id: str) -> ShareGroup:
    """Raises GROUP_ID_NOT_FOUND."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return group


def share_group_or_new(state: GroupState, group_id: str) -> ShareGroup:
    """One that does not exist is empty, as in Kafka: an administrator may set its offsets before anybody joins. Raises
    GROUP_ID_NOT_FOUND if the group is of another kind."""
    if find_group(state, group_id) is None:
        return ShareGroup(group_id)
    return find_share_group(state, group_id)


def on_initialized(state: GroupState, call: Call, group_id: str, done: ShareTopics) -> Result:
    """The state of these is kept. What was to be initialized and is not is asked for again later."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Result()
    change = ShareGroupChange(state, call, group)
    done = {topic_id: topic for topic_id, topic in done.items() if topic_id in group.initializing}
    initializing = without(group.initializing, done)
    # Of topics that are gone nobody keeps a state.
    initializing = {topic_id: each for topic_id, each in initializing.items() if topic_id in call.image.topic_names}
    if done or len(initializing) != len(group.initializing):
        change.set_states(initializing=initializing, initialized=joined(group.initialized, done))
        change.bump(Cause.PARTITIONS_CHANGED, "the states of new share-partitions are kept")
        change.assign(is_due=True)
    if not initializing:
        state.deadlines.cancel((group_id, "share.states", ""))
    return change.finish()


def begin_reset(state: GroupState, call: Call, group_id: str, topics: ShareTopics) -> tuple[int, Result]:
    """An administrator sets start offsets: whoever knows the epoch before is fenced. Gives the new epoch."""
    group = share_group_or_new(state, group_id)
    group.check_deletion()
    change = ShareGroupChange(state, call, group)
    change.bump(Cause.MEMBER_REMOVED, "start offsets were set")
    change.set_states(initializing=joined(group.initializing, topics))
    return change.epoch, change.finish()


def begin_deletion(
    state: GroupState, call: Call, group_id: str, topic_ids: frozenset[Uuid]
) -> tuple[ShareTopics, Result]:
    """An administrator forgets the group's offsets of some topics. Gives the states that are to go."""
    group = find_share_group(state, group_id)
    group.check_deletion()
    known = joined(group.initialized, group.initializing)
    going = {topic_id: known[topic_id] for topic_id in topic_ids if topic_id in known}
    change = ShareGroupChange(state, call, group)
    if going:
        deleting = {**group.deleting, **{topic_id: topic.name for topic_id, topic in going.items()}}
        change.set_states(
            initializing=without(group.initializing, going),
            initialized=without(group.initialized, going),
            deleting=deleting,
        )
    return going, change.finish()


def on_deleted(state: GroupState, call: Call, group_id: str, topic_ids: frozenset[Uuid]) -> Result:
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not topic_ids & group.deleting.keys():
        return Result()
    change = ShareGroupChange(state, call, group)
    change.set_states(deleting={each: name for each, name in group.deleting.items() if each not in topic_ids})
    return change.finish()
