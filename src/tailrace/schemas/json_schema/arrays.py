"""Differences between two arrays: the schema of all items, those of the first ones, and what may come after them."""

from tailrace.schemas.json_schema.comparison import Comparison, Found, compare_limits, under
from tailrace.schemas.json_schema.nodes import Node

_LIMITS = {
    "maxItems": "MAX_ITEMS",
    "minItems": "MIN_ITEMS",
    "uniqueItems": "UNIQUE_ITEMS",
    "maxContains": "MAX_CONTAINS",
    "minContains": "MIN_CONTAINS",
}


def compare_arrays(comparison: Comparison, original: Node, update: Node) -> Found:
    found = under("items", comparison.of(original.items, update.items))
    before, after = original.first_items, update.first_items
    for index in range(max(len(before), len(after))):
        if index >= len(before):
            between = _added(comparison, original, after[index])
        elif index >= len(after):
            between = _removed(comparison, update, before[index])
        else:
            between = comparison.of(before[index], after[index])
        found += under(f"items/{index}", between)
    found += comparison.compare_rest(original, update, "additionalItems", "ADDITIONAL_ITEMS")
    found += comparison.compare_unevaluated(original, update, "unevaluatedItems", "UNEVALUATED_ITEMS")
    return found + compare_limits(original, update, _LIMITS)


def _added(comparison: Comparison, original: Node, after: Node) -> Found:
    if original.is_open:
        return [(f"ITEM{'_WITH_EMPTY_SCHEMA' if after.takes_anything else ''}_ADDED_TO_OPEN_CONTENT_MODEL", ())]
    if (covering := original.fallback()) is None:
        return [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", ())]
    found = list(comparison.of(covering, after))
    verdict = "IS" if comparison.is_compatible(found) else "NOT"
    return [*found, (f"ITEM_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())]


def _removed(comparison: Comparison, update: Node, before: Node) -> Found:
    if update.is_open:
        return [("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", ())]
    if (covering := update.fallback()) is None:
        return [(f"ITEM{'_WITH_FALSE' if before.kind == 'false' else ''}_REMOVED_FROM_CLOSED_CONTENT_MODEL", ())]
    found = list(comparison.of(before, covering))
    verdict = "IS" if comparison.is_compatible(found) else "NOT"
    return [*found, (f"ITEM_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ())]
