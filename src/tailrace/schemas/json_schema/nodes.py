"""A JSON Schema as the comparison sees it: the keywords of one schema object sorted by the type that they speak of.

Confluent's rules are written for this view (Everit's). An object with keywords of several sorts is the `allOf` of one
node for each sort, a list of types is the `anyOf` of them, and `$ref` is a node of its own, so a schema may refer to
itself.
"""

from dataclasses import dataclass, field
from typing import Any, Final

NOTHING: Final = object()


@dataclass(eq=False, slots=True)
class Node:
    # empty, true, false, string, number, boolean, null, array, object, combined, not, const, enum, conditional, ref
    kind: str
    # The JSON that it came from, if it is the whole of a schema; equal ones count once in a combination.
    source: Any = NOTHING
    id: Any = None
    title: Any = None
    description: Any = None
    default: Any = NOTHING
    connect_type: Any = None
    # minLength, maximum, uniqueItems and the like.
    limits: dict[str, Any] = field(default_factory=dict)
    integer: bool = False
    # Of const: the value; of enum: the values.
    values: tuple[Any, ...] = ()
    # Of combined: allOf, anyOf or oneOf.
    criterion: str = ""
    # Of combined; of not: the one that must not match.
    parts: tuple["Node", ...] = ()
    # Of object.
    properties: dict[str, "Node"] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    patterns: dict[str, "Node"] = field(default_factory=dict)
    needed: dict[str, frozenset[str]] = field(default_factory=dict)
    dependent: dict[str, "Node"] = field(default_factory=dict)
    # Of array: a schema for all items, or one for each of the first.
    items: "Node | None" = None
    first_items: tuple["Node", ...] = ()
    # Of object and array: what else may come. `closed` is `false`, None is anything.
    closed: bool = False
    others: "Node | None" = None
    unevaluated: "Node | None" = None
    # Of ref.
    target: "Node | None" = None

    @property
    def takes_anything(self) -> bool:
        return self.kind in ("empty", "true")

    @property
    def is_open(self) -> bool:
        """Anything may come that is not named."""
        if self.closed or self.others is not None or self.patterns:
            return False
        return self.unevaluated is None or self.unevaluated.takes_anything

    def fallback(self) -> "Node | None":
        """Of a partially open content model: what the rest has to be."""
        if self.others is not None:
            return self.others
        if (
            self.closed
            or self.unevaluated is None
            or self.unevaluated.takes_anything
            or self.unevaluated.kind == "false"
        ):
            return None
        return self.unevaluated
