"""Differences between two strings, numbers, constants or enumerations."""

from typing import Any

from tailrace.schemas.json_schema.loader import exact
from tailrace.schemas.json_schema.nodes import Node
from tailrace.schemas.json_text import freeze

_Found = list[tuple[str, tuple[str, ...]]]


def compare_limits(original: Node, update: Node, names: dict[str, str]) -> _Found:
    """Limits with an order, each by its keyword and the name of its rules."""
    found: _Found = []
    for key, rule in names.items():
        before, after = original.limits.get(key), update.limits.get(key)
        if (change := _change(before, after)) is not None:
            found.append((f"{rule}_{change}", (key,)))
    return found


def compare_strings(original: Node, update: Node) -> _Found:
    found = compare_limits(original, update, {"maxLength": "MAX_LENGTH", "minLength": "MIN_LENGTH"})
    before, after = original.limits.get("pattern"), update.limits.get("pattern")
    if before != after:
        change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        found.append((f"PATTERN_{change}", ("pattern",)))
    return found


def compare_numbers(original: Node, update: Node) -> _Found:
    names = {
        "maximum": "MAXIMUM",
        "minimum": "MINIMUM",
        "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
        "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    }
    found = compare_limits(original, update, names)
    before, after = original.limits.get("multipleOf"), update.limits.get("multipleOf")
    if _change(before, after) is not None:
        found.append((f"MULTIPLE_OF_{_multiple(before, after)}", ("multipleOf",)))
    if original.integer != update.integer:
        found.append(("TYPE_EXTENDED" if original.integer else "TYPE_NARROWED", ()))
    return found


def compare_values(original: Node, update: Node) -> _Found:
    before, after = set(map(freeze, original.values)), set(map(freeze, update.values))
    if before == after:
        return []
    if original.kind == "const":
        return [("ENUM_ARRAY_CHANGED", ("const",))]
    change = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
    return [(f"ENUM_ARRAY_{change}", ("enum",))]


def _change(before: Any, after: Any) -> str | None:
    if before is None or after is None:
        return None if before is after else "ADDED" if before is None else "REMOVED"
    if exact(before) == exact(after):
        return None
    return "INCREASED" if exact(before) < exact(after) else "DECREASED"


def _multiple(before: Any, after: Any) -> str:
    if before is None or after is None:
        return "ADDED" if before is None else "REMOVED"
    if exact(after) % exact(before) == 0:
        return "EXPANDED"
    return "REDUCED" if exact(before) % exact(after) == 0 else "CHANGED"
