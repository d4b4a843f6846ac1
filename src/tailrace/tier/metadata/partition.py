"""What the tier has of one partition, as the records say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tailrace.model.ids import Uuid
from tailrace.tier.metadata.coverage import Change, RemoteSegment
from tailrace.tier.metadata.records import PartitionState

# Changes that are remembered, at least: there may be thousands of partitions. Who has missed more looks at everything.
_RECENT_MAX = 16


class Unfinished(NamedTuple):
    """A copy or a deletion that has begun."""

    segment: RemoteSegment
    leader_epoch: int
    since_ms: int  # By the clock of who began it.


@dataclass(slots=True)
class PartitionTier:
    """What the tier has of one partition."""

    topic: str
    leader_epoch: int = -1  # The newest that has written.
    log_start_offset: int = 0  # The largest that a leader has told of: the log does not begin before it.
    copying: dict[Uuid, Unfinished] = field(default_factory=dict)
    visible: dict[Uuid, RemoteSegment] = field(default_factory=dict)
    deleting: dict[Uuid, Unfinished] = field(default_factory=dict)
    deletion: PartitionState | None = None  # Of the whole partition, with its topic.
    changes: int = 0  # Grows with each change of what is visible: for those who keep something that follows from it.
    recent: list[Change] = field(default_factory=list, compare=False, repr=False)  # The last of them.

    def note(self, segment: RemoteSegment, *, is_added: bool) -> None:
        """One segment is visible from now on, or is not any more."""
        self.changes += 1
        self.recent.append(Change(segment, is_added))
        if len(self.recent) >= 2 * _RECENT_MAX:
            del self.recent[:_RECENT_MAX]

    def note_all(self) -> None:
        self.changes += 1
        self.recent.clear()

    def changes_since(self, changes: int) -> list[Change] | None:
        """None where they are not remembered."""
        missed = self.changes - changes
        return self.recent[len(self.recent) - missed :] if 0 <= missed <= len(self.recent) else None

    def copy(self) -> PartitionTier:
        """As it is now."""
        copied = replace(self, copying=dict(self.copying), visible=dict(self.visible), deleting=dict(self.deleting))
        copied.recent = []
        return copied

    @property
    def head(self) -> tuple[object, ...]:
        """What it has beside segments."""
        return self.topic, self.leader_epoch, self.log_start_offset, self.deletion

    def says_the_same(self, other: PartitionTier) -> bool:
        return (
            self.head == other.head
            and self.copying == other.copying
            and self.visible == other.visible
            and self.deleting == other.deleting
        )

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.visible.values())
