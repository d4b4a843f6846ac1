"""Writes encoders: an instance to the bytes of one version. `wire.compile` states the rules.

A written encoder for structs with an int32 and a compact string reads like this:

    def array_Topic(items, out, detached):
     for x in items:
      s = x.name
      s = s.encode(); n = len(s) + 1
      out += pack_iB(x.index, n) if n < 128 else pack_i(x.index) + string_size(n)
      out += s
      out.append(0)

Names: x the instance, s the value being written, n its length or count as it goes on the wire, out the output,
detached the list of (position, part) of records that are sent uncopied.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packing
from struct import calcsize
from struct import error as PackingError  # noqa: N812
from typing import TYPE_CHECKING, Any, cast

from tailrace.wire.codec.layout import FORMATS, STRING_SIZE_MAX, Source, indented, layout, varint
from tailrace.wire.schema import Field, Message, Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

# Below this size copying records into the output is cheaper than sending one more part.
_DETACHED_BYTES_MIN = 4096
_BYTES_TYPES = frozenset({bytes, bytearray, memoryview})


def long_size(n: int) -> bytes:
    """A length or count as a varint; two bytes hold most of those that do not fit one."""
    if n < 128:
        return bytes((n,))
    return bytes((n & 127 | 128, n >> 7)) if n < 1 << 14 else varint(n)


def string_size(n: int) -> bytes:
    if n > STRING_SIZE_MAX + 1:
        raise ValueError(f"a string of {n - 1} bytes: the protocol allows {STRING_SIZE_MAX}")
    return long_size(n)


def write_compact_strings(items: Sequence[str], out: bytearray) -> None:
    for item in items:
        s = item.encode()
        out += string_size(len(s) + 1)
        out += s


_pack_int16 = Packing(">h").pack


def write_plain_strings(items: Sequence[str], out: bytearray) -> None:
    for item in items:
        s = item.encode()
        out += _pack_int16(len(s))
        out += s


def pack_many(format_: str, items: Sequence[Any]) -> bytes:
    # A repeat count in front of "16s" would make it one longer string.
    many = format_ * len(items) if "s" in format_ else f"{len(items)}{format_}"
    return Packing(">" + many).pack(*items)


class Packers(dict[int, Callable[..., bytes]]):
    """A count as it goes on the wire -> a function that packs what stands before it, the count and the items.
    Counts below 1024 are remembered."""

    def __init__(self, prefix: str, item: str, *, bias: int) -> None:
        super().__init__()
        self._prefix = prefix
        self._item = item
        self._bias = bias

    def __missing__(self, n: int) -> Callable[..., bytes]:
        pack = Packing(f">{self._prefix}{self._item * max(n - self._bias, 0)}").pack
        if n < 1024:
            self[n] = pack
        return pack


class EncoderSource(Source):
    """The encoder of one (message, version)."""

    def __init__(self, message: type[Message], version: int) -> None:
        names: dict[str, Any] = {
            "long_size": long_size,
            "string_size": string_size,
            "write_compact_strings": write_compact_strings,
            "write_plain_strings": write_plain_strings,
            "pack_many": pack_many,
            "BYTES_TYPES": _BYTES_TYPES,
            "Faults": (PackingError, TypeError, AttributeError, ValueError),
            "fault_of": encoding_fault,
        }
        super().__init__(message, version, names)

    def compile(self) -> Callable[[Any, bytearray, Any], None]:
        entry = [
            "def encode(x, out, detached):",
            " message = x",
            " try:",
            *indented(indented(self._body(self.message))),
            f" except Faults as fault: raise fault_of(message, {self.version}, fault) from fault",
        ]
        return cast("Callable[[Any, bytearray, Any], None]", self.execute(entry, "encode"))

    def _body(self, cls: type[Struct]) -> list[str]:
        """Writes the instance `x`."""
        plain, tagged, _ = layout(cls, self.version)
        lines: list[str] = []
        run: list[tuple[str, str]] = []
        for field in plain:
            if field.kind in FORMATS:
                run.append((f"x.{field.name}", FORMATS[field.kind]))
            else:
                lines += self._variable(field, "out", run)
                run = []
        if self.flexible:
            section = self._tags(cls, tagged)
            if tagged:
                is_default = " and ".join(self._is_default(field, "x") for field in tagged)
                lines += [f"if {is_default}:", *indented(self._pack("out", [*run, ("0", "B")])), "else:"]
                lines += indented([*self._pack("out", run), f"{section}(x, out)"])
                run = []
            else:
                run.append(("0", "B"))
        lines += self._pack("out", run)
        return lines or ["pass"]

    def _pack(self, out: str, run: list[tuple[str, str]]) -> list[str]:
        """One call for neighbouring fields of fixed size."""
        if not run:
            return []
        if [format_ for _, format_ in run] == ["B"]:
            return [f"{out}.append({run[0][0]})"]
        return [f"{out} += {self._packed(run)}"]

    def _packed(self, run: list[tuple[str, str]]) -> str:
        packing = self.packing("".join(format_ for _, format_ in run))
        name = "pack_" + packing.format[1:].replace("?", "B_").replace("16s", "u")
        self.names.setdefault(name, packing.pack)
        return f"{name}({', '.join(value for value, _ in run)})"

    def _variable(self, field: Field, out: str, run: list[tuple[str, str]]) -> list[str]:
        """Writes a field that has no fixed size, and before it what is still to be packed."""
        if field.kind == "struct":
            return self._struct(field, out, run)
        if field.kind == "array":
            return self._array(field, out, run)
        encoded = "s.encode()" if field.kind == "string" else "s"
        size = "string_size" if field.kind == "string" else "long_size"
        lines = [f"s = x.{field.name}"]
        if self.is_nullable(field):
            lines += [
                f"if s is None: s = b''; n = {self._null(field)}",
                f"else: s = {encoded}; n = {self._count(field)}",
            ]
        else:
            lines.append(f"s = {encoded}; n = {self._count(field)}" if encoded != "s" else f"n = {self._count(field)}")
        lines += self._head(field, out, run, size)
        if field.kind == "records":
            lines.append(f"if type(s) in BYTES_TYPES and n < {_DETACHED_BYTES_MIN}: {out} += s")
            return [*lines, f"else: detached.append((len({out}), s))"]
        return [*lines, f"{out} += s"]

    def _null(self, field: Field) -> int:
        return 0 if self.is_compact(field) else -1

    def _count(self, field: Field) -> str:
        return "len(s) + 1" if self.is_compact(field) else "len(s)"

    def _head(self, field: Field, out: str, run: list[tuple[str, str]], size: str) -> list[str]:
        """The length `n`, packed with the fields before it."""
        head = [*run, ("n", self.length_format(field))]
        if not self.is_compact(field):
            return self._pack(out, head)
        if not run:
            return [f"if n < 128: {out}.append(n)", f"else: {out} += {size}(n)"]
        return [f"{out} += {self._packed(head)} if n < 128 else {self._packed(run)} + {size}(n)"]

    def _struct(self, field: Field, out: str, run: list[tuple[str, str]]) -> list[str]:
        if self.is_nullable(field):
            run = [*run, (f"-1 if x.{field.name} is None else 1", "b")]
        return [*self._pack(out, run), self._written(field, out)]

    def _written(self, field: Field, out: str) -> str:
        write = f"{self._one(field.item)}(x.{field.name}, {out}, detached)"
        return f"if x.{field.name} is not None: {write}" if self.is_nullable(field) else write

    def _array(self, field: Field, out: str, run: list[tuple[str, str]]) -> list[str]:
        lines = [f"s = x.{field.name}"]
        if self.is_nullable(field):
            lines += [f"if s is None: s = (); n = {self._null(field)}", f"else: n = {self._count(field)}"]
        else:
            lines.append(f"n = {self._count(field)}")
        if field.item in FORMATS:
            return lines + self._numbers(field, out, run)
        lines += self._head(field, out, run, "long_size")
        if field.struct is None:
            write = "write_compact_strings" if self.is_compact(field) else "write_plain_strings"
            return [*lines, f"{write}(s, {out})"]
        return [*lines, f"if s: {self._many(field.struct)}(s, {out}, detached)"]

    def _numbers(self, field: Field, out: str, run: list[tuple[str, str]]) -> list[str]:
        """Packs what stands before, the count and the items in one call."""
        item = FORMATS[field.item]
        prefix = "".join(format_ for _, format_ in run) + self.length_format(field)
        packers = self.constant(Packers(prefix, item, bias=1 if self.is_compact(field) else 0), "packers_")
        values = "".join(f"{value}, " for value, _ in run)
        packed = f"{packers}[n]({values}n, *s)"
        if not self.is_compact(field):
            return [f"{out} += {packed}"]
        longer = f"long_size(n) + pack_many({item!r}, s)"
        return [f"{out} += {packed} if n < 128 else {f'{self._packed(run)} + ' if run else ''}{longer}"]

    def _one(self, cls: type[Struct]) -> str:
        name = f"one_{cls.__name__}"
        return self.function(name, lambda: [f"def {name}(x, out, detached):", *indented(self._body(cls))])

    def _many(self, cls: type[Struct]) -> str:
        """The loop is inside, so that an item costs no call."""
        name = f"array_{cls.__name__}"
        head = [f"def {name}(items, out, detached):", " for x in items:"]
        return self.function(name, lambda: [*head, *indented(indented(self._body(cls)))])

    def _tags(self, cls: type[Struct], tagged: list[Field]) -> str:
        name = f"tags_{cls.__name__}"
        return self.function(name, lambda: self._write_tags(name, tagged)) if tagged else ""

    def _write_tags(self, name: str, tagged: list[Field]) -> list[str]:
        """A value whose size is not known goes into a buffer of its own first, since its size stands in front of it."""
        lines = [f"def {name}(x, out):", " detached = None; count = 0; section = bytearray()"]
        for field in tagged:
            lines.append(f" if not ({self._is_default(field, 'x')}):")
            if field.kind in FORMATS:
                format_ = FORMATS[field.kind]
                head = self.constant(long_size(field.tag or 0) + long_size(calcsize(">" + format_)), "head_")
                lines.append(f"  count += 1; section += {head} + {self._packed([(f'x.{field.name}', format_)])}")
                continue
            if field.kind == "struct" and self.is_nullable(field):
                # Unlike a plain one, a tagged struct is marked by a varint: 0 for null, 1 for present.
                write = [f"value.append(x.{field.name} is not None)", self._written(field, "value")]
            else:
                write = self._variable(field, "value", [])
            lines += [
                "  count += 1; value = bytearray()",
                *indented(indented(write)),
                f"  section += long_size({field.tag}) + long_size(len(value)) + value",
            ]
        return [*lines, " out += long_size(count) + section"]

    def _is_default(self, field: Field, owner: str) -> str:
        """An expression: comparing the fields of a struct one by one is far cheaper than making a default one."""
        value = f"{owner}.{field.name}"
        if field.default is None:
            return f"{value} is None"
        is_there = f"{value} is not None and " if self.is_nullable(field) else ""
        if field.kind == "array":
            return f"{is_there}len({value}) == 0"
        if field.kind == "struct":
            return is_there + " and ".join(self._is_default(inner, value) for inner in field.item.fields)
        return f"{value} == {field.default!r}"


def encoding_fault(message: Struct, version: int, fault: Exception) -> ValueError:
    """What is wrong with a message that could not be encoded, with the path of the field."""
    found = _find_fault(message, version, type(message).__name__)
    return ValueError(f"{found or type(message).__name__} in version {version} ({fault})")


def _find_fault(value: Struct, version: int, path: str) -> str | None:
    plain, tagged, _ = layout(type(value), version)
    for field in plain + tagged:
        found = _find_field_fault(field, getattr(value, field.name), version, f"{path}.{field.name}")
        if found is not None:
            return found
    return None


def _find_field_fault(field: Field, value: Any, version: int, path: str) -> str | None:
    if value is None:
        return None if version in field.nullable else f"{path} is None and not nullable"
    if field.kind == "struct":
        return _find_fault(value, version, path) if isinstance(value, Struct) else f"{path} is not a struct"
    if field.kind == "array" and field.struct is not None:
        found = (_find_fault(item, version, f"{path}[{index}]") for index, item in enumerate(value))
        return next((fault for fault in found if fault is not None), None)
    format_ = FORMATS.get(field.kind)
    if format_ is not None:
        try:
            Packing(">" + format_).pack(value)
        except PackingError:
            return f"{path} is {value!r}, which does not fit {field.kind}"
    if field.kind == "string" and not (isinstance(value, str) and len(value.encode()) <= STRING_SIZE_MAX):
        return f"{path} is no string of at most {STRING_SIZE_MAX} bytes"
    return None
