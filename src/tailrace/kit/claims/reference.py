"""What a record carries instead of a large value: where it lies, how large it is, and its SHA-256. Pure.

    TOPIC/2026-11-19/3f9a...    the day of its creation (UTC), and the hash of the content

The same content of one day is one object, so that a producer that tries again writes nothing twice. On another day it
is another object: whoever deletes a day takes away nothing that a younger record refers to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]]

# The record's value is the reference as JSON, and this header says so. Others see what it is; null stays a tombstone.
CLAIM = "tailrace.claim"
_VERSION = b"1"


class Reference(NamedTuple):
    name: str
    size_bytes: int
    sha256: str


def refer(topic: str, value: bytes, now_ms: int) -> Reference:
    digest = hashlib.sha256(value).hexdigest()
    return Reference(_name(topic, now_ms, digest), len(value), digest)


def moved(reference: Reference, topic: str, now_ms: int) -> Reference:
    return reference._replace(name=_name(topic, now_ms, reference.sha256))


def _name(topic: str, now_ms: int, digest: str) -> str:
    day = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return f"{topic}/{day.isoformat()}/{digest}"


def write_reference(reference: Reference) -> tuple[bytes, tuple[str, bytes]]:
    """The value of the record, and its header."""
    said = {"object": reference.name, "bytes": reference.size_bytes, "sha256": reference.sha256}
    return json.dumps(said, separators=(",", ":")).encode(), (CLAIM, _VERSION)


def read_reference(value: bytes | None, headers: Headers) -> Reference | None:
    """None if the value is the value. Raises ValueError for a claim that nobody can read."""
    if not any(name == CLAIM for name, _ in headers):
        return None
    try:
        said = json.loads(value or b"")
        reference = Reference(str(said["object"]), int(said["bytes"]), str(said["sha256"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"its header says {CLAIM}, and its value is no reference: {(value or b'')[:100]!r}") from None
    if reference.size_bytes < 0 or ".." in reference.name.split("/"):
        raise ValueError(f"nobody writes such a reference: {reference}")
    return reference


def day_of(name: str) -> date | None:
    """None for an object that is no claim."""
    words = name.rsplit("/", 2)
    if len(words) != 3:
        return None
    try:
        return date.fromisoformat(words[1])
    except ValueError:
        return None


def last_day_gone(now_ms: int, keep_ms: int) -> date:
    """Whatever was written on this day, or before, no record refers to any more that is kept for so long."""
    return datetime.fromtimestamp((now_ms - keep_ms) / 1000, UTC).date() - timedelta(days=1)
