"""A share group: its durable state, and what is asked of it.

Epochs run as in a consumer group: `epoch` rises whenever members, subscriptions or partitions changed, the targets were
computed for `assignment_epoch`, and each member has been brought to its `member_epoch`. There is nothing to reconcile:
a partition may be with several members at once, so that a member takes its target as it is.

A partition is assigned only once share coordinators keep its state: until then it is `initializing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.groups import GroupType, PartitionCheck
from tailrace.coordinator.op import Caller, StoredRecord
from tailrace.coordinator.shares.member import ShareMember
from tailrace.coordinator.shares.records import group_tombstones
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid

if TYPE_CHECKING:
    from tailrace.coordinator.groups import GroupDeadlines
    from tailrace.coordinator.op import Call


class ShareTopic(NamedTuple):
    """Partitions of a topic whose state is kept, or about to be. The name outlives the topic."""

    name: str
    partitions: frozenset[int]


ShareTopics = Mapping[Uuid, ShareTopic]


class Waiting(NamedTuple):
    """A member that changed the group, and is answered once there are targets for that."""

    caller: Caller
    epoch: int


class ShareGroup:
    """Satisfies groups.Group."""

    type = GroupType.SHARE
    protocol_type = "share"
    # It has no committed offsets that could expire.
    empty_since_ms = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # As in consumer groups: the first member makes it 2.
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 0
        # By the wall clock; 0 if there never were targets.
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.initializing: ShareTopics = {}
        self.initialized: ShareTopics = {}
        # Whose state is being deleted, by an administrator.
        self.deleting: Mapping[Uuid, str] = {}
        self.topic_counts: Counter[str] = Counter()
        self.waiting: dict[str, Waiting] = {}

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts

    def member(self, member_id: str) -> ShareMember:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def check_offset_commit(self, **_rest: object) -> PartitionCheck | None:
        raise self._no_consumer_group()

    def check_offset_fetch(self, **_rest: object) -> None:
        raise self._no_consumer_group()

    def check_offset_delete(self) -> None:
        raise self._no_consumer_group()

    def check_deletion(self) -> None:
        if self.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has {len(self.members)} members: stop them first."
            )

    def note_commit(self, member_id: str, call: Call, deadlines: GroupDeadlines) -> None:
        """There are no commits."""

    def deletion_records(self) -> Sequence[StoredRecord]:
        has_states = bool(self.initializing or self.initialized or self.deleting)
        return group_tombstones(self.group_id, sorted({*self.members, *self.targets}), has_states=has_states)

    def replay_member(self, member: ShareMember | None, member_id: str) -> None:
        """Called by replay alone: puts a member in place of the one with its id, or takes it out."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self.topic_counts.subtract(old.subscribed_topic_names)
        if member is not None:
            self.members[member_id] = member
            self.topic_counts.update(member.subscribed_topic_names)
        self.topic_counts = +self.topic_counts

    def _no_consumer_group(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")
