"""What is due in share groups:

share.session   a member was not heard for its session time: it is out
share.targets   the group's next assignment may be computed
share.answer    a member that waits for its heartbeat's answer gets it
share.states    share coordinators are asked again to keep the state of new share-partitions
"""

from __future__ import annotations

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.consumers.topics import metadata_hash
from tailrace.coordinator.groups import Due, GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Result, Steps
from tailrace.coordinator.shares.change import ShareGroupChange, remove_members
from tailrace.coordinator.shares.group import ShareGroup
from tailrace.coordinator.shares.heartbeat import answer_waiting

# Groups looked at between two steps.
_STEP_GROUPS = 20


def on_due(state: GroupState, call: Call, due: Due) -> Result:
    group_id, what, member_id = due
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Result()
    if what == "share.targets":
        change = ShareGroupChange(state, call, group)
        change.assign(is_due=True)
        return change.finish()
    if what == "share.states":
        change = ShareGroupChange(state, call, group)
        if group.initializing and group.members:
            change.ask_to_initialize(group.initializing)
        return change.finish()
    member = group.members.get(member_id)
    if member is None:
        return Result()
    if what == "share.answer":
        return answer_waiting(state, call, group, member_id) if member_id in group.waiting else Result()
    detail = f"member {member_id} timed out"
    return remove_members(state, call, group, [member], cause=Cause.MEMBER_TIMED_OUT, detail=detail).finish()


def on_loaded(state: GroupState, _call: Call) -> Result:
    """Members have a session time to be heard, and what the last coordinator did not get to is done."""
    if any(isinstance(group, ShareGroup) for group in state.groups.values()):
        state.work["share.loaded", ""] = lambda begun: _refresh(state, begun, is_new=True)
    return Result()


def on_image(state: GroupState, call: Call, old: MetadataImage) -> Result:
    is_changed = old.topics is not call.image.topics
    if is_changed and any(isinstance(group, ShareGroup) for group in state.groups.values()):
        state.work.setdefault(("share.refresh", ""), lambda begun: _refresh(state, begun, is_new=False))
    return Result()


def _refresh(state: GroupState, call: Call, *, is_new: bool) -> Steps:
    """Compares groups with the metadata. One that has changed is due: each is a result of its own."""
    for count, group in enumerate(list(state.groups.values())):
        if not isinstance(group, ShareGroup):
            continue
        if count % _STEP_GROUPS == _STEP_GROUPS - 1:
            yield
        if is_new:
            change = ShareGroupChange(state, call, group)
            for member_id in group.members:
                if state.deadlines.get((group.group_id, "share.session", member_id)) is None:
                    change.keep_session(member_id)
            if group.initializing:
                state.deadlines.set((group.group_id, "share.states", ""), call.monotonic_ms)
        is_stale = bool(group.members) and metadata_hash(group.topic_counts, call.image) != group.metadata_hash
        known = group.initializing.keys() | group.initialized.keys() | group.deleting.keys()
        is_stale = is_stale or not known <= call.image.topic_names.keys()
        if is_stale or group.epoch > group.assignment_epoch:
            state.work["share.change", group.group_id] = lambda begun, each=group: _change(state, begun, each)  # type: ignore[misc]
    return Result()


def _change(state: GroupState, call: Call, group: ShareGroup) -> Steps:
    yield
    if state.groups.get(group.group_id) is not group:
        return Result()
    change = ShareGroupChange(state, call, group)
    change.forget_deleted()
    if not group.members:
        return change.finish()
    if metadata_hash(group.topic_counts, call.image) != group.metadata_hash:
        change.bump(Cause.PARTITIONS_CHANGED, "topics that the group is subscribed to have changed")
    change.initialize_missing()
    change.assign()
    return change.finish()
