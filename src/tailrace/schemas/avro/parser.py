"""From JSON to Avro types, with the checks that Avro's own parser makes.

Names live in one table, which begins with what the references define. `defined` keeps what this schema itself adds.
"""

import re
from collections.abc import Mapping
from typing import Any

from tailrace.schemas.avro.defaults import why_not_a_default
from tailrace.schemas.avro.types import NO_DEFAULT, PRIMITIVES, Field, Type
from tailrace.schemas.json_text import dump
from tailrace.schemas.parsed import InvalidSchema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OF_TYPES = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
_OF_FIELDS = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS = ("ascending", "descending", "ignore")


class Parser:
    def __init__(self, known: Mapping[str, Type]) -> None:
        self._names = dict(known)
        self.defined: dict[str, Type] = {}
        # Checked at the end, when every type is whole.
        self._defaults: list[tuple[str, Field]] = []

    def parse(self, source: Any) -> Type:
        found = self._type(source, "", "")
        for record, each in self._defaults:
            if reason := why_not_a_default(each.type, each.default):
                raise InvalidSchema(f"Invalid default for field {record}.{each.name}: {reason}")
        return found

    def _type(self, source: Any, space: str, where: str) -> Type:
        if isinstance(source, str):
            return self._named(source, space, where)
        if isinstance(source, list):
            return self._union(source, space, where)
        if not isinstance(source, dict):
            raise InvalidSchema(f"{_at(where)}{dump(source)} is not a type: give a name, an object or an array")
        kind = source.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f'{_at(where)}No type: {_brief(source)} needs "type" with the name of a type')
        match kind:
            case "record" | "error":
                return self._record(kind, source, space, where)
            case "enum":
                return self._enum(source, space, where)
            case "fixed":
                return self._fixed(source, space, where)
            case "array" | "map":
                key = "items" if kind == "array" else "values"
                if key not in source:
                    raise InvalidSchema(f'{_at(where)}{kind} has no "{key}": {_brief(source)}')
                held = self._type(source[key], space, f"{where}/{key}")
                return Type(kind, items=held, properties=_others(source, _OF_TYPES))
        if kind in PRIMITIVES:
            return Type(kind, properties=_others(source, _OF_TYPES))
        return self._named(kind, space, where)

    def _named(self, name: str, space: str, where: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise InvalidSchema(
                f'{_at(where)}Undefined name: "{full}" is neither defined before this place nor in a reference'
            )
        return found

    def _union(self, source: list[Any], space: str, where: str) -> Type:
        branches = []
        labels: set[str] = set()
        for index, each in enumerate(source):
            branch = self._type(each, space, f"{where}/{index}")
            if branch.kind == "union":
                raise InvalidSchema(f"{_at(where)}Nested union: {_brief(source)}")
            if branch.label in labels:
                raise InvalidSchema(f"{_at(where)}Duplicate in union: {branch.label}")
            labels.add(branch.label)
            branches.append(branch)
        return Type("union", branches=tuple(branches))

    def _record(self, kind: str, source: dict[str, Any], space: str, where: str) -> Type:
        found = self._define(kind, source, space, where)
        fields = source.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f'{_at(where)}Record has no fields: give "fields" an array in {found.name}')
        seen: set[str] = set()
        parsed = []
        for index, each in enumerate(fields):
            place = f"{where}/fields/{index}"
            one = self._field(each, found.namespace, place)
            if one.name in seen:
                raise InvalidSchema(f"{_at(place)}Duplicate field {one.name} in record {found.name}")
            seen.add(one.name)
            parsed.append(one)
            if one.default is not NO_DEFAULT:
                self._defaults.append((found.name, one))
        found.fields = tuple(parsed)
        return found

    def _field(self, source: Any, space: str, where: str) -> Field:
        if not isinstance(source, dict):
            raise InvalidSchema(f"{_at(where)}a field is an object, not {_brief(source)}")
        name = _checked(_text(source, "name", where, "No field name"), where)
        if "type" not in source:
            raise InvalidSchema(f"{_at(where)}No field type: the field {name} needs one")
        order = str(source.get("order", "ascending")).lower()
        if order not in _ORDERS:
            raise InvalidSchema(f"{_at(where)}the order of a field is one of {', '.join(_ORDERS)}, not {order}")
        aliases = source.get("aliases", ())
        if not _are_texts(aliases):
            raise InvalidSchema(f"{_at(where)}aliases are an array of names, not {_brief(aliases)}")
        doc = source.get("doc")
        return Field(
            name=name,
            type=self._type(source["type"], space, f"{where}/type"),
            default=source.get("default", NO_DEFAULT),
            doc=doc if isinstance(doc, str) else None,
            order=order,
            aliases=tuple(aliases),
            properties=_others(source, _OF_FIELDS),
        )

    def _enum(self, source: dict[str, Any], space: str, where: str) -> Type:
        found = self._define("enum", source, space, where)
        symbols: Any = source.get("symbols")
        if not _are_texts(symbols):
            raise InvalidSchema(f'{_at(where)}Enum has no symbols: give "symbols" an array of names in {found.name}')
        for symbol in symbols:
            _checked(symbol, where)
        if len(set(symbols)) < len(symbols):
            twice = next(each for each in symbols if symbols.count(each) > 1)
            raise InvalidSchema(f"{_at(where)}Duplicate in enum: {twice}")
        default = source.get("default")
        if default is not None and default not in symbols:
            listed = ", ".join(symbols)
            raise InvalidSchema(f"{_at(where)}The Enum Default: {default} is not in the enum symbol set: [{listed}]")
        found.symbols, found.default = tuple(symbols), default
        found.properties.pop("default", None)
        return found

    def _fixed(self, source: dict[str, Any], space: str, where: str) -> Type:
        found = self._define("fixed", source, space, where)
        size = source.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InvalidSchema(f"{_at(where)}Invalid or no size: {found.name} needs a whole number of bytes")
        found.size = size
        return found

    def _define(self, kind: str, source: dict[str, Any], space: str, where: str) -> Type:
        name = _text(source, "name", where, "No name in schema")
        if "." not in name:
            given = source.get("namespace")
            space = given if isinstance(given, str) else space
            name = f"{space}.{name}" if space else name
        for part in name.split("."):
            _checked(part, where)
        if name in PRIMITIVES:
            raise InvalidSchema(f"{_at(where)}Schemas may not be named after primitives: {name}")
        if name in self._names:
            raise InvalidSchema(f"{_at(where)}Can't redefine: {name}")
        aliases = source.get("aliases", ())
        if not _are_texts(aliases):
            raise InvalidSchema(f"{_at(where)}aliases are an array of names, not {_brief(aliases)}")
        doc = source.get("doc")
        found = Type(kind, name, doc if isinstance(doc, str) else None, properties=_others(source, _OF_TYPES))
        prefix = f"{found.namespace}." if found.namespace else ""
        found.aliases = tuple(each if "." in each else prefix + each for each in aliases)
        self._names[name] = self.defined[name] = found
        return found


def _text(source: dict[str, Any], key: str, where: str, otherwise: str) -> str:
    value = source.get(key)
    if not isinstance(value, str):
        raise InvalidSchema(f"{_at(where)}{otherwise}: {_brief(source)}")
    return value


def _checked(name: str, where: str) -> str:
    if not _NAME.match(name):
        why = "Empty name" if not name else f"Illegal character in: {name}"
        raise InvalidSchema(f"{_at(where)}{why} (a name has letters, digits and _, and does not begin with a digit)")
    return name


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _others(source: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in source.items() if key not in known}


def _at(where: str) -> str:
    return f"at {where}: " if where else ""


def _brief(value: Any) -> str:
    text = dump(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
