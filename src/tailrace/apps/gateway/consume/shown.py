"""A record as one line of JSON: texts and JSON as they are, and everything that is neither in base64.

What a record shows can be written again as it is: `value_base64` stands where `value` could not.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import NamedTuple

from tailrace.model.ids import TopicPartition
from tailrace.wire.records import Record


class Shown(NamedTuple):
    """How keys and values are shown: json, string or binary."""

    key: str = "string"
    value: str = "json"


def show(where: TopicPartition, record: Record, shown: Shown) -> str:
    text = f'{{"topic":{json.dumps(where.topic)},"partition":{where.partition},"offset":{record.offset}'
    text += f',"timestamp":{record.timestamp}{_part("key", record.key, shown.key)}'
    text += _part("value", record.value, shown.value)
    if record.headers:
        headers = (f'{{"name":{_quoted(name)}{_part("value", value, "string")}}}' for name, value in record.headers)
        text += f',"headers":[{",".join(headers)}]'
    return text + "}"


def _part(name: str, content: bytes | None, kind: str) -> str:
    if content is None:
        return f',"{name}":null'
    if kind != "binary":
        try:
            text = content.decode()
            return f',"{name}":{_quoted(text) if kind == "string" else _one_line(text)}'
        except (ValueError, RecursionError):
            pass
    return f',"{name}_base64":"{b64encode(content).decode()}"'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _one_line(text: str) -> str:
    """JSON as it was written, so that no number changes. Raises ValueError, RecursionError for what is none."""
    document = _STRICT.decode(text)
    return text if text.isprintable() else json.dumps(document, separators=(",", ":"))


def _refuse(word: str) -> None:
    raise ValueError(word)


_STRICT = json.JSONDecoder(parse_constant=_refuse)
