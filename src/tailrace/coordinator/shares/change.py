"""What one op does to one share group: it collects the records, and sees to what follows from them.

The group stays as it is until the records are replayed; `epoch` is what its epoch will be then. Targets are computed in
the op itself: a share group has a few hundred members at most (group.share.max.size). Of changes that follow each other
within share.assignment.interval.ms those after the first one share an assignment.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from collections.abc import Set as AbstractSet

from tailrace.controller.effective import group_config
from tailrace.coordinator.assignors.simple import assign
from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.consumers.topics import metadata_hash
from tailrace.coordinator.groups import GroupState, shown
from tailrace.coordinator.history import Cause, Rebalance
from tailrace.coordinator.op import Call, Caller, Result, StoredRecord, Told
from tailrace.coordinator.shares.group import ShareGroup, ShareTopic, ShareTopics
from tailrace.coordinator.shares.member import ShareMember
from tailrace.coordinator.shares.records import (
    epoch_record,
    member_record,
    member_tombstones,
    states_record,
    target_epoch_record,
    target_record,
)
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid
from tailrace.wire.apis.shares import InitializeShareGroupStateRequest, ShareGroupHeartbeatResponse
from tailrace.wire.schema import Message


class ShareGroupChange:
    def __init__(self, state: GroupState, call: Call, group: ShareGroup) -> None:
        self.state = state
        self.call = call
        self.group = group
        self.records: list[StoredRecord] = []
        self.answers: list[tuple[Told, Message]] = []
        self.epoch = group.epoch
        self.members = dict(group.members)
        self.initializing = group.initializing
        self.initialized = group.initialized
        self._before = state.groups.get(group.group_id)

    # ---- members

    def update(self, old: ShareMember, member: ShareMember, *, cause: Cause, detail: str) -> None:
        """Stores what is new about a member; if its subscription is, the group has a new epoch."""
        self.members[member.member_id] = member
        if member != old:
            self.records.append(member_record(self.group.group_id, member))
        if member.subscribed_topic_names != old.subscribed_topic_names:
            self.bump(cause, detail, member)

    def remove(self, member: ShareMember, *, cause: Cause, detail: str) -> None:
        del self.members[member.member_id]
        self.forget(member.member_id)
        self.records += member_tombstones(self.group.group_id, member.member_id)
        self.bump(cause, detail, member)

    def forget(self, member_id: str) -> None:
        """What is not on the log about a member that goes; if it waits for an answer it learns that it is out."""
        group_id = self.group.group_id
        for what in ("session", "answer"):
            self.state.deadlines.cancel((group_id, f"share.{what}", member_id))
        waiting = self.group.waiting.pop(member_id, None)
        if waiting is not None:
            gone = ShareGroupHeartbeatResponse(
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                error_message=f"Member {shown(member_id)} is no longer a member of group {shown(group_id)}.",
            )
            self.answers.append((waiting.caller, gone))

    def keep_session(self, member_id: str) -> None:
        """The member was heard: its session begins anew."""
        timeout_ms = group_config(self.call.config, self.call.image, self.group.group_id).share_session_timeout_ms
        self.state.deadlines.set((self.group.group_id, "share.session", member_id), self.call.monotonic_ms + timeout_ms)

    def bump(self, cause: Cause, detail: str, member: ShareMember | None = None) -> None:
        """A new epoch, and so new targets."""
        self.epoch += 1
        names = {name for each in self.members.values() for name in each.subscribed_topic_names}
        new_hash = metadata_hash(names, self.call.image)
        self.records.append(epoch_record(self.group.group_id, self.epoch, new_hash))
        member_id, client_id = ("", "") if member is None else (member.member_id, member.client_id)
        rebalance = Rebalance(self.call.now_ms, cause, detail, self.epoch, member_id, client_id)
        self.state.history.note(self.group.group_id, rebalance)

    # ---- the states of share-partitions

    def initialize_missing(self) -> None:
        """Share coordinators are to keep the state of each partition that the group is subscribed to."""
        topics = self.call.image.topics
        initializing = dict(self.initializing)
        wanted: dict[Uuid, ShareTopic] = {}
        for name in {name for each in self.members.values() for name in each.subscribed_topic_names}:
            topic = topics.get(name)
            if topic is None or topic.id in self.group.deleting:
                continue
            known = _partitions(self.initialized, topic.id) | _partitions(initializing, topic.id)
            missing = topic.partitions.keys() - known
            if missing:
                initializing[topic.id] = ShareTopic(name, _partitions(initializing, topic.id) | missing)
                wanted[topic.id] = ShareTopic(name, frozenset(missing))
        if wanted:
            self.set_states(initializing=initializing)
            self.ask_to_initialize(wanted)

    def ask_to_initialize(self, wanted: ShareTopics) -> None:
        """Once what was decided is committed; again if nothing is heard of it."""
        retry_ms = self.call.config.group_share_initialize_retry_interval_ms
        self.state.deadlines.set((self.group.group_id, "share.states", ""), self.call.monotonic_ms + retry_ms)
        self.answers.append(
            (self.state.owe_states(self.group.group_id), initialization(self.group.group_id, self.epoch, wanted))
        )

    def set_states(
        self, *, initializing: ShareTopics | None = None, initialized: ShareTopics | None = None,
        deleting: dict[Uuid, str] | None = None,
    ) -> None:  # fmt: skip
        self.initializing = self.initializing if initializing is None else initializing
        self.initialized = self.initialized if initialized is None else initialized
        self.records.append(
            states_record(
                self.group.group_id,
                initializing=self.initializing,
                initialized=self.initialized,
                deleting=self.group.deleting if deleting is None else deleting,
            )
        )

    def forget_deleted(self) -> None:
        """Of topics that are gone nobody keeps a state."""
        names = self.call.image.topic_names
        initializing, initialized = only(self.initializing, names), only(self.initialized, names)
        deleting = {topic_id: name for topic_id, name in self.group.deleting.items() if topic_id in names}
        if (initializing, initialized, deleting) != (self.initializing, self.initialized, self.group.deleting):
            self.set_states(initializing=initializing, initialized=initialized, deleting=deleting)

    # ---- targets

    def assign(self, *, is_due: bool = False) -> bool:
        """New targets if the epoch is ahead of them, now or as soon as may be. True if the last ones hold."""
        group, call = self.group, self.call
        due = group.group_id, "share.targets", ""
        if self.epoch <= group.assignment_epoch or not self.members:
            return True
        delay_ms = 0 if is_due else self._delay_ms()
        if delay_ms > 0:
            if self.state.deadlines.get(due) is None:
                self.state.deadlines.set(due, call.monotonic_ms + delay_ms)
            return False
        self.state.deadlines.cancel(due)
        before = {member_id: group.targets.get(member_id, {}) for member_id in self.members}
        for member_id, target in assign(self._subscriptions(), self._assignable(), before).items():
            if target != before[member_id] or member_id not in group.targets:
                self.records.append(target_record(group.group_id, member_id, target))
        self.records.append(target_epoch_record(group.group_id, self.epoch, call.now_ms))
        for waiting_id, waiting in group.waiting.items():
            if waiting.epoch <= self.epoch and not self.initializing:
                self.state.deadlines.set((group.group_id, "share.answer", waiting_id), call.monotonic_ms)
        return True

    def _delay_ms(self) -> int:
        if not self.group.assignment_timestamp_ms:
            return 0
        interval_ms = group_config(self.call.config, self.call.image, self.group.group_id).share_assignment_interval_ms
        # The wall clock may have been set back.
        return min(self.group.assignment_timestamp_ms + interval_ms - self.call.now_ms, interval_ms)

    def _subscriptions(self) -> dict[str, AbstractSet[Uuid]]:
        topics = self.call.image.topics
        return {
            member_id: {topics[name].id for name in member.subscribed_topic_names if name in topics}
            for member_id, member in sorted(self.members.items())
        }

    def _assignable(self) -> dict[Uuid, AbstractSet[int]]:
        names = self.call.image.topic_names
        return {topic_id: topic.partitions for topic_id, topic in self.initialized.items() if topic_id in names}

    def finish(self) -> Result:
        """To be called last: a group that is new must not be left behind by an op that is refused after all."""
        self.state.groups[self.group.group_id] = self.group
        return Result(self.records, self.answers, on_refused=self._undo)

    def _undo(self, _call: Call) -> Result:
        """The records were too large: what is not on the log is put back as it was, or nearly so."""
        group = self.group
        answers: list[tuple[Caller, Message]] = []
        for member_id in [member_id for member_id in group.waiting if member_id not in group.members]:
            refused = ShareGroupHeartbeatResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
                error_message=f"The records of group {shown(group.group_id)} are too large to be stored.",
            )
            answers.append((group.waiting.pop(member_id).caller, refused))
            for what in ("session", "answer"):
                self.state.deadlines.cancel((group.group_id, f"share.{what}", member_id))
        for member_id in group.members:
            if self.state.deadlines.get((group.group_id, "share.session", member_id)) is None:
                self.keep_session(member_id)
        if self._before is None:
            self.state.groups.pop(group.group_id, None)
        return Result(answers=answers)


def initialization(group_id: str, state_epoch: int, wanted: ShareTopics) -> InitializeShareGroupStateRequest:
    """What share coordinators are to be asked: nobody has begun to deliver."""
    request = InitializeShareGroupStateRequest
    return request(
        group_id=group_id,
        topics=[
            request.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    request.PartitionData(partition=each, state_epoch=state_epoch, start_offset=-1)
                    for each in sorted(topic.partitions)
                ],
            )
            for topic_id, topic in sorted(wanted.items())
        ],
    )


def joined(topics: ShareTopics, more: ShareTopics) -> ShareTopics:
    return {
        topic_id: ShareTopic(
            (more.get(topic_id) or topics[topic_id]).name, _partitions(topics, topic_id) | _partitions(more, topic_id)
        )
        for topic_id in {*topics, *more}
    }


def without(topics: ShareTopics, less: ShareTopics) -> ShareTopics:
    left = {
        topic_id: ShareTopic(topic.name, topic.partitions - _partitions(less, topic_id))
        for topic_id, topic in topics.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}


def only(topics: ShareTopics, topic_ids: Container[Uuid]) -> ShareTopics:
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id in topic_ids}


def target_of(group: ShareGroup, member: ShareMember, subscribed: AbstractSet[Uuid]) -> Partitions:
    """What a member is to have; not what it is no longer subscribed to, even if an older target says so."""
    target = group.targets.get(member.member_id, {})
    return {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}


def remove_members(
    state: GroupState, call: Call, group: ShareGroup, leaving: Sequence[ShareMember], *, cause: Cause, detail: str
) -> ShareGroupChange:
    change = ShareGroupChange(state, call, group)
    for member in leaving:
        change.remove(member, cause=cause, detail=detail)
    change.assign()
    return change


def _partitions(topics: ShareTopics, topic_id: Uuid) -> frozenset[int]:
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions
