"""A group whose assignment the broker computes (KIP-848): its durable state, and what is asked of it.

Three epochs run one after the other:

    epoch             of the group: one more whenever members, subscriptions or partitions changed
    assignment_epoch  of the group's targets: the epoch that they were computed for
    member_epoch      of a member: the target that it has been brought to

and the state of the group follows from them:

    Empty         no members
    Assigning     assignment_epoch < epoch
    Reconciling   some member is not yet where its target is
    Stable        all are

Only replay changes what is durable. What is soft: who waits for an answer, what members may not have heard, and what is
being computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.consumers.member import Assigned, Member
from tailrace.coordinator.consumers.records import group_tombstones, partition_metadata_tombstone
from tailrace.coordinator.groups import GroupType, PartitionCheck
from tailrace.coordinator.history import Rebalance
from tailrace.coordinator.op import Call, Caller, StoredRecord
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid

if TYPE_CHECKING:
    from tailrace.coordinator.groups import GroupDeadlines

# From this version on OffsetCommit carries a member epoch.
_EPOCH_COMMIT_VERSION = 9


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    # The offset of the metadata that it was resolved with.
    version: int
    timestamp_ms: int


class Waiting(NamedTuple):
    """A member that changed the group, and is answered once there are targets for that."""

    caller: Caller
    # The group's epoch that it waits for.
    epoch: int
    # The partitions that it says it has; None if it did not say.
    owned: Partitions | None
    # It asked by JoinGroup, as members of the classic protocol do.
    is_join: bool = False


class ConsumerGroup:
    """Satisfies groups.Group."""

    type = GroupType.CONSUMER
    protocol_type = "consumer"
    # Its offsets expire by the time of their commit alone, as in Kafka.
    empty_since_ms = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Kafka's groups begin with 1, and their first member makes it 2.
        self.epoch = 1
        # The hash of the partitions and racks of its subscribed topics. It changes when a rebalance is needed.
        self.metadata_hash = 0
        # assignment_epoch <= epoch
        self.assignment_epoch = 0
        # By the wall clock; 0 if there never were targets.
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        # Instance id -> member id.
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # A record of old brokers, about partitions, that has to go.
        self.has_partition_metadata = False
        # How many members, and resolved expressions, subscribe to a topic; how many members use an expression.
        self.topic_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        # Who has a partition, assigned or not yet given up: never two.
        self.owners: dict[Uuid, dict[int, str]] = {}
        self.waiting: dict[str, Waiting] = {}
        # Members that have yet to say that they have what they were told to have, and the peer that was told.
        self.unconfirmed: dict[str, str] = {}
        # Its expressions are being resolved.
        self.is_resolving = False
        # What the last member with an expression may know of, from whom it was heard; None where everyone may.
        self.may_describe: Callable[[str], bool] | None = None
        # Who made that necessary, if it was a member.
        self.resolving_for: Rebalance | None = None

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts

    def member(self, member_id: str) -> Member:
        """Raises UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_owned(self, topic_id: Uuid, partition: int) -> bool:
        return partition in self.owners.get(topic_id, ())

    def subscribed_topics(self, member: Member) -> Iterator[str]:
        """The names of a member's topics; some may come twice, and some may not exist."""
        yield from member.subscribed_topic_names
        resolved = self.regexes.get(member.subscribed_topic_regex)
        if resolved is not None:
            yield from resolved.topics

    def subscribed_topic_ids(self, member: Member, image: MetadataImage) -> frozenset[Uuid]:
        names = self.subscribed_topics(member)
        return frozenset(topic.id for name in names if (topic := image.topics.get(name)) is not None)

    def preferred_assignor(self) -> str | None:
        """The one that most members ask for; the first by name of several."""
        votes = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return min(votes, key=lambda name: (-votes[name], name), default=None)

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        """A member that is behind may still commit what it has had since before its epoch (KIP-1251): what is given
        back then is to be asked for each partition."""
        if generation < 0 and not self.members:
            return None
        if is_transactional and generation == -1 and not member_id and group_instance_id is None:
            return None
        member = self.member(member_id)
        if not is_transactional and not member.is_classic and api_version < _EPOCH_COMMIT_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members of the consumer protocol must use OffsetCommit {_EPOCH_COMMIT_VERSION} or later.",
            )
        if generation == member.member_epoch:
            return None
        if generation > member.member_epoch:
            raise _stale(member, f"Epoch {generation} is newer than the member's, {member.member_epoch}.")
        return lambda topic, topic_id, partition: _check_partition(member, generation, topic, topic_id, partition)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise _stale(member, f"Epoch {member_epoch} is not the member's, {member.member_epoch}.")

    def check_offset_delete(self) -> None:
        """Topics that it is subscribed to are refused by is_subscribed_to."""

    def check_deletion(self) -> None:
        if self.members:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has {len(self.members)} members: stop them first."
            )

    def note_commit(self, member_id: str, call: Call, deadlines: GroupDeadlines) -> None:
        """Only heartbeats keep the session of a member."""

    def deletion_records(self) -> Sequence[StoredRecord]:
        records = group_tombstones(self.group_id, sorted({*self.members, *self.targets}), sorted(self.regexes))
        return [partition_metadata_tombstone(self.group_id), *records] if self.has_partition_metadata else records

    # What follows is called by replay alone.

    def replay_member(self, member: Member | None, member_id: str) -> None:
        """Puts a member in place of the one with its id, or takes it out."""
        old = self.members.get(member_id)
        if old is not None:
            self._count(old, -1)
            self._release(old.assigned, member_id)
            self._release(old.pending_revocation, member_id)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if member is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member
        self._count(member, 1)
        self._claim(member.assigned, member_id)
        self._claim(member.pending_revocation, member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def replay_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.regexes.pop(regex, None)
        if old is not None:
            _add(self.topic_counts, old.topics, -1)
        if resolved is not None:
            self.regexes[regex] = resolved
            _add(self.topic_counts, resolved.topics, 1)

    def _count(self, member: Member, change: int) -> None:
        _add(self.topic_counts, member.subscribed_topic_names, change)
        if member.subscribed_topic_regex:
            _add(self.regex_counts, (member.subscribed_topic_regex,), change)

    def _claim(self, assigned: Assigned, member_id: str) -> None:
        for topic_id, partitions in assigned.items():
            owners = self.owners.setdefault(topic_id, {})
            for partition in partitions:
                owners[partition] = member_id

    def _release(self, assigned: Assigned, member_id: str) -> None:
        for topic_id, partitions in assigned.items():
            owners = self.owners.get(topic_id, {})
            for partition in partitions:
                # A compacted log may tell of the next owner first.
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.owners.pop(topic_id, None)


def _check_partition(member: Member, epoch: int, topic: str, topic_id: Uuid, partition: int) -> None:
    assigned_in: int | None = None
    for assigned in (member.assigned, member.pending_revocation):
        topic_partitions: Mapping[int, int] = assigned.get(topic_id, {})
        assigned_in = topic_partitions.get(partition, assigned_in)
    if assigned_in is None:
        raise _stale(member, f"Partition {topic}-{partition} is not the member's.")
    if epoch < assigned_in:
        raise _stale(member, f"Epoch {epoch} is older than {assigned_in}, in which {topic}-{partition} was assigned.")


def _stale(member: Member, message: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, message)


def _add(counts: Counter[str], names: Iterable[str], change: int) -> None:
    for name in names:
        counts[name] += change
        if not counts[name]:
            del counts[name]
