"""A classic group: its members assign partitions among themselves, and the coordinator only gathers them.

    from                  to                    when
    Empty                 PreparingRebalance    the first member joins; the initial delay waits for more of them
    Stable                PreparingRebalance    a member joins, changes, leaves or is lost; the leader joins again
    CompletingRebalance   PreparingRebalance    the same, or a SyncGroup did not come in time
    PreparingRebalance    CompletingRebalance   all have joined, or the rebalance timeout is over: a new generation
    PreparingRebalance    Empty                 the last member is gone: a new generation, stored
    CompletingRebalance   Stable                the leader has sent the assignment, stored
    (a record)            Stable, Empty         replayed by a new coordinator
    (a record)            PreparingRebalance    the same, of a consumer group that has become a classic one

A group that is deleted is dropped at once, so no object is ever in Kafka's state Dead.

Between two stored generations nothing about a classic group is durable, so its ops change it at once. What they store
they put into `unreplayed`, by which replay knows the record of a group that is already what the record says. If one
cannot be written, the whole partition is loaded anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from tailrace.coordinator.classic.member import ClassicMember, Protocol
from tailrace.coordinator.classic.subscriptions import read_subscribed_topics
from tailrace.coordinator.groups import GroupType
from tailrace.coordinator.op import StoredRecord
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.stored_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from tailrace.coordinator.groups import GroupDeadlines
    from tailrace.coordinator.op import Call, Caller

# The protocol type of consumers: the only one whose metadata the coordinator can read.
CONSUMER_PROTOCOL_TYPE = "consumer"


class ClassicState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


_NEXT: dict[ClassicState, tuple[ClassicState, ...]] = {
    ClassicState.EMPTY: (ClassicState.PREPARING_REBALANCE,),
    ClassicState.PREPARING_REBALANCE: (ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY),
    ClassicState.COMPLETING_REBALANCE: (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE),
    ClassicState.STABLE: (ClassicState.PREPARING_REBALANCE,),
}


class ClassicGroup:
    """As created, without members and never stored."""

    type = GroupType.CLASSIC

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.state_since_ms: int | None = None  # By the wall clock.
        self.generation = 0
        self.protocol_type = ""  # That of the members, or of the last ones if the group is empty now.
        self.protocol_name: str | None = None  # Chosen for this generation.
        self.leader_id: str | None = None
        # In the order in which they came. Changed by the methods below alone, as are the three fields after it.
        self.members: dict[str, ClassicMember] = {}
        self.static_member_ids: dict[str, str] = {}  # By instance id.
        self._supporters: dict[str, int] = {}  # How many members know a protocol.
        self.joining_count = 0  # Members whose JoinGroup waits.
        # Ids that were given away (KIP-394) and have not joined yet, oldest first; each has a session deadline.
        self.pending_joins: dict[str, None] = {}
        # Members of this generation whose SyncGroup has not come yet.
        self.pending_syncs: set[str] = set()
        # While the first rebalance of an empty group waits for more members: how long this wait is, and how much of the
        # rebalance timeout is left after it. `has_grown` prolongs it.
        self.initial_delay: tuple[float, float] | None = None
        self.has_grown = False
        # The record that was last written or replayed; None if there is none.
        self.stored: GroupMetadataValue | None = None
        self.unreplayed: deque[GroupMetadataValue] = deque()
        # Read when somebody asks. The first item tells whether they can be read.
        self._subscribed_topics: tuple[bool, frozenset[str]] | None = None

    # What offsets, listing and deletion ask: see groups.Group.

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def empty_since_ms(self) -> int | None:
        """Unknown of a group that never had a generation: its offsets expire by the time of their commit."""
        return self.state_since_ms if self.is_empty and self.protocol_type else None

    def is_subscribed_to(self, topic: str) -> bool:
        """If it has members and we cannot read what they are subscribed to: to everything."""
        if self.is_empty:
            return False
        if self._subscribed_topics is None:
            self._subscribed_topics = self._read_subscribed_topics()
        is_known, topics = self._subscribed_topics
        return topic in topics if is_known else True

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        del api_version
        if generation < 0 and self.is_empty:
            return  # An admin, or a consumer that assigns partitions to itself.
        if generation >= 0 or member_id or group_instance_id is not None:
            self.check_member(member_id, group_instance_id)
            self.check_generation(generation)
        elif not is_transactional and not self.is_empty:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Group {self.group_id!r} has members: only they may commit, or stop them all first.",
            )
        if not is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"Group {self.group_id!r} has not got its assignment yet."
            )

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Anybody may read the offsets of a classic group."""

    def check_offset_delete(self) -> None:
        """Offsets of topics that nobody is subscribed to may go, where subscriptions can be read."""
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id!r} has members: stop them first.")

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id!r} has members: stop them first.")

    def note_commit(self, member_id: str, call: Call, deadlines: GroupDeadlines) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self.extend_session(member, call, deadlines)

    def deletion_records(self) -> Sequence[StoredRecord]:
        return (StoredRecord(GroupMetadataKey(group=self.group_id), None),)

    # What the ops of the group ask.

    @property
    def has_all_joined(self) -> bool:
        return self.joining_count == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The timeout of its slowest member (KIP-62)."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            current = self.static_member_ids.get(instance_id)
            if current is not None and current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Another client has taken the place of instance {instance_id!r} in group {self.group_id!r}:"
                    " give each client an instance id of its own.",
                )
            if current is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Group {self.group_id!r} has no instance {instance_id!r}: join it again.",
                )
        if member_id not in self.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Group {self.group_id!r} has no member {member_id!r}: join it again."
            )

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Group {self.group_id!r} is in generation {self.generation}, not {generation}: join it again.",
            )

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Whether a member that knows these protocols can be one of the group: all members must have one in common."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(self._supporters.get(name, 0) == count for name in names)

    def select_protocol(self) -> str:
        """Each member votes for the one it likes best of those that all know."""
        count = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    # Changes, which keep the fields consistent with each other. What is to be answered is the caller's business.

    def change_state(self, state: ClassicState, now_ms: int) -> None:
        assert state in _NEXT[self.state], f"group {self.group_id!r}: no way from {self.state} to {state}"
        self.state = state
        self.state_since_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Everybody who is to take part has joined."""
        # A group that was a consumer group is stored with a generation that none of its members is in:
        # `stored_rebalancing_group`.
        self.generation = max(self.generation, self.stored.generation if self.stored else 0) + 1
        self.initial_delay = None
        self.pending_syncs.clear()
        self._subscribed_topics = None
        self.protocol_name = self.select_protocol() if self.members else None
        self.change_state(ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY, now_ms)

    def add_member(self, member: ClassicMember, protocol_type: str) -> None:
        """The first member leads; it is followed by whoever has been in the group for longest."""
        if not self.members:
            self.protocol_type = protocol_type
            self._supporters.clear()
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_member_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_protocols(member, 1)
        self.pending_joins.pop(member.member_id, None)

    def remove_member(self, member_id: str) -> None:
        """Also an id that has not joined yet. Its waiting requests are to be answered before: they go with it."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count_protocols(member, -1)
        self.park_join(member, None)
        if member.instance_id is not None:
            self.static_member_ids.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static_member(self, member: ClassicMember, new_member_id: str) -> None:
        """The same place under another member id; it comes last in order, as a new member would."""
        assert member.instance_id is not None
        del self.members[member.member_id]
        self.pending_syncs.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = new_member_id
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        self.static_member_ids[member.instance_id] = new_member_id

    def update_protocols(self, member: ClassicMember, protocols: tuple[Protocol, ...]) -> None:
        self._count_protocols(member, -1)
        self._subscribed_topics = None
        member.protocols = protocols
        self._count_protocols(member, 1)

    def park_join(self, member: ClassicMember, caller: Caller | None) -> Caller | None:
        """Returns whoever has waited for the member's join so far."""
        before, member.join_caller = member.join_caller, caller
        self.joining_count += (caller is not None) - (before is not None)
        return before

    def elect_joined_leader(self) -> bool:
        """Whether the leader is one who has joined: if it has not, another one takes its place, if there is any."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.join_caller is None:
            joined = next((each.member_id for each in self.members.values() if each.join_caller is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def extend_session(self, member: ClassicMember, call: Call, deadlines: GroupDeadlines) -> None:
        """The member was heard."""
        deadlines.set((self.group_id, SESSION, member.member_id), call.monotonic_ms + member.session_timeout_ms)

    def _count_protocols(self, member: ClassicMember, step: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            self._supporters[name] = self._supporters.get(name, 0) + step
            if not self._supporters[name]:
                del self._supporters[name]

    def _read_subscribed_topics(self) -> tuple[bool, frozenset[str]]:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return False, frozenset()
        topics: set[str] = set()
        for member in self.members.values():
            read = read_subscribed_topics(member.metadata(self.protocol_name))
            if read is None:
                return False, frozenset()
            topics.update(read)
        return True, frozenset(topics)


# What is due of a classic group: see groups.Due. Sessions belong to a member, the others to the group.
SESSION = "classic.session"
JOIN = "classic.join"
SYNC = "classic.sync"
