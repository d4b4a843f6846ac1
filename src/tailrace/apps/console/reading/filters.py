"""A small language that chooses records. It is parsed here and never given to Python.

    value contains "mill" and not key = "ann"
    value.customer.id = 42 or value.items[0].price >= 9.5
    header.trace exists and partition = 3

Fields: key, value (as text, or a path into JSON), header.NAME, partition, offset, timestamp, size. Operators: = != < <=
> >= contains, starts, exists; `and`, `or`, `not` and parentheses. What a record does not have equals nothing. Each test
is linear in the size of the record, and an expression has a bounded number of them, so no filter can hold the console.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from tailrace.wire.payload import Record

TESTS_MAX = 50
# A path does not look into more: as objects it would take several times as much. MemoryError tells of it.
JSON_MAX_BYTES = 16 << 20
_DEPTH_MAX = 20
_TOKENS = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?)|(?P<operator>!=|<=|>=|=|<|>)|(?P<bracket>[()])"""
    r"""|(?P<word>[A-Za-z_][\w.\-\[\]]*))"""
)
_PATH = re.compile(r"\.([\w\-]+)|\[(\d+)\]")
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda found, wanted: bool(found < wanted),
    "<=": lambda found, wanted: bool(found <= wanted),
    ">": lambda found, wanted: bool(found > wanted),
    ">=": lambda found, wanted: bool(found >= wanted),
}
_NUMBERS: dict[str, Callable[[int, Record], int]] = {
    "partition": lambda partition, _: partition,
    "offset": lambda _, record: record.offset,
    "timestamp": lambda _, record: record.timestamp,
    "size": lambda _, record: len(record.key or b"") + len(record.value or b""),
}
MISSING = object()


class FilterError(ValueError):
    """The message says what is wrong and where."""


Test = Callable[[int, Record], bool]
Look = Callable[[int, Record], Any]


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_filter(text: str) -> Test:
    """A function of (partition, record). An empty text takes everything. Raises FilterError."""
    tokens = _split(text)
    if not tokens:
        return lambda _partition, _record: True
    parser = _Parser(tokens, len(text))
    test = parser.either(0)
    if parser.here is not None:
        raise FilterError(f"{parser.here.text!r} at {parser.here.at + 1} is not expected here: join tests by and, or")
    return test


def _split(text: str) -> list[_Token]:
    tokens, position = [], 0
    while text[position:].strip():
        found = _TOKENS.match(text, position)
        if found is None:
            rest = text[position:].lstrip()
            at = len(text) - len(rest)
            raise FilterError(f"{rest[:12]!r} at {at + 1} is not understood; texts stand in double quotes")
        kind = found.lastgroup or ""
        tokens.append(_Token(kind, found.group(kind), found.start(kind)))
        position = found.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[_Token], length: int) -> None:
        self._tokens = tokens
        self._length = length
        self._position = 0
        self._tests = 0

    @property
    def here(self) -> _Token | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def either(self, depth: int) -> Test:
        tests = [self._all(depth)]
        while self._takes("or"):
            tests.append(self._all(depth))
        return tests[0] if len(tests) == 1 else lambda *seen: any(test(*seen) for test in tests)

    def _all(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._takes("and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda *seen: all(test(*seen) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth > _DEPTH_MAX:
            raise FilterError(f"more than {_DEPTH_MAX} parentheses or nots within each other")
        if self._takes("not"):
            inner = self._one(depth + 1)
            return lambda *seen: not inner(*seen)
        if self._takes("("):
            test = self.either(depth + 1)
            if not self._takes(")"):
                raise FilterError(f"a parenthesis is not closed{self._where()}")
            return test
        return self._test()

    def _test(self) -> Test:
        self._tests += 1
        if self._tests > TESTS_MAX:
            raise FilterError(f"more than {TESTS_MAX} tests")
        look = _field(self._take("word", "a field, such as value.id or key"))
        operator = self._take("operator word", "one of = != < <= > >= contains starts exists").text
        if operator == "exists":
            return lambda *seen: look(*seen) is not MISSING
        token = self._take("text number word", "a text in double quotes, a number, true, false or null")
        wanted = _literal(token)
        if operator in ("contains", "starts"):
            return _text_test(look, operator, str(wanted))
        if operator == "=":
            return lambda *seen: _equal(look(*seen), wanted)
        if operator == "!=":
            return lambda *seen: not _equal(look(*seen), wanted)
        if operator not in _ORDERED:
            raise FilterError(f"{operator!r} at {token.at} is no operator: use = != < <= > >= contains starts exists")
        return _order_test(look, _ORDERED[operator], wanted)

    def _takes(self, text: str) -> bool:
        if self.here is None or self.here.text != text or self.here.kind == "text":
            return False
        self._position += 1
        return True

    def _take(self, kinds: str, expected: str) -> _Token:
        token = self.here
        if token is None or token.kind not in kinds.split():
            raise FilterError(f"expected {expected}{self._where()}")
        self._position += 1
        return token

    def _where(self) -> str:
        return " at the end" if self.here is None else f" at {self.here.at + 1}, not {self.here.text!r}"


def _literal(token: _Token) -> Any:
    if token.kind == "word" and token.text not in ("true", "false", "null"):
        raise FilterError(f"{token.text!r} at {token.at + 1} needs double quotes to be a text")
    try:
        return json.loads(token.text)
    except ValueError:
        raise FilterError(f"{token.text} at {token.at + 1} has an escape that JSON does not know") from None


def _text_test(look: Look, operator: str, wanted: str) -> Test:
    def test(partition: int, record: Record) -> bool:
        found = look(partition, record)
        if found is MISSING or found is None:
            return False
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        return text.startswith(wanted) if operator == "starts" else wanted in text

    return test


def _order_test(look: Look, compare: Callable[[Any, Any], bool], wanted: Any) -> Test:
    def test(partition: int, record: Record) -> bool:
        found = look(partition, record)
        if isinstance(wanted, (int, float)) and isinstance(found, str):
            try:
                found = float(found)
            except ValueError:
                return False
        is_comparable = isinstance(found, str) == isinstance(wanted, str) and isinstance(found, (int, float, str))
        return is_comparable and not isinstance(found, bool) and compare(found, wanted)

    return test


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        return found == str(wanted)
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


# --- fields


def _field(token: _Token) -> Look:
    name = re.split(r"[.\[]", token.text, maxsplit=1)[0]
    rest = token.text[len(name) :]
    if name in _NUMBERS and not rest:
        return _NUMBERS[name]
    if name == "header" and rest.startswith("."):
        return lambda _, record: _header(record, rest[1:])
    if name in ("key", "value"):
        steps = _steps(token, rest)
        return lambda _, record: _content(record.key if name == "key" else record.value, steps)
    raise FilterError(
        f"{token.text!r} at {token.at + 1} is no field: use key, value, value.path, header.NAME, partition, offset, "
        "timestamp or size"
    )


def _steps(token: _Token, rest: str) -> tuple[str | int, ...]:
    found = list(_PATH.finditer(rest))
    if "".join(each.group() for each in found) != rest:
        raise FilterError(f"{token.text!r} at {token.at + 1} is no path: write value.name.other[0]")
    return tuple(each.group(1) if each.group(2) is None else int(each.group(2)) for each in found)


def _header(record: Record, name: str) -> Any:
    for found, content in record.headers:
        if found == name:
            return None if content is None else content.decode("utf-8", "replace")
    return MISSING


def _content(data: bytes | None, steps: tuple[str | int, ...]) -> Any:
    if not steps:
        return None if data is None else data.decode("utf-8", "replace")
    try:
        here = _parsed(data or b"")
        for step in steps:
            here = here[step]
    except (ValueError, LookupError, TypeError, RecursionError):
        return MISSING
    return here


@lru_cache(maxsize=2)
def _parsed(data: bytes) -> Any:
    """Many tests look into the same key and value."""
    if len(data) > JSON_MAX_BYTES:
        raise MemoryError(f"{len(data)} bytes of JSON")
    return json.loads(data)
