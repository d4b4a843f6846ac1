"""What the tier has of one partition, as the records say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tailrace.model.ids import Uuid
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.records import PartitionState


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
    newest: RemoteSegment | None = None  # What the last change has added; None if it did something else.

    def copy(self) -> PartitionTier:
        """As it is now."""
        return replace(self, copying=dict(self.copying), visible=dict(self.visible), deleting=dict(self.deleting))

    def says_the_same(self, other: PartitionTier) -> bool:
        return (
            (self.topic, self.leader_epoch, self.log_start_offset, self.deletion)
            == (other.topic, other.leader_epoch, other.log_start_offset, other.deletion)
            and self.copying == other.copying
            and self.visible == other.visible
            and self.deleting == other.deleting
        )

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.visible.values())
