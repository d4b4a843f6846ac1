"""Writes decoders: bytes of one (message, version) to an instance. `wire.compile` states the rules.

A written decoder for structs with an int32 and a compact string reads like this:

    def array_Topic(b, p, end, left, n):
     items = []
     for _ in range(n):
      x = new(Topic)
      x.index, n, = unpack_iB(b, p); p += 5
      if n > 127: n, p = long_string_size(b, p, n)
      n -= 1
      q = p + n
      if not p <= q <= end: fail('name')
      x.name = str(b[p:q], 'utf-8'); p = q
      n = b[p]; p += 1
      if n: p = skip_tags(b, p, end, left, n)
      items.append(x)
     return items, p

Names: b the buffer, p the position, end its size, n a length or count, q the end of what is being read, x the
instance, left[0] how many items the message may still list. Reading past the end ends in IndexError or struct.error;
the outermost function turns these, and text that is not UTF-8, into a ProtocolError.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packing
from struct import error as PackingError  # noqa: N812
from typing import TYPE_CHECKING, Any, NoReturn, cast

from tailrace.model.errors import ProtocolError
from tailrace.wire.codec.layout import FORMATS, STRING_SIZE_MAX, Source, indented, layout
from tailrace.wire.schema import Field, Message, Struct

if TYPE_CHECKING:
    from tailrace.model.ports import Bytes


NO_LIMIT = 1 << 62
_SPEND = ("left[0] -= n", "if left[0] < 0: fail_items()")


def fail(what: str) -> NoReturn:
    raise ProtocolError(f"the length of {what} is negative or exceeds the bytes that are left")


def fail_items() -> NoReturn:
    """Items are bounded in all, not per array: what is nested multiplies."""
    raise ProtocolError("it lists more items than one request may (max.request.items)")


def refusal(what: str, fault: Exception) -> ProtocolError:
    if isinstance(fault, UnicodeDecodeError):
        return ProtocolError(f"{what}: a string is not UTF-8")
    return ProtocolError(f"{what}: {fault if isinstance(fault, ProtocolError) else 'it ends too early'}")


def long_varint(b: Bytes, p: int, first: int) -> tuple[int, int]:
    """A varint whose first byte told that more follow. Five bytes hold any number of the protocol."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = b[p]
        p += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, p
    raise ProtocolError("a varint is longer than five bytes")


def read_varint(b: Bytes, p: int) -> tuple[int, int]:
    first = b[p]
    return (first, p + 1) if first < 128 else long_varint(b, p + 1, first)


def long_string_size(b: Bytes, p: int, first: int) -> tuple[int, int]:
    size, p = long_varint(b, p, first)
    if size > STRING_SIZE_MAX + 1:
        raise ProtocolError(f"a string of {size - 1} bytes: the protocol allows {STRING_SIZE_MAX}")
    return size, p


def skip_tags(b: Bytes, p: int, end: int, left: list[int], count: int) -> int:
    """A tag section of which no field is known."""
    if count > 127:
        count, p = long_varint(b, p, count)
    left[0] -= count
    if left[0] < 0:
        fail_items()
    for _ in range(count):
        _, p = read_varint(b, p)
        size, p = read_varint(b, p)
        p += size
        if p > end:
            fail("a tagged field")
    return p


def compact_strings(b: Bytes, p: int, end: int, count: int) -> tuple[list[str], int]:
    items = []
    for _ in range(count):
        n = b[p]
        p += 1
        if n > 127:
            n, p = long_string_size(b, p, n)
        q = p + n - 1
        if not p <= q <= end:
            fail("a string in an array")
        items.append(str(b[p:q], "utf-8"))
        p = q
    return items, p


_unpack_int16 = Packing(">h").unpack_from


def plain_strings(b: Bytes, p: int, end: int, count: int) -> tuple[list[str], int]:
    items = []
    for _ in range(count):
        (n,) = _unpack_int16(b, p)
        p += 2
        q = p + n
        if not p <= q <= end:
            fail("a string in an array")
        items.append(str(b[p:q], "utf-8"))
        p = q
    return items, p


class Unpackers(dict[int, Callable[..., tuple[Any, ...]]]):
    """count -> a function that reads so many values of one format. Counts below 1024 are remembered."""

    def __init__(self, format_: str) -> None:
        super().__init__()
        self._format = format_

    def __missing__(self, count: int) -> Callable[..., tuple[Any, ...]]:
        # A repeat count in front of "16s" would make it one longer string.
        items = self._format * count if "s" in self._format else f"{count}{self._format}"
        unpack = Packing(">" + items).unpack_from
        if count < 1024:
            self[count] = unpack
        return unpack


_UNPACKERS = {kind: Unpackers(format_) for kind, format_ in FORMATS.items()}


class DecoderSource(Source):
    """The decoder of one (message, version)."""

    def __init__(self, message: type[Message], version: int) -> None:
        names: dict[str, Any] = {
            "new": object.__new__,
            "fail": fail,
            "skip_tags": skip_tags,
            "fail_items": fail_items,
            "long_varint": long_varint,
            "long_string_size": long_string_size,
            "compact_strings": compact_strings,
            "plain_strings": plain_strings,
            "Faults": (ProtocolError, PackingError, IndexError, UnicodeDecodeError),
            "ProtocolError": ProtocolError,
            "refusal": refusal,
        }
        super().__init__(message, version, names)

    def compile(self) -> Callable[..., tuple[Any, int]]:
        entry = [
            f"def decode(b, p, items_max={NO_LIMIT}):",
            " end, left = len(b), [items_max]",
            " try:",
            *indented(indented(self._body(self.message))),
            "  return x, p",
            f" except Faults as fault: raise refusal('{self.message.__name__} v{self.version}', fault) from fault",
        ]
        return cast("Callable[..., tuple[Any, int]]", self.execute(entry, "decode"))

    def _body(self, cls: type[Struct]) -> list[str]:
        """Reads one instance into `x`."""
        plain, tagged, absent = layout(cls, self.version)
        lines = [f"x = new({self.constant(cls, cls.__name__)})"]
        lines += [f"x.{field.name} = {self._default(field)}" for field in absent + tagged]
        run: list[tuple[str, str]] = []
        for field in plain:
            target = f"x.{field.name}"
            if field.kind in FORMATS:
                run.append((target, FORMATS[field.kind]))
                continue
            if field.kind != "struct":
                run.append(("n", self.length_format(field)))
            elif self.is_nullable(field):
                run.append(("n", "b"))
            lines += self._unpack(run)
            lines += self._variable(field, target)
            run = []
        if self.flexible:
            run.append(("n", "B"))
        lines += self._unpack(run)
        if self.flexible:
            skip = f"{self._tags(cls, tagged)}(x, b, p, end, left, n)" if tagged else "skip_tags(b, p, end, left, n)"
            lines.append(f"if n: p = {skip}")
        return lines

    def _unpack(self, run: list[tuple[str, str]]) -> list[str]:
        """One call for neighbouring fields of fixed size."""
        if not run:
            return []
        if [format_ for _, format_ in run] == ["B"]:
            return [f"{run[0][0]} = b[p]; p += 1"]
        packing = self.packing("".join(format_ for _, format_ in run))
        unpack = self._unpacker(packing)
        return [f"{', '.join(target for target, _ in run)}, = {unpack}(b, p); p += {packing.size}"]

    def _unpacker(self, packing: Packing) -> str:
        name = "unpack_" + packing.format[1:].replace("?", "B_").replace("16s", "u")
        self.names.setdefault(name, packing.unpack_from)
        return name

    def _variable(self, field: Field, target: str) -> list[str]:
        """Reads a field whose length, if it has one, is in `n`."""
        if field.kind == "struct":
            read = [f"{target}, p = {self._one(field.item)}(b, p, end, left)"]
        else:
            read = self._sized(field, target)
        lines = []
        if self.is_compact(field) and field.kind != "struct":
            longer = "long_string_size" if field.kind == "string" else "long_varint"
            lines += [f"if n > 127: n, p = {longer}(b, p, n)", "n -= 1"]
        if self.is_nullable(field):
            return [*lines, f"if n < 0: {target} = None", "else:", *indented(read)]
        return lines + read

    def _sized(self, field: Field, target: str) -> list[str]:
        failure = f"fail('{field.name}')"
        if field.kind != "array":
            value = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "memoryview(b)[p:q]"}
            return ["q = p + n", f"if not p <= q <= end: {failure}", f"{target} = {value[field.kind]}; p = q"]
        if field.item in FORMATS:
            unpackers = self.constant(_UNPACKERS[field.item], f"{field.item}s_")
            size = self.packing(FORMATS[field.item]).size
            return [
                f"q = p + n * {size}",
                f"if not p <= q <= end: {failure}",
                *_SPEND,
                f"{target} = list({unpackers}[n](b, p)); p = q",
            ]
        if field.struct is None:
            least, read = 1, ("compact_strings" if self.is_compact(field) else "plain_strings") + "(b, p, end, n)"
        else:
            least, read = self.smallest_size(field.struct), self._many(field.struct) + "(b, p, end, left, n)"
        return [f"if not 0 <= n * {least} <= end - p: {failure}", *_SPEND, f"{target}, p = {read}"]

    def _one(self, cls: type[Struct]) -> str:
        name = f"one_{cls.__name__}"
        head = f"def {name}(b, p, end, left):"
        return self.function(name, lambda: [head, *indented(self._body(cls)), " return x, p"])

    def _many(self, cls: type[Struct]) -> str:
        """The loop is inside, so that an item costs no call."""
        name = f"array_{cls.__name__}"
        return self.function(
            name,
            lambda: [
                f"def {name}(b, p, end, left, n):",
                " items = []",
                " for _ in range(n):",
                *indented(indented(self._body(cls))),
                "  items.append(x)",
                " return items, p",
            ],
        )

    def _tags(self, cls: type[Struct], tagged: list[Field]) -> str:
        """The tag section of a struct that has tagged fields; those that are not sent keep their defaults."""
        name = f"tags_{cls.__name__}"
        return self.function(name, lambda: self._write_tags(name, tagged))

    def _write_tags(self, name: str, tagged: list[Field]) -> list[str]:
        choices = []
        for index, field in enumerate(tagged):
            choices.append(f"{'elif' if index else 'if'} tag == {field.tag}:")
            choices += indented(self._tagged(field))
        return [
            f"def {name}(x, b, p, end, left, count):",
            " if count > 127: count, p = long_varint(b, p, count)",
            " left[0] -= count",
            " if left[0] < 0: fail_items()",
            " for _ in range(count):",
            "  tag = b[p]; p += 1",
            "  if tag > 127: tag, p = long_varint(b, p, tag)",
            "  stop = b[p]; p += 1",
            "  if stop > 127: stop, p = long_varint(b, p, stop)",
            "  stop += p",
            "  if stop > end: fail('a tagged field')",
            *indented(indented(choices)),
            "  else: p = stop",
            "  if p != stop: raise ProtocolError(f'the size of the tagged field {tag} is not that of its value')",
            " return p",
        ]

    def _tagged(self, field: Field) -> list[str]:
        target = f"x.{field.name}"
        if field.kind in FORMATS:
            return self._unpack([(target, FORMATS[field.kind])])
        if field.kind != "struct":
            return self._unpack([("n", self.length_format(field))]) + self._variable(field, target)
        read = f"{target}, p = {self._one(field.item)}(b, p, end, left)"
        if not self.is_nullable(field):
            return [read]
        # Unlike a plain one, a tagged struct is marked by a varint: 0 for null, 1 for present.
        return ["n = b[p]; p += 1", f"if n == 0: {target} = None", f"else: {read}"]

    def _default(self, field: Field) -> str:
        """An expression for a fresh default."""
        if field.default is None or field.kind not in ("array", "struct"):
            return repr(field.default)
        return "[]" if field.kind == "array" else f"{self._defaults(field.item)}()"

    def _defaults(self, cls: type[Struct]) -> str:
        """Faster than the constructor, which has keywords to sort out."""
        name = f"default_{cls.__name__}"
        return self.function(
            name,
            lambda: [
                f"def {name}():",
                f" x = new({self.constant(cls, cls.__name__)})",
                *(f" x.{field.name} = {self._default(field)}" for field in cls.fields),
                " return x",
            ],
        )
