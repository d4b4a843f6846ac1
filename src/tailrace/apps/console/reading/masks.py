"""What nobody sees here but who may ALTER the topic: fields and texts that rules of a file name.

    [[mask]]
    topics = "orders.*"                  a regular expression for the whole name
    fields = ["value.card", "value.items[*].price", "value.*.name", "key", "header.ssn"]
    patterns = ["[0-9]{16}"]             texts, anywhere in keys, values and headers

A record is masked before anything else looks at it, a filter too: nobody can guess what is hidden by asking for it.
What a rule speaks of and cannot be opened (a field of what is no JSON) is hidden as a whole. Expressions are RE2's,
which are linear.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

from tailrace.wire.payload import Record

HIDDEN = "***"
_HIDDEN_BYTES = HIDDEN.encode()
_ANY = "*"

Path = tuple[str, ...]


class MaskError(Exception):
    """The file of rules is wrong. The message says where and why."""


@dataclass(frozen=True)
class Rule:
    topics: Any
    fields: tuple[Path, ...]
    patterns: tuple[Any, ...]


def read_masks(path: str) -> tuple[Rule, ...]:
    """Raises MaskError."""
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise MaskError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise MaskError(f"{path} is not TOML: {error}") from None
    if unknown := document.keys() - {"mask"}:
        raise MaskError(f"{path}: {min(unknown)} is unknown: a file has [[mask]] tables")
    tables = document.get("mask")
    if not isinstance(tables, list) or not tables:
        raise MaskError(f"{path} has no [[mask]]: it would hide nothing")
    return tuple(_parse_rule(table, f"{path}: mask {number}") for number, table in enumerate(tables, 1))


def _parse_rule(table: dict[str, Any], where: str) -> Rule:
    if unknown := table.keys() - {"topics", "fields", "patterns"}:
        raise MaskError(f"{where}: {min(unknown)} is unknown; known are topics, fields, patterns")
    topics, fields, patterns = table.get("topics"), table.get("fields", []), table.get("patterns", [])
    for name, found in (("fields", fields), ("patterns", patterns)):
        if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
            raise MaskError(f"{where}: {name} is a list of texts")
    if not isinstance(topics, str) or not topics:
        raise MaskError(f'{where}: topics is missing: a regular expression, such as "orders.*"')
    if not fields and not patterns:
        raise MaskError(f"{where}: give fields or patterns, else it hides nothing")
    expressions = [_compile(each, where) for each in (topics, *patterns)]
    return Rule(expressions[0], tuple(_parse_path(each, where) for each in fields), tuple(expressions[1:]))


def _compile(text: str, where: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise MaskError(f"{where}: {text!r} is no regular expression: {error}") from None


def _parse_path(text: str, where: str) -> Path:
    first, *rest = text.replace("[*]", f".{_ANY}").split(".")
    if first == "header" and rest:
        return (first, ".".join(rest))
    if first not in ("key", "value") or not all(rest):
        raise MaskError(
            f"{where}: {text!r} is no field: use key, value, value.name, value.items[*].name or header.NAME"
        )
    return (first, *rest)


class Masks:
    """Those that hold for one topic."""

    def __init__(self, rules: Sequence[Rule], topic: str) -> None:
        found = [rule for rule in rules if rule.topics.fullmatch(topic)]
        self._fields = [path for rule in found for path in rule.fields]
        self._patterns = [pattern for rule in found for pattern in rule.patterns]

    def __bool__(self) -> bool:
        return bool(self._fields or self._patterns)

    def hide(self, record: Record) -> Record:
        """The same record, if there is nothing to hide."""
        hidden_headers = {path[1] for path in self._fields if path[0] == "header"}
        headers = tuple(
            (name, _HIDDEN_BYTES if name in hidden_headers else self._without_patterns(content))
            for name, content in record.headers
        )
        return record._replace(
            key=self._without_patterns(self._without_fields("key", record.key)),
            value=self._without_patterns(self._without_fields("value", record.value)),
            headers=headers if headers != tuple(record.headers) else record.headers,
        )

    def _without_fields(self, part: str, content: bytes | None) -> bytes | None:
        paths = [path[1:] for path in self._fields if path[0] == part]
        if content is None or not paths:
            return content
        if () in paths:
            return _HIDDEN_BYTES
        try:
            # The last of equal names counts in Python; others may be what a rule is about.
            found = json.loads(content, object_pairs_hook=_without_doubles)
        except (ValueError, RecursionError):
            return _HIDDEN_BYTES
        if not sum(_hide(found, path) for path in paths):
            return content
        return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")

    def _without_patterns(self, content: bytes | None) -> bytes | None:
        if not content or not self._patterns:
            return content
        text = content.decode("utf-8", "surrogateescape")
        if not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text):
            # Bytes that are no text: what stands between them is looked at as Latin-1, which has a text for all.
            return self._replaced(content.decode("latin-1")).encode("latin-1")
        plain = self._replaced(text)
        # What a JSON text writes by escapes is the same text to whoever reads it.
        return self._unescaped(plain).encode()

    def _unescaped(self, text: str) -> str:
        if "\\" not in text:
            return text
        try:
            opened = json.dumps(json.loads(text), ensure_ascii=False)
        except (ValueError, RecursionError):
            return text
        replaced = self._replaced(opened)
        return text if replaced == opened else replaced

    def _replaced(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(HIDDEN, text)
        return text


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands there twice")
    return dict(pairs)


def _hide(here: Any, path: Path) -> int:
    """In place. How many values there were to hide."""
    name, rest = path[0], path[1:]
    if isinstance(here, dict):
        keys: list[Any] = [*here] if name == _ANY else [name] if name in here else []
    elif isinstance(here, list):
        # A rule that names no places means each of them.
        keys = [*range(len(here))]
        if name != _ANY:
            rest = path
            return sum(_hide(here[key], rest) for key in keys)
    else:
        return 0
    if rest:
        return sum(_hide(here[key], rest) for key in keys)
    for key in keys:
        here[key] = HIDDEN
    return len(keys)
