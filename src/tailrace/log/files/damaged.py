"""Damage that was found in a segment after it was written: bytes that are no good batches any more.

A range goes from where the last good batch before it ends to where the next good one begins, in bytes and in offsets.
What its offsets held is not known: whoever reads them is told CORRUPT_MESSAGE, and everything around them is read as
before. It is kept in memory alone. A restart forgets it, and whoever looks finds it again.

Where a read meets bytes that are no batch, or is repeated as if its reader could not use what it got, the offset is
noted in `suspects` for whoever checks segments (`log.scrub`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tailrace.log.scrub.rereads import Rereads
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import TopicPartition

if TYPE_CHECKING:
    from tailrace.log.files.segment import Segment


class DamagedRange(NamedTuple):
    file: str
    position: int
    end_position: int  # = position where bytes are missing, at the end of a closed segment
    start_offset: int
    end_offset: int
    cause: str


class Suspect(NamedTuple):
    """Where something looks wrong: somewhere in the segment that holds the offset, or right there."""

    offset: int
    is_whole_segment: bool


class DamagedError(StorageError):
    """Bytes that should be a good batch are none. The disk has answered: it is not the device that failed. The segment
    that is to be checked holds `offset`."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def damage_at(damage: Iterable[DamagedRange], position: int) -> DamagedRange | None:
    """The range that covers `position`."""
    for each in damage:
        if each.position <= position < each.end_position:
            return each
    return None


class KnownDamage:
    """What is known of the damage of one log, and where it is suspected."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.ranges: tuple[DamagedRange, ...] = ()  # of all segments, in order
        # What is to be checked, by partition; shared by all logs of a broker.
        self.suspects: dict[TopicPartition, Suspect] = {}
        self._topic_partition = topic_partition
        self._rereads = Rereads()

    def settle(self, segments: Iterable[Segment], log_start_offset: int) -> None:
        """Segments have come or gone, or were cut: what is known of damage is what they know. What lies before the log
        start is not read any more."""
        self.ranges = tuple(
            each for segment in segments for each in segment.damaged_ranges if each.end_offset > log_start_offset
        )

    def suspect(self, offset: int, *, is_whole_segment: bool = False) -> None:
        """Something is wrong with what is read there, or with the segment that holds it: it is to be checked."""
        known = self.suspects.get(self._topic_partition)
        if known is None or (is_whole_segment and not known.is_whole_segment):
            self.suspects[self._topic_partition] = Suspect(offset, is_whole_segment)

    def share_suspects(self, suspects: dict[TopicPartition, Suspect]) -> None:
        suspects.update(self.suspects)
        self.suspects = suspects

    def note_read(self, offset: int) -> None:
        """A closed segment is read from there."""
        if self._rereads.note(offset):
            self.suspect(offset)

    def corrupt(self, error: DamagedError) -> KafkaError:
        """What a reader is told who has met damage that was not known."""
        self.suspect(error.offset, is_whole_segment=True)
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{error}; the segment will be checked.")

    def end_before(self, offset: int, end_offset: int) -> int:
        """Where a read from `offset` to `end_offset` has to end. Raises KafkaError if it begins within damage."""
        for each in self.ranges:
            if each.start_offset <= offset < each.end_offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"Offsets {each.start_offset} to {each.end_offset - 1} of {self._topic_partition} are damaged in "
                    f"{each.file} ({each.cause}). They are repaired once an in-sync replica can be asked for them.",
                )
            if offset < each.start_offset:
                return min(end_offset, each.start_offset)
        return end_offset
