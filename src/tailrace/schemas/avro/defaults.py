"""Is a JSON value a default of an Avro type?"""

from typing import Any

from tailrace.schemas.avro.types import NO_DEFAULT, Type
from tailrace.schemas.json_text import dump

_INT = range(-(1 << 31), 1 << 31)
_LONG = range(-(1 << 63), 1 << 63)


def why_not_a_default(wanted: Type, value: Any) -> str | None:
    """None if it is one. The default of a union may belong to any branch, as in Java's Avro since 1.12."""
    if _fits(wanted, value):
        return None
    kinds = " or ".join(each.label for each in wanted.branches) if wanted.kind == "union" else wanted.label
    return f"{dump(value)} is not a {kinds}"


def _fits(wanted: Type, value: Any) -> bool:
    match wanted.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _whole(value) and value in _INT
        case "long":
            return _whole(value) and value in _LONG
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string" | "bytes" | "fixed":
            return isinstance(value, str)
        case "enum":
            return isinstance(value, str) and value in wanted.symbols
        case "array":
            return isinstance(value, list) and all(_fits(wanted.held(), each) for each in value)
        case "map":
            return isinstance(value, dict) and all(_fits(wanted.held(), each) for each in value.values())
        case "union":
            return any(_fits(branch, value) for branch in wanted.branches)
    if not isinstance(value, dict):
        return False
    given = ((each, value.get(each.name, each.default)) for each in wanted.fields)
    return all(each_value is not NO_DEFAULT and _fits(each.type, each_value) for each, each_value in given)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
