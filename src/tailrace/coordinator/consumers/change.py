"""What one op does to one group: it collects the records, and sees to what follows from them.

An op makes a ConsumerGroupChange, calls what it needs in the order in which it happens, and ends with `finish`. The
group stays as it is until the records are replayed; `epoch` is what its epoch will be then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tailrace.controller.effective import group_config
from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.member import LEAVE_STATIC_EPOCH, Member, MemberState
from tailrace.coordinator.consumers.reconcile import Goal, decide_next
from tailrace.coordinator.consumers.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_record,
)
from tailrace.coordinator.consumers.subscriptions import want_regexes
from tailrace.coordinator.consumers.targets import want_targets
from tailrace.coordinator.consumers.topics import metadata_hash
from tailrace.coordinator.groups import GroupState, shown
from tailrace.coordinator.history import Cause, Rebalance
from tailrace.coordinator.op import Call, Caller, Result, StoredRecord
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatResponse, JoinGroupResponse
from tailrace.wire.schema import Message


class ConsumerGroupChange:
    def __init__(
        self, state: GroupState, call: Call, group: ConsumerGroup, records: Iterable[StoredRecord] = ()
    ) -> None:
        self.state = state
        self.call = call
        self.group = group
        self.records = list(records)
        # What stands in its place so far: the group itself, another one that it is converted from, or nothing.
        self._before = state.groups.get(group.group_id)
        self.answers: list[tuple[Caller, Message]] = []
        self.epoch = group.epoch

    def replace_static(self, old: Member, member_id: str) -> Member:
        """A static member is back under a new member id: it takes over all that the old one had."""
        group_id = self.group.group_id
        member = old._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.forget([old])
        self.records += member_tombstones(group_id, old.member_id)
        self.records.append(member_record(group_id, member))
        self.records.append(target_record(group_id, member_id, self.group.targets.get(old.member_id, {})))
        self.records.append(current_record(group_id, member))
        return member

    def update(self, old: Member, member: Member, *, cause: Cause, detail: str) -> bool:
        """Stores what is new about a member; if its subscription is, the group has a new epoch. True if it is."""
        group = self.group
        if member != old:
            self.records.append(member_record(group.group_id, member))
        old_regex, regex = old.subscribed_topic_regex, member.subscribed_topic_regex
        names_changed = old.subscribed_topic_names != member.subscribed_topic_names
        # One that has yet to be resolved makes its epoch when it is.
        is_resolved = not regex or regex in group.regexes
        dropped: list[str] = []
        if old_regex != regex:
            dropped = self._drop_regexes([old])
        if names_changed or (old_regex != regex and is_resolved):
            topics = self._topics_after([old], [member], dropped)
            self.bump(cause, detail, member, metadata_hash(topics, self.call.image) if topics is not None else None)
        if regex and not is_resolved:
            group.resolving_for = self._rebalance(cause, detail, member)
            want_regexes(self.state, group, is_new=True)
        return names_changed or old_regex != regex

    def bump(self, cause: Cause, detail: str, member: Member | None = None, new_hash: int | None = None) -> None:
        """A new epoch, and so new targets. Without `new_hash`, with the metadata as they were."""
        self.epoch += 1
        new_hash = self.group.metadata_hash if new_hash is None else new_hash
        self.records.append(epoch_record(self.group.group_id, self.epoch, new_hash))
        if self.group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(self.group.group_id))
        self.state.history.note(self.group.group_id, self._rebalance(cause, detail, member))

    def reconcile(self, member: Member, owned: Partitions | None, *, drops_unsubscribed: bool = False) -> Member:
        """Brings a member nearer to its target."""
        group = self.group
        if not drops_unsubscribed and member.is_reconciled_to(group.assignment_epoch):
            return member
        goal = Goal(
            epoch=group.assignment_epoch,
            target=group.targets.get(self._target_of(member), {}),
            subscribed_topic_ids=group.subscribed_topic_ids(member, self.call.image),
            is_owned=group.is_owned,
            owned=owned,
            drops_unsubscribed=drops_unsubscribed,
        )
        updated = decide_next(member, goal)
        if updated == member:
            return member
        self.records.append(current_record(group.group_id, updated))
        if not updated.is_classic:
            due = group.group_id, "consumer.rebalance", updated.member_id
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                self.state.deadlines.set(due, self.call.monotonic_ms + updated.rebalance_timeout_ms)
            else:
                self.state.deadlines.cancel(due)
        return updated

    def leave_for_a_while(self, member: Member) -> None:
        """A static member: it keeps what it has, for as long as its session lasts."""
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
        away = member._replace(member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending_revocation={})
        self._dismiss(member.member_id)  # Else that answer would bring it to its target.
        self.records.append(current_record(self.group.group_id, away))

    def remove(self, members: Sequence[Member], *, cause: Cause, detail: str) -> None:
        group = self.group
        self.forget(members)
        for member in members:
            self.records += member_tombstones(group.group_id, member.member_id)
        topics = self._topics_after(members, (), self._drop_regexes(members))
        self.bump(cause, detail, members[0], metadata_hash(topics, self.call.image) if topics is not None else None)

    def forget(self, members: Iterable[Member]) -> None:
        """What is not on the log about members that go; who waits for an answer learns that it is out."""
        group_id = self.group.group_id
        for member in members:
            for what in ("session", "rebalance", "answer", "join", "sync"):
                self.state.deadlines.cancel((group_id, f"consumer.{what}", member.member_id))
            self.group.unconfirmed.pop(member.member_id, None)
            self._dismiss(member.member_id)

    def _dismiss(self, member_id: str) -> None:
        waiting = self.group.waiting.pop(member_id, None)
        if waiting is not None:
            gone = _no_member(self.group.group_id, member_id, is_join=waiting.is_join)
            self.answers.append((waiting.caller, gone))

    def keep_session(self, member: Member) -> None:
        """The member was heard: its session begins anew."""
        timeout_ms = session_timeout_ms(self.call, self.group.group_id, member)
        due = self.group.group_id, "consumer.session", member.member_id
        self.state.deadlines.set(due, self.call.monotonic_ms + timeout_ms)

    def finish(self) -> Result:
        """To be called last, for a group that is new must not be left behind by an op that is refused after all, and an
        epoch that is bumped later would get no targets; and once, for what it gives is replayed and answered."""
        # Before the records are replayed: that the classic form of the group is gone must not be taken for its end.
        self.state.groups[self.group.group_id] = self.group
        if self.epoch > self.group.assignment_epoch:
            want_targets(self.state, self.call, self.group)
        return Result(self.records, self.answers, on_refused=self._undo)

    def _undo(self, _call: Call) -> Result:
        """The records were too large: what is not on the log is put back as it was, or nearly so."""
        group = self.group
        answers: list[tuple[Caller, Message]] = []
        for member_id in [member_id for member_id in group.waiting if member_id not in group.members]:
            waiting = group.waiting.pop(member_id)
            answers.append((waiting.caller, _no_member(group.group_id, member_id, is_join=waiting.is_join)))
        if self._before is group:
            for member in group.members.values():
                if self.state.deadlines.get((group.group_id, "consumer.session", member.member_id)) is None:
                    self.keep_session(member)
        elif self._before is not None:
            self.state.groups[group.group_id] = self._before
        else:
            del self.state.groups[group.group_id]
        return Result(answers=answers)

    def _rebalance(self, cause: Cause, detail: str, member: Member | None) -> Rebalance:
        member_id, client_id = ("", "") if member is None else (member.member_id, member.client_id)
        return Rebalance(self.call.now_ms, cause, detail, self.epoch, member_id, client_id)

    def _target_of(self, member: Member) -> str:
        """A static member that has just been replaced has its target under the old member id."""
        if member.member_id not in self.group.targets and member.instance_id is not None:
            return self.group.static_members.get(member.instance_id, member.member_id)
        return member.member_id

    def _drop_regexes(self, leaving: Iterable[Member]) -> list[str]:
        """Takes out the expressions that nobody uses any more."""
        users = Counter(member.subscribed_topic_regex for member in leaving if member.subscribed_topic_regex)
        dropped = [regex for regex, count in users.items() if self.group.regex_counts[regex] <= count]
        self.records += [regex_tombstone(self.group.group_id, regex) for regex in dropped]
        return dropped

    def _topics_after(
        self, leaving: Iterable[Member], joining: Iterable[Member], dropped: Iterable[str]
    ) -> Iterable[str] | None:
        """The group's topics once its members have changed; None if they are the same as before."""
        changes: Counter[str] = Counter()
        for member in leaving:
            changes.subtract(member.subscribed_topic_names)
        for member in joining:
            changes.update(member.subscribed_topic_names)
        for regex in dropped:
            if regex in self.group.regexes:
                changes.subtract(self.group.regexes[regex].topics)
        counts = self.group.topic_counts
        after = {topic: counts[topic] + change for topic, change in changes.items()}
        if all((counts[topic] > 0) == (count > 0) for topic, count in after.items()):
            return None
        return {*(topic for topic in counts if after.get(topic, 1) > 0), *(t for t in after if after[t] > 0)}


def _no_member(group_id: str, member_id: str, *, is_join: bool) -> Message:
    if is_join:
        return JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id)
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        error_message=f"Member {shown(member_id)} is no longer a member of group {shown(group_id)}.",
    )


def remove_members(
    state: GroupState, call: Call, group: ConsumerGroup, leaving: Sequence[Member], *, cause: Cause, detail: str
) -> Result:
    """They left, were not heard any more, or were too slow. If only members of the classic protocol are left, the group
    may become a classic one."""
    change = ConsumerGroupChange(state, call, group)
    if any(member.is_classic for member in group.members.values()):
        # Conversion knows both protocols, and this one only its own.
        from tailrace.coordinator.migration.downgrade import downgrade_group

        converted = downgrade_group(state, call, group, leaving)
        if converted is not None:
            change.forget(leaving)
            return converted._replace(answers=[*converted.answers, *change.answers])
    change.remove(leaving, cause=cause, detail=detail)
    return change.finish()


def session_timeout_ms(call: Call, group_id: str, member: Member) -> int:
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return group_config(call.config, call.image, group_id).consumer_session_timeout_ms
