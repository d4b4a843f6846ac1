"""Avro types as text: as Java's Schema.toString writes them, which is what Confluent stores, and as Confluent
normalizes them.

Both define a name where it first occurs and only mention it afterwards; names of references are mentioned from the
start.
"""

from collections.abc import Iterable
from typing import Any

from tailrace.schemas.avro.types import NO_DEFAULT, PRIMITIVES, Field, Type
from tailrace.schemas.json_text import Real, dump

# The logical types that Avro knows, with what they may stand on; others are properties like any.
_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}


def canonical(found: Type, mentioned: Iterable[str]) -> str:
    return dump(_Canonical(mentioned).of(found, ""))


def normalized(found: Type, mentioned: Iterable[str]) -> str:
    return dump(_Normalized(mentioned).of(found))


class _Canonical:
    def __init__(self, mentioned: Iterable[str]) -> None:
        self._seen = set(mentioned)

    def of(self, found: Type, space: str) -> Any:
        if found.kind == "union":
            return [self.of(branch, space) for branch in found.branches]
        if found.kind in ("array", "map"):
            key = "items" if found.kind == "array" else "values"
            return {"type": found.kind, key: self.of(found.held(), space), **_plain(found.properties)}
        if found.kind in PRIMITIVES:
            return {"type": found.kind, **_plain(found.properties)} if found.properties else found.kind
        if found.name in self._seen:
            return _mention(found, space)
        self._seen.add(found.name)
        written: dict[str, Any] = {"type": found.kind, "name": found.simple_name}
        if found.namespace != space:
            written["namespace"] = found.namespace
        if found.doc is not None:
            written["doc"] = found.doc
        if found.kind == "enum":
            written["symbols"] = list(found.symbols)
            if found.default is not None:
                written["default"] = found.default
        elif found.kind == "fixed":
            written["size"] = found.size
        else:
            written["fields"] = [self._field(each, found.namespace) for each in found.fields]
        written |= _plain(found.properties)
        if found.aliases:
            prefix = f"{found.namespace}." if found.namespace else ""
            written["aliases"] = [
                each.removeprefix(prefix) if "." not in each.removeprefix(prefix) else each for each in found.aliases
            ]
        return written

    def _field(self, each: Field, space: str) -> dict[str, Any]:
        written: dict[str, Any] = {"name": each.name, "type": self.of(each.type, space)}
        if each.doc is not None:
            written["doc"] = each.doc
        if each.default is not NO_DEFAULT:
            written["default"] = _number(each.default)
        if each.order != "ascending":
            written["order"] = each.order
        if each.aliases:
            written["aliases"] = list(each.aliases)
        return written | _plain(each.properties)


class _Normalized:
    def __init__(self, mentioned: Iterable[str]) -> None:
        self._seen = set(mentioned)

    def of(self, found: Type) -> Any:
        if found.kind == "union":
            return [self.of(branch) for branch in found.branches]
        if found.kind in ("array", "map"):
            key = "items" if found.kind == "array" else "values"
            return {"type": found.kind, key: self.of(found.held())} | _logical_first(found)
        if found.kind in PRIMITIVES:
            return {"type": found.kind} | _logical_first(found) if found.properties else found.kind
        if found.name in self._seen:
            return found.name
        self._seen.add(found.name)
        written: dict[str, Any] = {"name": found.name, "type": found.kind}
        if found.kind == "enum":
            written["symbols"] = list(found.symbols)
        elif found.kind == "fixed":
            written["size"] = found.size
        else:
            written["fields"] = [self._field(each) for each in found.fields]
        properties = _logical_first(found)
        for key in ("logicalType", "precision", "scale"):
            if key in properties:
                written[key] = properties.pop(key)
        if found.doc:
            written["doc"] = found.doc
        if found.aliases:
            written["aliases"] = sorted(found.aliases)
        if found.default is not None:
            written["default"] = found.default
        return written | properties

    def _field(self, each: Field) -> dict[str, Any]:
        written: dict[str, Any] = {"name": each.name, "type": self.of(each.type), "order": each.order.upper()}
        if each.doc is not None:
            written["doc"] = each.doc
        if each.aliases:
            written["aliases"] = sorted(each.aliases)
        if each.default is not NO_DEFAULT:
            written["default"] = _number(each.default)
        return written | {key: _number(each.properties[key]) for key in sorted(each.properties)}


def _logical_first(found: Type) -> dict[str, Any]:
    """The logical type, if it is one that Avro knows, before the other properties in order."""
    properties = {key: _number(found.properties[key]) for key in sorted(found.properties)}
    name = properties.get("logicalType")
    if not isinstance(name, str) or found.kind not in _LOGICAL.get(name, ()):
        return properties
    first: dict[str, Any] = {"logicalType": properties.pop("logicalType")}
    if name == "decimal":
        precision, scale = properties.pop("precision", None), properties.pop("scale", 0)
        first |= {"precision": precision} if precision is not None else {}
        first |= {"scale": scale} if scale else {}
    return first | properties


def _mention(found: Type, space: str) -> str:
    if found.namespace == space and found.simple_name not in PRIMITIVES:
        return found.simple_name
    return found.name


def _plain(properties: dict[str, Any]) -> dict[str, Any]:
    return {key: _number(value) for key, value in properties.items()}


def _number(value: Any) -> Any:
    """Numbers with a fraction as Java writes a double."""
    if isinstance(value, dict):
        return {key: _number(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_number(each) for each in value]
    return Real(java_double(float(value))) if isinstance(value, float) else value


def java_double(number: float) -> str:
    """1.0, 0.001, 1.0E7, 1.2E-4: the shortest digits, with an exponent outside of 0.001 to 10,000,000."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, _, exponent = f"{number!r}".partition("e")
    if not exponent:
        sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        whole, _, fraction = digits.partition(".")
        fraction = "" if fraction == "0" else fraction
        if whole != "0":
            exponent, digits = str(len(whole) - 1), whole + fraction
        else:
            stripped = fraction.lstrip("0")
            exponent, digits = str(-(len(fraction) - len(stripped)) - 1), stripped
        tail = digits[1:].rstrip("0") or "0"
        return f"{sign}{digits[0]}.{tail}E{exponent}"
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
