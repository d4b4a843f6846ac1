"""What a delayed record carries while it waits, and the topics of the room in which it does."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import NamedTuple

from tailrace.kit.delays.slots import RINGS, Level, Slot

Headers = Sequence[tuple[str, bytes | None]]

_OURS = "tailrace.delay."
TICKET = f"{_OURS}ticket"
TOPIC = f"{_OURS}topic"
PARTITION = f"{_OURS}partition"

# A year of waiting is not offered: what seems to is a mistake in units.
_DIGITS_MAX = 15


class Room(NamedTuple):
    """Where records wait; several may be kept apart by their names."""

    name: str = "delays"

    def topic(self, level: Level) -> str:
        return f"{self.name}.{RINGS[level].suffix}"

    @property
    def cancels(self) -> str:
        """Tickets that were cancelled, in one partition. Who reads it as a member of the group is the mover."""
        return f"{self.name}.cancelled"

    @property
    def dead_letters(self) -> str:
        return f"{self.name}.dlq"


class Ticket(NamedTuple):
    """As a text it is what `Delays.send` gives, and `cancel` takes."""

    due_ms: int
    name: str

    def __str__(self) -> str:
        return f"{self.due_ms}-{self.name}"


def parse_ticket(text: str) -> Ticket | None:
    digits, dash, name = text.partition("-")
    if not dash or not name or not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        return None
    return Ticket(int(digits), name)


class Delayed(NamedTuple):
    """What a waiting record says of itself."""

    ticket: Ticket
    topic: str
    partition: int | None


def wrap(headers: Headers, delayed: Delayed) -> list[tuple[str, bytes | None]]:
    said = [*headers, (TICKET, str(delayed.ticket).encode()), (TOPIC, delayed.topic.encode())]
    return said if delayed.partition is None else [*said, (PARTITION, b"%d" % delayed.partition)]


def unwrap(headers: Headers) -> tuple[Delayed | None, Headers]:
    """None for a record that somebody else has put there; the headers that it had before."""
    own: list[tuple[str, bytes | None]] = []
    ticket, topic, digits = None, "", ""
    for pair in headers:
        name, content = pair
        if not name.startswith(_OURS):
            own.append(pair)
            continue
        said = (content or b"").decode(errors="replace")
        if name == TICKET:
            ticket = parse_ticket(said)
        elif name == TOPIC:
            topic = intern(said)  # Many records wait for few topics.
        elif name == PARTITION:
            digits = said
    if ticket is None or not topic:
        return None, own or ()
    return Delayed(ticket, topic, int(digits) if digits.isdigit() and len(digits) < 10 else None), own or ()


def all_slots() -> list[Slot]:
    return [Slot(level, partition) for level, ring in RINGS.items() for partition in range(ring.partitions)]
