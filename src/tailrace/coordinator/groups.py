"""The state of one partition of __consumer_offsets: its groups, their offsets, their deadlines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from tailrace.coordinator.deadlines import Deadlines
from tailrace.coordinator.history import History
from tailrace.coordinator.op import Call, Steps, StoredRecord, Told
from tailrace.model.ids import Uuid

if TYPE_CHECKING:
    from tailrace.coordinator.offsets.store import OffsetStore


class GroupType(StrEnum):
    """As ListGroups tells it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


_OF_CONSUMERS = (GroupType.CLASSIC, GroupType.CONSUMER)

# Called with (topic, its id, partition): raises KafkaError if the member may not commit there.
PartitionCheck = Callable[[str, Uuid, int], None]


class Group(Protocol):
    """What offsets, listing and deletion ask of a group, whatever its protocol. Checks raise KafkaError."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """Kafka's: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead; Assigning, Reconciling, NotReady."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    @property
    def empty_since_ms(self) -> int | None:
        """By the wall clock, if it is empty and that is known: its offsets expire from then on."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        is_transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        """What is given back, if anything, has to be asked for each partition."""

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None: ...

    def check_deletion(self) -> None: ...

    def note_commit(self, member_id: str, call: Call, deadlines: GroupDeadlines) -> None:
        """A member that commits is alive: a classic one's session begins anew."""

    def deletion_records(self) -> Sequence[StoredRecord]:
        """Tombstones of everything stored about it, its offsets aside."""


# What is due: (group, what, whose). What it is tells whose business: see `machine`.
Due = tuple[str, str, str]
GroupDeadlines = Deadlines[Due]


# Groups. Most are small.
_FORGOTTEN_PER_STEP = 100


class GroupState:
    """Shared by the ops of one partition; changed by replay alone, but for deadlines, history and callers, so that the
    next leader loads the same from the log."""

    def __init__(self, offsets: OffsetStore, history: History, owe_states: Callable[[str], Told] | None = None) -> None:
        """`owe_states` gives, for a share group, the one who has the states of its new share-partitions kept once that
        is committed."""
        self.groups: dict[str, Group] = {}
        self.offsets = offsets
        self.deadlines: GroupDeadlines = Deadlines()
        self.history = history
        self.owe_states: Callable[[str], Told] = owe_states or _nobody
        # What is to be computed in slices, each thing once; begun by the runtime, one after the other.
        self.work: OrderedDict[tuple[str, str], Callable[[Call], Steps]] = OrderedDict()

    def of_consumers(self, group_id: str) -> Group | None:
        """A classic or a consumer group. To members of these a group of another kind is none."""
        group = self.groups.get(group_id)
        return group if group is not None and group.type in _OF_CONSUMERS else None

    def forget(self) -> Iterator[None]:
        """Everything, in steps. Work refers to the state, which so would outlive its partition."""
        self.work.clear()
        while self.groups:
            for _ in range(min(_FORGOTTEN_PER_STEP, len(self.groups))):
                self.groups.popitem()
            yield
        yield from self.offsets.forget()
        yield from self.deadlines.forget()


def _nobody(group_id: str) -> Told:
    raise AssertionError(f"nobody keeps the states of share group {group_id}")


# Characters of a name that a sentence quotes.
_SHOWN_MAX = 100


def shown(name: str) -> str:
    """For messages to clients: a name may be as long as the longest string that can be answered."""
    return name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}..."
