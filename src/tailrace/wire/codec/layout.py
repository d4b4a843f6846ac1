"""What a struct looks like in one version, and the parts that the written decoders and encoders share.

Owned here: which fields are there and in which order, the formats of fixed-size kinds, varints, and `Source`, the
base of the two classes that write code. Nothing here depends on a direction, and nothing is specific to a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct as Packing
from struct import calcsize
from typing import Any, NamedTuple

from tailrace.wire.schema import Field, Message, Struct

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
# Kafka refuses longer strings in either form, although a compact length could tell them.
STRING_SIZE_MAX = 0x7FFF


class Layout(NamedTuple):
    """The fields of a struct in one version: the plain ones in wire order, the tagged ones by tag, and those that
    the version does not have."""

    plain: list[Field]
    tagged: list[Field]
    absent: list[Field]


def layout(cls: type[Struct], version: int) -> Layout:
    found = Layout([], [], [])
    for field in cls.fields:
        if version not in field.versions:
            found.absent.append(field)
        elif field.tag is not None:
            found.tagged.append(field)
        else:
            found.plain.append(field)
    found.tagged.sort(key=lambda field: field.tag or 0)
    return found


def indented(lines: Iterable[str]) -> list[str]:
    return [" " + line for line in lines]


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte, the low ones first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Source:
    """Source text of one function of a (message, version), with the names that it uses and the functions, one for
    each struct and use, that it calls."""

    def __init__(self, message: type[Message], version: int, names: dict[str, Any]) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.names = names
        self.functions: dict[str, list[str]] = {}
        self._packings: dict[str, Packing] = {}

    def is_compact(self, field: Field) -> bool:
        return self.flexible and field.flexible

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def constant(self, value: Any, prefix: str = "C") -> str:
        """The name under which the functions know a value; the same one for the same object."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def packing(self, format_: str) -> Packing:
        if format_ not in self._packings:
            self._packings[format_] = Packing(">" + format_)
        return self._packings[format_]

    def length_format(self, field: Field) -> str:
        """The format of the length or count in front of a field of variable size. A compact one is a varint: this is
        its first byte, and for lengths below 127 all of it."""
        if self.is_compact(field):
            return "B"
        return "h" if field.kind == "string" else "i"

    def function(self, name: str, write: Callable[[], list[str]]) -> str:
        """Writes a function unless it is there; what it calls is written before it."""
        if name not in self.functions:
            self.functions[name] = write()
        return name

    def smallest_size(self, cls: type[Struct]) -> int:
        """No instance takes fewer bytes, so a count that needs more of them than are left is a lie. At least one,
        so that no count is free of charge."""
        size = 1 if self.flexible else 0
        for field in layout(cls, self.version).plain:
            if field.kind in FORMATS:
                size += calcsize(">" + FORMATS[field.kind])
            elif field.kind != "struct":
                size += calcsize(">" + self.length_format(field))
            elif self.is_nullable(field) or field.struct is None:
                size += 1
            else:
                size += self.smallest_size(field.struct)
        return max(size, 1)

    def execute(self, entry: list[str], name: str) -> Any:
        """Compiles all functions and returns the one called `name`."""
        lines = [line for function in self.functions.values() for line in function]
        source = "\n".join([*lines, *entry])
        exec(compile(source, f"<{self.message.__name__} v{self.version}>", "exec"), self.names)  # noqa: S102
        return self.names[name]
