"""What a record that moves carries in its headers: where it comes from, what went wrong, how often it was tried.

`tailrace.retry.*` are read again by the application and by `tailrace dlq`. A dead letter has the names of Kafka Connect
beside them (`__connect.errors.*`), which other tools know. Key, value and all other headers stay as they were. The
timestamp does not: it would let a record that was old when it failed expire in the retry topic before its time.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]]

_OURS = "tailrace.retry."
CONNECT = "__connect.errors."
TOPIC = f"{_OURS}topic"
PARTITION = f"{_OURS}partition"
OFFSET = f"{_OURS}offset"
TIMESTAMP = f"{_OURS}timestamp"
GROUP = f"{_OURS}group"
LEVEL = f"{_OURS}level"
ATTEMPTS = f"{_OURS}attempts"
DUE = f"{_OURS}due.ms"
FAILED = f"{_OURS}failed.ms"
CLASS = f"{_OURS}error.class"
MESSAGE = f"{_OURS}error.message"
STACK = f"{_OURS}error.stack"
REPLAYS = f"{_OURS}replays"

# A deep recursion has a stack of megabytes; both ends of it tell what happened.
_STACK_BYTES_MAX = 8192
_MESSAGE_BYTES_MAX = 1024


class Origin(NamedTuple):
    """Where the record was first."""

    topic: str
    partition: int
    offset: int
    timestamp: int = -1


class Trail(NamedTuple):
    """What a moved record says of itself; a record that never moved has attempts 0 and level 0."""

    origin: Origin
    group: str | None = None
    level: int = 0
    attempts: int = 0
    due_ms: int = 0
    replays: int = 0


class Failure(NamedTuple):
    """Why a record moves. `stage` as Kafka Connect names it."""

    error: BaseException
    stage: str
    at_ms: int


STAGE_KEY, STAGE_VALUE, STAGE_HANDLER = "KEY_CONVERTER", "VALUE_CONVERTER", "TASK_PUT"


def read_trail(origin: Origin, headers: Headers) -> Trail:
    """Of a record that was read at `origin`, if its headers name no earlier one. Headers that others wrote under these
    names are not trusted: what cannot be read counts as not there."""
    if not headers:  # As of most records.
        return Trail(origin)
    found = {name: value for name, value in headers if name.startswith(_OURS) and value is not None}
    if TOPIC in found:
        place = (_number(found, name) for name in (PARTITION, OFFSET, TIMESTAMP))
        origin = Origin(_text(found[TOPIC]), *place)
    group = _text(found[GROUP]) if found.get(GROUP) else None
    numbers = (_number(found, name) for name in (LEVEL, ATTEMPTS, DUE, REPLAYS))
    return Trail(origin, group, *numbers)


def is_moved(headers: Headers) -> bool:
    return any(name.startswith(_OURS) for name, _ in headers)


def moved_headers(headers: Headers, trail: Trail, failure: Failure) -> list[tuple[str, bytes | None]]:
    """Of the record on its way to a retry topic."""
    said = [
        (FAILED, str(failure.at_ms)),
        (CLASS, _class_name(failure.error)),
        (MESSAGE, _cut(str(failure.error), _MESSAGE_BYTES_MAX)),
    ]
    return [*own_headers(headers), *_written(_told(trail)), *_written(said)]


def replayed_headers(headers: Headers, trail: Trail) -> list[tuple[str, bytes | None]]:
    """Of a dead letter that is given another chance: all attempts are before it, for the group that has failed."""
    again = trail._replace(level=0, attempts=0, due_ms=0, replays=trail.replays + 1)
    return [*own_headers(headers), *_written(_told(again))]


def _told(trail: Trail) -> list[tuple[str, str]]:
    said = [
        (TOPIC, trail.origin.topic),
        (PARTITION, str(trail.origin.partition)),
        (OFFSET, str(trail.origin.offset)),
        (TIMESTAMP, str(trail.origin.timestamp)),
        (LEVEL, str(trail.level)),
        (ATTEMPTS, str(trail.attempts)),
        (DUE, str(trail.due_ms)),
        (REPLAYS, str(trail.replays)),
    ]
    return said if trail.group is None else [(GROUP, trail.group), *said]


def _written(said: Sequence[tuple[str, str]]) -> list[tuple[str, bytes | None]]:
    return [(name, text.encode(errors="replace")) for name, text in said]


def buried_headers(headers: Headers, trail: Trail, failure: Failure) -> list[tuple[str, bytes | None]]:
    """Of the record on its way to the dead letters: with the stack, and with the names of Kafka Connect."""
    stack = _cut("".join(traceback.format_exception(failure.error)), _STACK_BYTES_MAX)
    said = [
        (STACK, stack),
        (f"{CONNECT}topic", trail.origin.topic),
        (f"{CONNECT}partition", str(trail.origin.partition)),
        (f"{CONNECT}offset", str(trail.origin.offset)),
        (f"{CONNECT}connector.name", trail.group or ""),
        (f"{CONNECT}task.id", "0"),
        (f"{CONNECT}stage", failure.stage),
        (f"{CONNECT}class.name", _class_name(failure.error)),
        (f"{CONNECT}exception.class.name", _class_name(failure.error)),
        (f"{CONNECT}exception.message", _cut(str(failure.error), _MESSAGE_BYTES_MAX)),
        (f"{CONNECT}exception.stacktrace", stack),
    ]
    return [*moved_headers(headers, trail, failure), *_written(said)]


def own_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Those that the record had before it moved for the first time."""
    return [each for each in headers if not each[0].startswith((_OURS, CONNECT))]


def _class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _cut(text: str, bytes_max: int) -> str:
    if len(text.encode(errors="replace")) <= bytes_max:
        return text
    half = bytes_max // 8  # A character has at most four bytes, and there are two halves.
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _number(found: dict[str, bytes], name: str) -> int:
    digits = found.get(name, b"")
    return int(digits) if digits.isdigit() and len(digits) <= 18 else 0
