"""Differences between two objects. What a property that comes or goes means depends on the content model: open, closed
or between.
"""

import re

from tailrace.schemas.json_schema.comparison import Comparison, Found, compare_limits, under
from tailrace.schemas.json_schema.nodes import NOTHING, Node


def compare_objects(comparison: Comparison, original: Node, update: Node) -> Found:
    found = _compare_required(original, update)
    for name in dict.fromkeys((*original.properties, *update.properties)):
        before, after = original.properties.get(name), update.properties.get(name)
        if before is None:
            assert after is not None
            between = _added(comparison, original, update, name, after)
        elif after is None:
            between = _removed(comparison, update, name, before)
        else:
            between = comparison.of(before, after)
        found += under("properties", under(name, between))
    found += under("dependencies", _compare_dependencies(comparison, original, update))
    found += comparison.compare_rest(original, update, "additionalProperties", "ADDITIONAL_PROPERTIES")
    found += comparison.compare_unevaluated(original, update, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    return found + compare_limits(
        original, update, {"maxProperties": "MAX_PROPERTIES", "minProperties": "MIN_PROPERTIES"}
    )


def _compare_required(original: Node, update: Node) -> Found:
    found: Found = []
    for name in original.properties:
        if name not in update.properties or (name in original.required) == (name in update.required):
            continue
        if name in original.required:
            rule = "REQUIRED_ATTRIBUTE_REMOVED"
        elif update.properties[name].default is not NOTHING:
            rule = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
        else:
            rule = "REQUIRED_ATTRIBUTE_ADDED"
        found.append((rule, ("required", name)))
    return found


def _added(comparison: Comparison, original: Node, update: Node, name: str, after: Node) -> Found:
    required, has_default = name in update.required, after.default is not NOTHING
    word = (
        ("REQUIRED_PROPERTY_WITH_DEFAULT" if has_default else "REQUIRED_PROPERTY") if required else "OPTIONAL_PROPERTY"
    )
    if original.is_open:
        if after.takes_anything:
            return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", ())]
        return [(f"{word}_ADDED_TO_OPEN_CONTENT_MODEL", ())]
    found: Found = []
    if (covering := _covering(original, name)) is not None:
        found = list(comparison.of(covering, after))
        verdict = "IS" if comparison.is_compatible(found) else "NOT"
        found.append((f"PROPERTY_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ()))
    return [*found, (f"{word}_ADDED_TO_UNOPEN_CONTENT_MODEL", ())]


def _removed(comparison: Comparison, update: Node, name: str, before: Node) -> Found:
    if update.is_open:
        return [("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", ())]
    if (covering := _covering(update, name)) is not None:
        found = list(comparison.of(before, covering))
        verdict = "IS" if comparison.is_compatible(found) else "NOT"
        return [*found, (f"PROPERTY_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())]
    false = "_WITH_FALSE" if before.kind == "false" else ""
    return [(f"PROPERTY{false}_REMOVED_FROM_CLOSED_CONTENT_MODEL", ())]


def _covering(node: Node, name: str) -> Node | None:
    """What a property without a schema of its own has to be."""
    for pattern, schema in node.patterns.items():
        if _matches(pattern, name):
            return schema
    return node.fallback()


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False  # an expression of JavaScript that Python does not know


def _compare_dependencies(comparison: Comparison, original: Node, update: Node) -> Found:
    found: Found = []
    for name in dict.fromkeys((*original.needed, *update.needed)):
        before, after = original.needed.get(name), update.needed.get(name)
        if before == after:
            continue
        if before is None or after is None:
            change = "ADDED" if before is None else "REMOVED"
        else:
            change = "EXTENDED" if before < after else "NARROWED" if after < before else "CHANGED"
        found.append((f"DEPENDENCY_ARRAY_{change}", (name,)))
    for name in dict.fromkeys((*original.dependent, *update.dependent)):
        one, two = original.dependent.get(name), update.dependent.get(name)
        if one is None or two is None:
            found.append((f"DEPENDENCY_SCHEMA_{'ADDED' if one is None else 'REMOVED'}", (name,)))
        else:
            found += under(name, comparison.of(one, two))
    return found
