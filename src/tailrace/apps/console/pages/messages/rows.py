"""Records as pages and downloads show them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tailrace.apps.console.reading.batches import Facts
from tailrace.apps.console.reading.content import in_words
from tailrace.apps.console.reading.content import show as show_content
from tailrace.apps.console.reading.records import Found

_SHOWN_BYTES = 1024


def row_of(name: str, found: Found, facts: Facts | None = None, *, limit_bytes: int = _SHOWN_BYTES) -> dict[str, Any]:
    record = found.record
    words = in_words(name, record)
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": show_content(record.key, limit_bytes=limit_bytes),
        "value": show_content(record.value, limit_bytes=limit_bytes),
        "words": words,
        "notes": found.notes,
        "facts": facts,
        "headers": [
            (header.encode("utf-8", "replace").decode(), show_content(content, limit_bytes=limit_bytes))
            for header, content in record.headers
        ],
    }


def line_of(name: str, found: Found) -> dict[str, Any]:
    record = found.record
    line: dict[str, Any] = {
        "topic": name,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    line |= _json_content("key", record.key) | _json_content("value", record.value)
    if record.headers:
        line["headers"] = [{"name": header} | _json_content("value", each) for header, each in record.headers]
    return line


def _json_content(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes that are no text stand in base64 under another name, so that nothing is lost."""
    text = text_of(data)
    return {name: text} if data is None or text is not None else {f"{name}_base64": b64encode(data).decode("ascii")}


def text_of(data: bytes | None) -> str | None:
    """For a form that sends the record again; None if it is no text, which a form cannot carry."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None
