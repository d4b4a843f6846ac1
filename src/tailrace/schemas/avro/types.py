"""A parsed Avro type: one class for all kinds, because nearly every walk over a schema looks at the kind first.

Names are full names. A recursive type holds itself, so a walk has to remember where it has been.
"""

from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

# Stands for a default that was not given, because null is one.
NO_DEFAULT: Final = object()


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: "Type"
    default: Any = NO_DEFAULT
    doc: str | None = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Type:
    # One of PRIMITIVES, or record, error, enum, fixed, array, map, union.
    kind: str
    # Of record, error, enum and fixed.
    name: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    symbols: tuple[str, ...] = ()
    # Of an enum: the symbol that a reader takes for one that it does not know.
    default: str | None = None
    size: int = 0
    # What an array or a map holds.
    items: "Type | None" = None
    # Of a union.
    branches: tuple["Type", ...] = ()
    # What Avro does not define, `logicalType` among it, in the order in which it was written.
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def label(self) -> str:
        """What tells the branches of a union apart."""
        return self.name or self.kind

    def held(self) -> "Type":
        """What an array or a map holds."""
        assert self.items is not None, f"{self.kind} has no items"
        return self.items
