"""How one JSON Schema differs from an earlier one, by Confluent's rules.

Every function gives (rule, path) pairs with the path relative to the two nodes that it compares; who calls it puts its
own step before them. A pair of nodes is compared once. A pair that is met again inside of itself counts as compatible
at first; if it turns out not to be, everything is compared again with that known, until nothing changes.
"""

from collections.abc import Iterable

from tailrace.schemas.json_schema.matching import largest_matching
from tailrace.schemas.json_schema.nodes import NOTHING, Node
from tailrace.schemas.json_schema.scalars import compare_limits, compare_numbers, compare_strings, compare_values
from tailrace.schemas.json_text import freeze
from tailrace.schemas.parsed import InvalidSchema

Path = tuple[str, ...]
Found = list[tuple[str, Path]]


def compare(original: Node, update: Node, compatible: frozenset[str], pairs_max: int) -> Found:
    """`compatible` names the differences that do no harm."""
    known: dict[tuple[int, int], Found] = {}
    while True:
        comparison = Comparison(known, compatible, pairs_max)
        found = comparison.of(original, update)
        incompatible = comparison.incompatible_pairs()
        if not comparison.assumed or incompatible.keys() == known.keys():
            return found
        known = incompatible


def under(step: str, found: Iterable[tuple[str, Path]]) -> Found:
    return [(rule, (step, *path)) for rule, path in found]


class Comparison:
    def __init__(self, incompatible: dict[tuple[int, int], Found], compatible: frozenset[str], pairs_max: int) -> None:
        self._compatible = compatible
        self._pairs_max = pairs_max
        self._incompatible = incompatible
        self._done: dict[tuple[int, int], Found] = {}
        self._under_way: set[tuple[int, int]] = set()
        # Whether a pair inside of itself was taken for compatible.
        self.assumed = False

    def is_compatible(self, found: Found) -> bool:
        return all(rule in self._compatible for rule, _ in found)

    def incompatible_pairs(self) -> dict[tuple[int, int], Found]:
        return {pair: found for pair, found in self._done.items() if not self.is_compatible(found)}

    def of(self, original: Node | None, update: Node | None) -> Found:
        if original is None or update is None:
            return [] if original is update else [("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", ())]
        original, update = _behind(original), _behind(update)
        pair = (id(original), id(update))
        if (done := self._done.get(pair)) is not None:
            return done
        if pair in self._under_way:
            if (seeded := self._incompatible.get(pair)) is not None:
                return seeded
            self.assumed = True
            return []
        if len(self._done) > self._pairs_max:
            raise InvalidSchema(
                f"more than {self._pairs_max} pairs of its parts would have to be compared: combine fewer schemas"
            )
        self._under_way.add(pair)
        found = self._compare(original, update)
        self._under_way.discard(pair)
        self._done[pair] = found
        return found

    def _compare(self, original: Node, update: Node) -> Found:
        if (shortcut := self._into_combination(original, update)) is not None:
            return shortcut
        if (shortcut := self._out_of_combination(original, update)) is not None:
            return shortcut
        if original.kind != update.kind:
            if original.kind == "false" or update.takes_anything:
                return []
            if original.connect_type == update.connect_type == "bytes":
                return []
            return [("TYPE_CHANGED", ())]
        found = _compare_notes(original, update)
        match original.kind:
            case "string":
                return found + compare_strings(original, update)
            case "number":
                return found + compare_numbers(original, update)
            case "const" | "enum":
                return found + compare_values(original, update)
            case "combined":
                return found + self._compare_combined(original, update)
            case "not":
                reverse = self.of(update.parts[0], original.parts[0])
                return [*found, ("NOT_TYPE_NARROWED" if self.is_compatible(reverse) else "NOT_TYPE_EXTENDED", ("not",))]
            case "object":
                return found + self._compare_objects(original, update)
            case "array":
                return found + self._compare_arrays(original, update)
        return found

    def _into_combination(self, original: Node, update: Node) -> Found | None:
        if original.kind == "combined" or update.kind != "combined":
            return None
        if len(update.parts) == 1:
            found = self.of(original, update.parts[0])
            return found if self.is_compatible(found) else None
        if update.criterion in ("anyOf", "oneOf"):
            for part in update.parts:
                found = self.of(original, part)
                if self.is_compatible(found):
                    return [*found, ("SUM_TYPE_EXTENDED", ())]
        return None

    def _out_of_combination(self, original: Node, update: Node) -> Found | None:
        if original.kind != "combined" or update.kind == "combined":
            return None
        if len(original.parts) == 1:
            found = self.of(original.parts[0], update)
            return found if self.is_compatible(found) else None
        if original.criterion == "allOf":
            for part in original.parts:
                found = self.of(part, update)
                if self.is_compatible(found):
                    return [*found, ("PRODUCT_TYPE_NARROWED", ())]
        return None

    def _compare_combined(self, original: Node, update: Node) -> Found:
        found: Found = []
        if original.criterion != update.criterion:
            if not _extends(original, update):
                return [("COMBINED_TYPE_CHANGED", ())]
            found.append(("COMBINED_TYPE_EXTENDED", ()))
        before, after = _distinct(original.parts), _distinct(update.parts)
        if len(before) < len(after):
            found.append(("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED", ()))
        elif len(before) > len(after):
            found.append(("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED", ()))
        edges: dict[int, dict[int, Found]] = {}
        for index, one in enumerate(before):
            for other, two in enumerate(after):
                between = self.of(one, two)
                if self.is_compatible(between):
                    edges.setdefault(index, {})[other] = between
        matched = largest_matching(edges)
        for index, other in matched.items():
            found += under(original.criterion, under(str(index), edges[index][other]))
        if len(matched) < min(len(before), len(after)):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ()))
        return found

    def _compare_objects(self, original: Node, update: Node) -> Found:
        from tailrace.schemas.json_schema.objects import compare_objects

        return compare_objects(self, original, update)

    def _compare_arrays(self, original: Node, update: Node) -> Found:
        from tailrace.schemas.json_schema.arrays import compare_arrays

        return compare_arrays(self, original, update)

    def compare_unevaluated(self, original: Node, update: Node, key: str, rule: str) -> Found:
        """`unevaluatedProperties` and `unevaluatedItems`."""
        before, after = original.unevaluated, update.unevaluated
        if before is None and after is None:
            return []
        closed_before = before is not None and before.kind == "false"
        closed_after = after is not None and after.kind == "false"
        if closed_before != closed_after:
            return [(f"{rule}_{'REMOVED' if closed_after else 'ADDED'}", (key,))]
        open_before = before is None or before.takes_anything
        open_after = after is None or after.takes_anything
        if before is None or after is None or open_before != open_after:
            return [
                (
                    f"{rule}_{'NARROWED' if before is None or (open_before and after is not None) else 'EXTENDED'}",
                    (key,),
                )
            ]
        return under(key, self.of(before, after))

    def compare_rest(self, original: Node, update: Node, key: str, rule: str) -> Found:
        """`additionalProperties` and `additionalItems`."""
        if original.closed != update.closed:
            return [(f"{rule}_{'REMOVED' if update.closed else 'ADDED'}", (key,))]
        if original.others is None and update.others is not None:
            return [(f"{rule}_NARROWED", (key,))]
        if update.others is None and original.others is not None:
            return [(f"{rule}_EXTENDED", (key,))]
        return under(key, self.of(original.others, update.others))


def _behind(node: Node) -> Node:
    while node.kind == "ref":
        assert node.target is not None
        node = node.target
    return node


def _compare_notes(original: Node, update: Node) -> Found:
    found: Found = []
    if original.id != update.id:
        found.append(("ID_CHANGED", ()))
    if original.title != update.title:
        found.append(("TITLE_CHANGED", ()))
    if original.description != update.description:
        found.append(("DESCRIPTION_CHANGED", ()))
    if freeze(original.default) != freeze(update.default):
        found.append(("DEFAULT_CHANGED", ()))
    return found


def _extends(original: Node, update: Node) -> bool:
    """Whether the combination by another word allows at least as much."""
    one_before, one_after = len(original.parts) == 1, len(update.parts) == 1
    return (
        update.criterion == "anyOf"
        or (one_before and (one_after or update.criterion == "oneOf"))
        or (one_after and original.criterion == "allOf")
    )


def _distinct(parts: tuple[Node, ...]) -> list[Node]:
    distinct = {(id(each) if each.source is NOTHING else freeze(each.source)): each for each in reversed(parts)}
    return [each for each in parts if any(each is one for one in distinct.values())]


__all__ = ["Comparison", "Found", "compare", "compare_limits", "under"]
