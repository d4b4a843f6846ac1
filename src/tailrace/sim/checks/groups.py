"""What members of consumer groups were told and did, and what must hold of it at any moment.

- A partition is assigned to one member in one epoch of a group (a generation of a classic one).
- Of two members that take a partition for their own, the session of one is over.
- A commit is refused once another member was given the partition in a later epoch: who comes back late changes nothing.
- A committed offset is never lost and never goes back.
- In the end every record was processed by every group.

Members tell what they believe: a partition is theirs from the moment they hear of it until they give it up, hear that
it is lost, or die.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand

# The clocks of brokers differ from that of the world by a percent at most.
_CLOCK_ERROR = 1.011
_NEVER = float("-inf")


class Owner(Protocol):
    """A member, as far as it is judged."""

    @property
    def name(self) -> str: ...

    @property
    def group_id(self) -> str: ...

    @property
    def identity(self) -> str:
        """The name of a static member, else the id that the group knows it by."""

    @property
    def epoch(self) -> int: ...

    @property
    def session(self) -> Session: ...


class Session:
    """When a member last sent something that the coordinator took as a sign of life, by the time of the world."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds / _CLOCK_ERROR
        self.heard = _NEVER
        # When it was last heard after a silence in which its session may have ended: as a classic member of a group of
        # the new protocol it then comes back under its old id, and is not told that all it had is lost.
        self._returned = _NEVER

    def hear(self, at: float) -> None:
        if _NEVER < self.heard <= at - self._seconds:
            self._returned = at
        self.heard = max(self.heard, at)

    def may_have_ended(self, since: float, now: float) -> bool:
        return now >= self.heard + self._seconds or self._returned > since


class Commit(NamedTuple):
    """On its way: `others` had been given partitions in a later epoch when it was sent."""

    owner: Owner
    offsets: Mapping[TopicPartition, int]
    others: Mapping[TopicPartition, str]


class GroupRecord:
    """What is known of one group."""

    def __init__(self) -> None:
        # Epochs begin anew when an empty group changes from the one protocol to the other.
        self.has_lasting_epochs = True
        # With the epoch in which, and the time at which, each was given the partition.
        self.owners: dict[TopicPartition, dict[Owner, tuple[int, float]]] = {}
        self.assigned: dict[tuple[int, TopicPartition], str] = {}
        self.processed: dict[TopicPartition, set[int]] = {}
        self.committed: dict[TopicPartition, int] = {}  # acknowledged
        # Sent and neither confirmed nor refused: these may have been stored, or be stored late, after a newer one.
        self.in_doubt: dict[TopicPartition, Counter[int]] = {}


class GroupChecks:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._groups: dict[str, GroupRecord] = {}
        self.processed_count = 0
        self.commit_count = 0
        self.assigned_count = 0

    def of(self, group_id: str) -> GroupRecord:
        return self._groups.setdefault(group_id, GroupRecord())

    # ---- whose a partition is

    def note_assigned(self, owner: Owner, partitions: Iterable[TopicPartition]) -> None:
        group = self.of(owner.group_id)
        for partition in partitions:
            self.assigned_count += 1
            known = group.assigned.setdefault((owner.epoch, partition), owner.identity)
            demand(
                known == owner.identity or not group.has_lasting_epochs,
                "a partition is assigned to one member per epoch",
                group=owner.group_id,
                partition=partition,
                epoch=owner.epoch,
                members=(known, owner.identity),
            )
            owners = group.owners.setdefault(partition, {})
            for other, (_epoch, since) in owners.items():
                self._judge_handover(owner, other, since, partition)
            owners[owner] = owner.epoch, self._now()

    def _judge_handover(self, owner: Owner, other: Owner, since: float, partition: TopicPartition) -> None:
        # A static member that is started while its predecessor still runs takes its place at once.
        if other is owner or other.identity == owner.identity:
            return
        # Who comes late may hear of an assignment that the group has gone beyond without it.
        now = self._now()
        demand(
            other.session.may_have_ended(since, now) or owner.session.may_have_ended(now, now),
            "a partition has one owner",
            group=owner.group_id,
            partition=partition,
            owners=(f"{other.name} of epoch {other.epoch}", f"{owner.name} of epoch {owner.epoch}"),
            heard=(other.session.heard, owner.session.heard),
        )

    def note_given_up(self, owner: Owner, partitions: Iterable[TopicPartition]) -> None:
        group = self.of(owner.group_id)
        for partition in partitions:
            group.owners.get(partition, {}).pop(owner, None)

    def note_gone(self, owner: Owner) -> None:
        """It has died, or left: it takes nothing for its own any more."""
        self.note_given_up(owner, list(self.of(owner.group_id).owners))

    # ---- what it has done

    def note_processed(self, owner: Owner, partition: TopicPartition, offset: int) -> None:
        self.processed_count += 1
        self.of(owner.group_id).processed.setdefault(partition, set()).add(offset)

    def begin_commit(self, owner: Owner, offsets: Mapping[TopicPartition, int]) -> Commit:
        group = self.of(owner.group_id)
        others = {
            partition: other.name
            for partition in offsets
            for other, (epoch, _since) in group.owners.get(partition, {}).items()
            if epoch > owner.epoch and group.has_lasting_epochs and other.identity != owner.identity
        }
        for partition, offset in offsets.items():
            group.in_doubt.setdefault(partition, Counter())[offset] += 1
        return Commit(owner, offsets, others)

    def note_committed(self, commit: Commit) -> None:
        """It was acknowledged."""
        self.commit_count += 1
        demand(
            not commit.others,
            "only the owner of a partition can commit",
            group=commit.owner.group_id,
            member=commit.owner.name,
            owners=commit.others,
        )
        group = self.of(commit.owner.group_id)
        for partition, offset in commit.offsets.items():
            group.in_doubt[partition][offset] -= 1
            group.committed[partition] = max(offset, group.committed.get(partition, -1))

    def note_refused(self, commit: Commit) -> None:
        """It was sent once, and the coordinator has said that it does not count."""
        group = self.of(commit.owner.group_id)
        for partition, offset in commit.offsets.items():
            group.in_doubt[partition][offset] -= 1

    def judge_committed(
        self, group_id: str, expected: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]
    ) -> None:
        """`expected` was acknowledged before somebody asked, and `found` is what he was told."""
        for partition, offset in expected.items():
            told = found.get(partition, -1)
            demand(
                told >= offset or self.of(group_id).in_doubt.get(partition, Counter())[told] > 0,
                "a committed offset is there, and never goes back",
                group=group_id,
                partition=partition,
                committed=offset,
                found=told,
            )

    def unprocessed(self, group_id: str, acked: Mapping[TopicPartition, Iterable[int]]) -> list[str]:
        """Partitions with acknowledged records that the group has not processed, in words."""
        processed = self.of(group_id).processed
        found = []
        for partition, offsets in acked.items():
            missing = sorted(set(offsets) - processed.get(partition, set()))
            if missing:
                found.append(f"{partition} of {group_id} from {missing[0]}: {len(missing)} records")
        return found
