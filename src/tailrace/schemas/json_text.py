"""JSON in and out: bounded in depth, numbers as they were written, compact as Jackson writes it."""

import json
import re
from typing import Any

from tailrace.schemas.parsed import InvalidSchema

_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class Real(float):
    """A number with a fraction or an exponent, which remembers how it was written."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> "Real":
        number = super().__new__(cls, text)
        number.text = text
        return number


def load(text: str, nesting_max: int) -> Any:
    """The value of a JSON text; InvalidSchema where it is none, or is nested too deeply."""
    _check_nesting(text, nesting_max)
    try:
        return json.loads(text, parse_float=Real, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {error}") from None


def dump(value: Any) -> str:
    """Compact, with keys in the order of the value."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(key)}:{dump(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(dump, value)) + "]"
    if isinstance(value, Real):
        return value.text
    return _string(value)


def ordered(value: Any) -> Any:
    """The same value with the keys of every object in order."""
    if isinstance(value, dict):
        return {key: ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [ordered(each) for each in value]
    return value


def freeze(value: Any) -> Any:
    """A hashable twin: equal for equal JSON, where `true` is not 1."""
    if isinstance(value, dict):
        return ("object", frozenset((key, freeze(each)) for key, each in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(freeze, value)))
    if isinstance(value, bool):
        return ("boolean", value)
    return value


def _string(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _check_nesting(text: str, nesting_max: int) -> None:
    depth = 0
    for found in _STRUCTURE.finditer(text):
        mark = found.group()
        if mark in "[{":
            depth += 1
            if depth > nesting_max:
                raise InvalidSchema(
                    f"nested more than {nesting_max} levels deep: name the inner types and refer to them"
                )
        elif mark in "]}":
            depth -= 1


def _refuse_constant(name: str) -> None:
    raise InvalidSchema(f"not JSON: {name} is not a number")
