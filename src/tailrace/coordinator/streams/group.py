"""A streams group: its durable state, and what is asked of it.

Epochs run as in a consumer group: `epoch` rises whenever members, topics or settings changed, the targets were computed
for `assignment_epoch`, and each member has been brought to its `member_epoch`. The state of the group follows:

    Empty         no members
    NotReady      topics that the topology needs are missing, or have the wrong number of partitions
    Assigning     assignment_epoch < epoch
    Reconciling   some member is not yet where its target is
    Stable        all are

Only replay changes what is durable. What is soft: what became of the topology with the topics that there are, who asked
all others to stop, what members may not have heard, and where the application answers queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.coordinator.assignors.sticky import Target, TaskId
from tailrace.coordinator.groups import GroupType, PartitionCheck
from tailrace.coordinator.op import StoredRecord
from tailrace.coordinator.streams.member import Held, StreamsMember, task_ids
from tailrace.coordinator.streams.records import group_tombstones
from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tailrace.coordinator.groups import GroupDeadlines
    from tailrace.coordinator.op import Call
    from tailrace.coordinator.streams.topology import Configured, Topology

# From this version on OffsetCommit carries a member epoch.
_EPOCH_COMMIT_VERSION = 9
# Before the first targets.
FIRST_EPOCH = 1


class Basis(NamedTuple):
    """What targets stand on beside the members: if it changes, there is a new epoch."""

    # Of the topics that the topology needs.
    metadata_hash: int = 0
    # The epoch of the topology, if its topics are good; else -1.
    validated_topology_epoch: int = 0
    configs: Mapping[str, str] = {}


class StreamsGroup:
    """Satisfies groups.Group."""

    type = GroupType.STREAMS
    protocol_type = "streams"
    # Its offsets expire by the time of their commit alone, as in Kafka.
    empty_since_ms = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        # Of the epoch.
        self.basis = Basis()
        # assignment_epoch <= epoch
        self.assignment_epoch = FIRST_EPOCH
        # By the wall clock; 0 if there never were targets.
        self.assignment_timestamp_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, Target] = {}
        # Which members have a task, assigned or not yet given up; of active tasks never two.
        self.active_owners: dict[TaskId, str] = {}
        self.copy_owners: dict[TaskId, set[str]] = {}

        self.configured: Configured | None = None
        # The parts of the metadata that `configured` was made with: while they are the same, it is.
        self.configured_with: tuple[Any, Any] = (None, None)
        self.is_assigning = False
        # A member that had to stop for good and asked all others to.
        self.shutdown_member_id: str | None = None
        # Members that have yet to say that they have what they were told to have, and the peer that was told.
        self.unconfirmed: dict[str, str] = {}
        # One more whenever what is told about endpoints has changed.
        self.endpoint_epoch = 0

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.basis.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_blank(self) -> bool:
        """Nothing is known of it."""
        return self.epoch == FIRST_EPOCH and self.topology is None and not self.members and not self.targets

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def member(self, member_id: str) -> StreamsMember:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def runs_at(self, subtopology: str, partition: int) -> str | None:
        """The process that has the active task."""
        owner = self.active_owners.get((subtopology, partition))
        return None if owner is None else self.members[owner].process_id

    def kept_at(self, subtopology: str, partition: int) -> AbstractSet[str]:
        """The processes that have it as a standby or to warm up."""
        owners = self.copy_owners.get((subtopology, partition), ())
        return {self.members[owner].process_id for owner in owners}

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        """A member that is behind may still commit for tasks that it has had since before its epoch: what is given back
        then is to be asked for each partition."""
        if generation < 0 and not self.members:
            return None
        if is_transactional and generation == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        if not is_transactional and api_version < _EPOCH_COMMIT_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {_EPOCH_COMMIT_VERSION} or above must be used by members using the streams group"
                " protocol",
            )
        if generation == member.member_epoch:
            return None
        if generation > member.member_epoch:
            raise _stale(
                f"Received member epoch {generation} is newer than current member epoch {member.member_epoch}."
            )
        return lambda topic, _topic_id, partition: self._check_partition(member, generation, topic, partition)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        expected = self.member(member_id or "").member_epoch
        if member_epoch != expected:
            raise _stale(
                f"The received member epoch {member_epoch} does not match the expected member epoch {expected}."
            )

    def check_offset_delete(self) -> None:
        """Topics that it reads are refused by is_subscribed_to."""

    def check_deletion(self) -> None:
        if self.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has {len(self.members)} members: stop them first."
            )

    def note_commit(self, member_id: str, call: Call, deadlines: GroupDeadlines) -> None:
        """Only heartbeats keep the session of a member."""

    def deletion_records(self) -> Sequence[StoredRecord]:
        return group_tombstones(self.group_id, sorted({*self.members, *self.targets}))

    def _check_partition(self, member: StreamsMember, epoch: int, topic: str, partition: int) -> None:
        subtopology = None if self.topology is None else self.topology.readers.get(topic)
        if subtopology is None:
            raise _stale(f"Topic {topic} is not in the topology.")
        given_in = member.assigned.active.get(subtopology, {}).get(partition)
        if given_in is None:
            given_in = member.pending_revocation.active.get(subtopology, {}).get(partition)
        if given_in is None:
            raise _stale(f"Task {subtopology}-{partition} is not assigned or pending revocation for member.")
        if epoch < given_in:
            raise _stale(
                f"Received member epoch {epoch} is older than assignment epoch {given_in} for task"
                f" {subtopology}-{partition}."
            )

    # What follows is called by replay alone.

    def replay_member(self, member: StreamsMember | None, member_id: str) -> None:
        """Puts a member in place of the one with its id, or takes it out."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self._release(old.assigned, member_id)
            self._release(old.pending_revocation, member_id)
        if member is not None:
            self.members[member_id] = member
            self._claim(member.assigned, member_id)
            self._claim(member.pending_revocation, member_id)
        elif not self.members:
            self.shutdown_member_id = None

    def _claim(self, held: Held, member_id: str) -> None:
        for task in task_ids(held.active):
            self.active_owners[task] = member_id
        for task in _copies(held):
            self.copy_owners.setdefault(task, set()).add(member_id)

    def _release(self, held: Held, member_id: str) -> None:
        for task in task_ids(held.active):
            # A compacted log may tell of the next owner first.
            if self.active_owners.get(task) == member_id:
                del self.active_owners[task]
        for task in _copies(held):
            owners = self.copy_owners.get(task, set())
            owners.discard(member_id)
            if not owners:
                self.copy_owners.pop(task, None)


def _copies(held: Held) -> Iterable[TaskId]:
    return (*task_ids(held.standby), *task_ids(held.warmup))


def _stale(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, message)
