"""What one op does to one streams group: it collects the records, and sees to what follows from them.

The group stays as it is until the records are replayed; `epoch` is what its epoch will be then. Nothing here waits: as
in Kafka, a member that has to wait for something is told so, and finds it with a later heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.controller.effective import group_config
from tailrace.coordinator.assignors.sticky import Target, TaskMemberSpec, assign
from tailrace.coordinator.consumers.topics import metadata_hash
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause, Rebalance
from tailrace.coordinator.op import Call, Result, Steps, StoredRecord, Told, unchanged
from tailrace.coordinator.streams.group import Basis, StreamsGroup
from tailrace.coordinator.streams.member import MemberState, StreamsMember
from tailrace.coordinator.streams.reconcile import Goal, decide_next
from tailrace.coordinator.streams.records import (
    current_record,
    epoch_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from tailrace.coordinator.streams.topology import Configured, Topology, configure
from tailrace.model.config import GroupConfig
from tailrace.wire.schema import Message

_STANDBYS = "num.standby.replicas"
_NOT_READY = -1


class Why(NamedTuple):
    """Of a new epoch."""

    cause: Cause
    detail: str


class StreamsGroupChange:
    def __init__(
        self, state: GroupState, call: Call, group: StreamsGroup, records: Iterable[StoredRecord] = ()
    ) -> None:
        self.state = state
        self.call = call
        self.group = group
        self.records = list(records)
        self.answers: list[tuple[Told, Message]] = []
        self.epoch = group.epoch
        self.members = dict(group.members)
        self._before = state.groups.get(group.group_id)

    @property
    def config(self) -> GroupConfig:
        return group_config(self.call.config, self.call.image, self.group.group_id)

    def configure(self, topology: Topology) -> tuple[Configured, Basis]:
        """What becomes of the topology now. Raises STREAMS_INVALID_TOPOLOGY."""
        group, image = self.group, self.call.image
        made_with = image.topics, image.brokers
        is_same = all(old is new for old, new in zip(group.configured_with, made_with, strict=True))
        if group.configured is not None and is_same:
            configured, new_hash = group.configured, group.basis.metadata_hash
        else:
            configured, new_hash = configure(topology, image), metadata_hash(topology.topics, image)
        configs = {_STANDBYS: str(self.config.streams_num_standby_replicas)}
        return configured, Basis(new_hash, topology.epoch if configured.is_ready else _NOT_READY, configs)

    def keep_configured(self, configured: Configured) -> None:
        """To be called when nothing can be refused any more."""
        self.group.configured = configured
        self.group.configured_with = self.call.image.topics, self.call.image.brokers

    def bump(self, why: Why, basis: Basis, member: StreamsMember | None = None) -> None:
        """A new epoch, and so new targets."""
        self.epoch += 1
        self.records.append(epoch_record(self.group.group_id, self.epoch, basis))
        member_id, client_id = ("", "") if member is None else (member.member_id, member.client_id)
        rebalance = Rebalance(self.call.now_ms, why.cause, why.detail, self.epoch, member_id, client_id)
        self.state.history.note(self.group.group_id, rebalance)

    def remove(self, member: StreamsMember, *, cause: Cause, detail: str) -> None:
        """Its tasks are given away with the next heartbeat of another member."""
        group = self.group
        del self.members[member.member_id]
        group.unconfirmed.pop(member.member_id, None)
        for what in ("session", "rebalance"):
            self.state.deadlines.cancel((group.group_id, f"streams.{what}", member.member_id))
        self.records += member_tombstones(group.group_id, member.member_id)
        self.bump(Why(cause, detail), group.basis, member)

    def keep_session(self, member_id: str) -> None:
        """The member was heard: its session begins anew."""
        due = self.group.group_id, "streams.session", member_id
        self.state.deadlines.set(due, self.call.monotonic_ms + self.config.streams_session_timeout_ms)

    # ---- targets

    def assign(self, configured: Configured) -> dict[str, Target] | None:
        """New targets, for all members; None if there is more to compute than one turn takes, and it goes on by
        itself."""
        group, call = self.group, self.call
        members = {
            member_id: TaskMemberSpec(member.process_id, *group.targets.get(member_id, Target())[:2])
            for member_id, member in self.members.items()
        }
        tasks = configured.tasks() if configured.is_ready else {}
        steps = assign(members, tasks, self.config.streams_num_standby_replicas)
        try:
            next(steps)
        except StopIteration as done:
            targets: dict[str, Target] = done.value
            self.records += _target_records(group, self.members, targets)
            self.records.append(target_epoch_record(group.group_id, self.epoch, call.now_ms))
            return targets
        epoch, state = self.epoch, self.state
        group.is_assigning = True

        def go_on(_begun: Call) -> Steps:
            targets = yield from steps
            group.is_assigning = False
            if state.groups.get(group.group_id) is not group or group.assignment_epoch >= epoch:
                return Result()
            records = _target_records(group, group.members, targets)
            return Result(
                [*records, target_epoch_record(group.group_id, epoch, call.now_ms)],
                on_refused=unchanged,
            )

        self.state.work["streams.targets", group.group_id] = go_on
        return None

    def assignment_delay_ms(self) -> int:
        """For how long the next assignment has to wait."""
        if not self.group.assignment_timestamp_ms:
            return 0
        interval_ms = self.config.streams_assignment_interval_ms
        # The wall clock may have been set back.
        return min(self.group.assignment_timestamp_ms + interval_ms - self.call.now_ms, interval_ms)

    def reconcile(self, member: StreamsMember, *, epoch: int, target: Target, owned: Target | None) -> StreamsMember:
        """Brings a member nearer to its target."""
        if member.is_reconciled_to(epoch):
            return member
        group = self.group
        updated = decide_next(member, Goal(epoch, target, group.runs_at, group.kept_at, owned))
        if updated == member:
            return member
        self.records.append(current_record(group.group_id, updated))
        due = group.group_id, "streams.rebalance", updated.member_id
        if updated.state is MemberState.UNREVOKED_TASKS:
            self.state.deadlines.set(due, self.call.monotonic_ms + updated.rebalance_timeout_ms)
        else:
            self.state.deadlines.cancel(due)
        return updated

    def finish(self) -> Result:
        """To be called last: a group that is new must not be left behind by an op that is refused after all."""
        self.state.groups[self.group.group_id] = self.group
        return Result(self.records, self.answers, on_refused=self._undo)

    def _undo(self, _call: Call) -> Result:
        """The records were too large: what is not on the log is put back as it was, or nearly so."""
        group_id = self.group.group_id
        self.group.configured = None  # The hash of its topics was not stored.
        if self._before is None:
            self.state.groups.pop(group_id, None)
        else:
            self.state.groups[group_id] = self._before
        for member_id in self.members.keys() - self.group.members.keys():
            for what in ("session", "rebalance"):
                self.state.deadlines.cancel((group_id, f"streams.{what}", member_id))
        for member_id in self.group.members:
            if self.state.deadlines.get((group_id, "streams.session", member_id)) is None:
                self.keep_session(member_id)
        return Result()


def _target_records(
    group: StreamsGroup, members: Mapping[str, StreamsMember], targets: Mapping[str, Target]
) -> list[StoredRecord]:
    """Of what has changed. Who has left meanwhile has no target."""
    return [
        target_record(group.group_id, member_id, target)
        for member_id, target in sorted(targets.items())
        if member_id in members and target != group.targets.get(member_id)
    ]
