"""What bytes mean to a person: JSON, text, or hexadecimal; records of the coordinators' own topics in words.

Everything that is shown is cut at a bound before it is decoded, so that a record of a hundred megabytes costs no more
than one of a kilobyte. Nothing here escapes for HTML: the templates do.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tailrace.model.errors import ProtocolError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from tailrace.wire.apis.stored_records import GROUP_RECORDS, TRANSACTION_RECORDS
from tailrace.wire.payload import Record
from tailrace.wire.record_envelopes import decode_coordinator_record

_COORDINATOR_TOPICS = {CONSUMER_OFFSETS_TOPIC: GROUP_RECORDS, TRANSACTION_STATE_TOPIC: TRANSACTION_RECORDS}
_HEX_ROW = 16
# JSON is opened only as a whole; beyond this size it is shown as the text that it is.
_JSON_BYTES_MAX = 64 * 1024


class Content(NamedTuple):
    form: str  # null, empty, json, text, hex, or words
    text: str
    size_bytes: int
    is_cut: bool = False


def show(data: bytes | None, *, limit_bytes: int) -> Content:
    if data is None:
        return Content("null", "null", 0)
    if not data:
        return Content("empty", "", 0)
    is_cut = len(data) > limit_bytes
    shown = data[:limit_bytes]
    text = _as_text(shown, is_cut=is_cut)
    if text is None:
        return Content("hex", _hex(shown[: limit_bytes // 4]), len(data), is_cut or len(shown) > limit_bytes // 4)
    if len(data) <= _JSON_BYTES_MAX and data[:1] in b'{["':
        pretty = _pretty(data)
        if pretty is not None:
            return Content("json", pretty[:limit_bytes], len(data), len(pretty) > limit_bytes)
    return Content("text", text, len(data), is_cut)


def in_words(topic: str, record: Record) -> tuple[str, str] | None:
    """Key and value of a record of the coordinators' topics; None of any other, or if it does not decode."""
    types = _COORDINATOR_TOPICS.get(topic)
    if types is None or record.key is None:
        return None
    try:
        key, value = decode_coordinator_record(types, record.key, record.value)
    except (ProtocolError, ValueError):
        return None
    return repr(key), "deleted" if value is None else repr(value)


def _as_text(data: bytes, *, is_cut: bool) -> str | None:
    """None if it is no text: not UTF-8, or with control characters that no text has."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        # A cut may go through the last character.
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode("utf-8")
    return None if any(ord(each) < 32 and each not in "\t\n\r" for each in text) else text


def _pretty(data: bytes) -> str | None:
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _hex(data: bytes) -> str:
    rows = []
    for start in range(0, len(data), _HEX_ROW):
        row = data[start : start + _HEX_ROW]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{_HEX_ROW * 3 - 1}}  {text}")
    return "\n".join(rows)
