"""Damage that was found in a segment after it was written: bytes that are no good batches any more.

A range goes from where the last good batch before it ends to where the next good one begins, in bytes and in offsets.
What its offsets held is not known: whoever reads them is told CORRUPT_MESSAGE, and everything around them is read as
before. It is kept in memory alone. A restart forgets it, and whoever looks finds it again.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.model.errors import StorageError


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
