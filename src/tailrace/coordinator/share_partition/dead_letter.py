"""A dead letter: what is written of a record that a share group has given up, as Kafka 4.4 does (KIP-1191).

Headers say where the record came from and why it is here. Key and value are the record's own if the group asks for
copies, and its own headers are not copied. Which partition it goes to follows from the record's alone, so that a letter
that is written twice has its copy beside it.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model.ids import DEAD_LETTER_HEADER_PREFIX
from tailrace.wire.payload import Record

_REJECTED = b"Offset rejected by client."
_DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."
# Of a record and its headers, beside key, value, and the names of topic and group.
_OVERHEAD_BYTES = 300


class Source(NamedTuple):
    """Whose records are given up, and by whom."""

    topic: str
    partition: int
    group_id: str


def dead_letter(
    source: Source, offset: int, *, delivery_count: int, is_rejected: bool, now_ms: int, copy: Record | None
) -> Record:
    headers = (
        ("topic", source.topic.encode()),
        ("partition", b"%d" % source.partition),
        ("offset", b"%d" % offset),
        ("group", source.group_id.encode()),
        ("delivery.count", b"%d" % delivery_count),
        ("message", _REJECTED if is_rejected else _DELIVERED_TOO_OFTEN),
    )
    key, value = (None, None) if copy is None else (copy.key, copy.value)
    named = tuple((f"{DEAD_LETTER_HEADER_PREFIX}{name}", content) for name, content in headers)
    return Record(0, now_ms, key, value, named)


def size_estimate(source: Source, copy: Record | None) -> int:
    """No less than the letter takes in a batch."""
    own = _OVERHEAD_BYTES + len(source.topic.encode()) + len(source.group_id.encode())
    return own if copy is None else own + len(copy.key or b"") + len(copy.value or b"")


def destination(source: Source, partition_count: int) -> int:
    return source.partition % partition_count
