"""A record as one line of JSON: texts and JSON as they are, and everything that is neither in base64.

What a record shows can be written again as it is: `value_base64` stands where `value` could not. With a schema the
value is opened by it: `value_schema` says which it was, or `value_problem` why it could not.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from tailrace.apps.gateway.errors import registry_away
from tailrace.apps.opening import RecordOpener
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import Record

SCHEMA = "schema"


class Shown(NamedTuple):
    """How keys and values are shown: json, string, binary, or by schema, which needs an opener."""

    key: str = "string"
    value: str = "json"
    opener: RecordOpener | None = None

    async def prepare(self, records: Mapping[TopicPartition, Sequence[Record]]) -> None:
        """Before they are shown. Raises GatewayError if the registry is away, and a schema is missing for that: what
        can be opened in a moment is not shown closed."""
        if self.opener is not None:
            problem = await self.opener.prepare(chain.from_iterable(records.values()))
            if problem:
                raise registry_away(problem)


def show(where: TopicPartition, record: Record, shown: Shown) -> str:
    text = f'{{"topic":{json.dumps(where.topic)},"partition":{where.partition},"offset":{record.offset}'
    text += f',"timestamp":{record.timestamp}'
    for name, content, kind in (("key", record.key, shown.key), ("value", record.value, shown.value)):
        if kind == SCHEMA and content is not None:
            text += _opened(name, content, shown, record)
        else:
            text += _part(name, content, kind)
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


def _opened(name: str, content: bytes, shown: Shown, record: Record) -> str:
    assert shown.opener is not None, "whoever asks for schemas has one"
    opened = shown.opener.open(name, record)
    if opened is not None and opened.text is not None:
        with suppress(ValueError, RecursionError):
            return f',"{name}":{_one_line(opened.text.decode())},"{name}_schema":{json.dumps(opened.schema)}'
    problem = "it names no schema" if opened is None else opened.problem or "it is not JSON"
    return f'{_part(name, content, "binary")},"{name}_problem":{json.dumps(problem)}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _one_line(text: str) -> str:
    """JSON as it was written, so that no number changes. Raises ValueError, RecursionError for what is none."""
    document = _STRICT.decode(text)
    return text if text.isprintable() else json.dumps(document, separators=(",", ":"))


def _refuse(word: str) -> None:
    raise ValueError(word)


_STRICT = json.JSONDecoder(parse_constant=_refuse)
