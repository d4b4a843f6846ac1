"""A statement: what somebody told of the cluster at one moment, as an object that is never changed. JSON in two lines.

    {"<kind>": <version>, "crc32c": "<8 hexadecimal digits>", "bytes": <size of the second line>}
    {...}

A bucket should be readable with little more than an editor, and what was damaged must not be believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tailrace.tier.format.layout import DamagedObjectError
from tailrace.wire.checksum import crc32c

_HEAD_MAX_BYTES = 200
# Of a list, encoded at a time: no other thread runs meanwhile. A hundred thousand at once would take 0.3 s.
_ROWS_AT_ONCE = 500


def write_statement(kind: str, version: int, content: Mapping[str, Any]) -> bytes:
    """Not on the loop, if it may be long."""
    body = ",".join(f"{_json(name)}:{_value(value)}" for name, value in content.items())
    data = f"{{{body}}}".encode()
    head = {kind: version, "crc32c": f"{crc32c(data):08x}", "bytes": len(data)}
    return _json(head).encode() + b"\n" + data


def read_statement(kind: str, version: int, name: str, data: bytes) -> dict[str, Any]:
    """DamagedObjectError if it is not what was written, or of a version that is not known."""
    head, _, body = data.partition(b"\n")
    try:
        fields = json.loads(head) if len(head) <= _HEAD_MAX_BYTES else None
        found, stored_sum, size_bytes = fields[kind], int(fields["crc32c"], 16), fields["bytes"]  # type: ignore[index]
    except (ValueError, KeyError, TypeError):
        raise DamagedObjectError(f"{name} is no {kind}, or a damaged one: its first line is unknown") from None
    if found != version:
        raise DamagedObjectError(f"{name} has version {found} of the format: this program knows {version} alone")
    if len(body) != size_bytes or crc32c(body) != stored_sum:
        raise DamagedObjectError(f"{name} is damaged: the sum of its {len(body)} bytes is wrong, of {size_bytes}")
    content: dict[str, Any] = json.loads(body)
    return content


def _value(value: Any) -> str:
    if not isinstance(value, list):
        return _json(value)
    pieces = (value[at : at + _ROWS_AT_ONCE] for at in range(0, len(value), _ROWS_AT_ONCE))
    return f"[{','.join(_json(piece)[1:-1] for piece in pieces)}]"


def _json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))
