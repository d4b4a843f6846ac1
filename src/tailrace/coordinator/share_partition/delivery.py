"""Ranges of offsets that are in one state: the pieces of which a share-partition's window is made."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The numbers are those of __share_group_state."""

    AVAILABLE = 0
    # In the leader's memory alone.
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    # To be archived once its dead letter is written. In the leader's memory alone, though Kafka 4.4 stores it.
    ARCHIVING = 3
    # Rejected, delivered too often, or no record at all.
    ARCHIVED = 4
    # Available once its back-off is over. In the leader's memory alone: stored as available.
    DELAYED = 5


class Acknowledge(IntEnum):
    """What a member says of a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Before(NamedTuple):
    """What a delivery was before a change that is not stored yet."""

    state: RecordState
    member_id: str
    due_ms: float


class Delivery:
    """Both offsets are inclusive. About 160 bytes: a window may have one for each record."""

    __slots__ = ("batch_size", "before", "count", "due_ms", "first", "last", "member_id", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState = RecordState.AVAILABLE,
        count: int = 0,
        *,
        member_id: str = "",
        due_ms: float = 0.0,
    ) -> None:
        self.first = first
        self.last = _same(first, last)
        # Of the delivery that it was split from, and that one from, and so on.
        self.batch_size = last - first + 1
        self.state = state
        # How often it was delivered.
        self.count = count
        # Who has it, and until when, while it is acquired. While it is delayed: until when.
        self.member_id = member_id
        self.due_ms = due_ms
        # Set while a change is being stored: until then nobody else may have it, and the change may be taken back.
        self.before: Before | None = None

    def __repr__(self) -> str:
        return f"<{self.first}-{self.last} {self.state.name} {self.count} {self.member_id}>"

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_done(self) -> bool:
        return self.state in _DONE

    @property
    def stored_state(self) -> RecordState:
        return RecordState.AVAILABLE if self.state is RecordState.DELAYED else self.state

    @property
    def is_free(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.before is None

    def is_held_by(self, member_id: str) -> bool:
        return self.state is RecordState.ACQUIRED and self.before is None and self.member_id == member_id

    def split(self, offset: int) -> Delivery:
        """Gives what begins at `offset`, which lies within; the rest stays."""
        assert self.before is None, "a change that is being stored is of the whole"
        rest = Delivery(offset, self.last, self.state, self.count, member_id=self.member_id, due_ms=self.due_ms)
        rest.batch_size = self.batch_size
        self.last = _same(self.first, offset - 1)
        return rest

    def begin(self, state: RecordState) -> None:
        self.before = Before(self.state, self.member_id, self.due_ms)
        self.state, self.member_id = state, ""


def _same(first: int, last: int) -> int:
    """`last`; of a single record the number is kept once."""
    return first if first == last else last


_DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class Dead(NamedTuple):
    """Records that are given up, and wait for their dead letters."""

    delivery: Delivery
    # By a member; else they were delivered too often.
    is_rejected: bool


class Counts(NamedTuple):
    """Of a window, in offsets."""

    held: int
    delayed: int
    dead: int  # Their dead letters are owed.


class Acquired(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """A range, and what a member says of it: one type for all, or one for each offset."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class Limits(NamedTuple):
    """The group's settings, as they are now."""

    delivery_count_max: int
    # Offsets between the start of the window and its end.
    window_max: int
    lock_ms: int
    may_renew: bool = True
    has_dead_letters: bool = False
    # How long a record that comes back is kept from everybody, after its first delivery; 0 for not at all.
    backoff_ms: int = 0
    backoff_factor: float = 1.0
    backoff_max_ms: int = 0

    def delay_ms(self, delivery_count: int) -> float:
        try:
            return min(self.backoff_ms * self.backoff_factor ** (delivery_count - 1), self.backoff_max_ms)
        except OverflowError:
            return self.backoff_max_ms
