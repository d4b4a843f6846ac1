"""Where a delayed record waits: in a slot of a minute, an hour or a day, each a partition of a ring.

    due within an hour or so    minutes    its slot is read when its minute comes; the record goes to its topic
    due within a day or so      hours      read when its hour comes; the record moves to a slot of a minute
    due within 90 days          days       read when its day comes; the record moves on

So a record is written three times at most before it is delivered, and a mover reads only what is about to be due. A
ring has more partitions than slots in its range: a slot is used again long after it was read. Pure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
DELAY_MS_MAX = 90 * _DAY_MS


class Level(IntEnum):
    MINUTES = 0
    HOURS = 1
    DAYS = 2


class Ring(NamedTuple):
    suffix: str
    slot_ms: int
    partitions: int
    # A record that is due within this time is put here, rather than into a coarser ring.
    range_ms: int
    # How long before its time a slot is opened.
    lead_ms: int
    # How long after its time it stays open, for records that come late.
    grace_ms: int


RINGS = {
    Level.MINUTES: Ring("minutes", _MINUTE_MS, 72, 65 * _MINUTE_MS, 5_000, 2 * _MINUTE_MS),
    Level.HOURS: Ring("hours", _HOUR_MS, 32, 26 * _HOUR_MS, 3 * _MINUTE_MS, 10 * _MINUTE_MS),
    Level.DAYS: Ring("days", _DAY_MS, 96, 92 * _DAY_MS, _HOUR_MS, _HOUR_MS),
}


class Slot(NamedTuple):
    level: Level
    partition: int


def slot_for(due_ms: int, now_ms: int) -> Slot:
    """Where a record is put now; one that is late, where it is read at once."""
    due_ms = max(due_ms, now_ms)
    for level, ring in RINGS.items():
        if due_ms - now_ms < ring.range_ms:
            return Slot(level, due_ms // ring.slot_ms % ring.partitions)
    raise AssertionError("whoever takes a record checks how far it is due")


def act_ms(level: Level, due_ms: int) -> int:
    """When a record in a ring of this level has to move: to its topic when it is due, else before its slot comes."""
    ring = RINGS[level]
    return due_ms if level is Level.MINUTES else due_ms // ring.slot_ms * ring.slot_ms - ring.lead_ms


def open_slots(now_ms: int) -> set[Slot]:
    """Those to read now: of the present time, of what comes next, and of what has just gone."""
    found: set[Slot] = set()
    for level, ring in RINGS.items():
        first = (now_ms - ring.grace_ms) // ring.slot_ms
        last = (now_ms + ring.lead_ms) // ring.slot_ms
        found |= {Slot(level, number % ring.partitions) for number in range(first, last + 1)}
    return found


def horizon_ms(level: Level, now_ms: int) -> int:
    """Records of an open slot move before this time. Later ones are of the next slot in its partition."""
    ring = RINGS[level]
    return now_ms + ring.lead_ms + (_MINUTE_MS if level is Level.MINUTES else 0)
