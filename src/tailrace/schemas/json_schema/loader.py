"""From JSON to nodes, by the draft that `$schema` names: 4, 6, 7 (also without `$schema`), 2019-09 or 2020-12."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any
from urllib.parse import urljoin

from tailrace.schemas.json_schema.documents import Documents
from tailrace.schemas.json_schema.nodes import NOTHING, Node
from tailrace.schemas.json_text import Real, dump
from tailrace.schemas.parsed import InvalidSchema

_STRING = ("minLength", "maxLength", "pattern")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OBJECT = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
)
_ARRAY = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains")
_MODERN_OBJECT = (*_OBJECT, "dependentRequired", "dependentSchemas", "unevaluatedProperties")
_MODERN_ARRAY = (*_ARRAY, "prefixItems", "unevaluatedItems")
_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
_WHOLE = (
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "minContains",
    "maxContains",
)


class Loader:
    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self._documents = Documents(root, references)
        draft = str(root.get("$schema", "")) if isinstance(root, dict) else ""
        self._modern = "2019-09" in draft or "2020-12" in draft
        self._tuples_by_prefix = "2020-12" in draft
        self._first_draft = "draft-04" in draft
        self._known: dict[int, Node] = {}
        self._waiting: list[tuple[Node, Any, str, str]] = []
        self.root = self._load(root, self._documents.base, "#")
        while self._waiting:
            node, source, base, where = self._waiting.pop()
            node.target = self._load(source, base, where)
        for node in list(self._known.values()):
            _check_chain(node)

    def _load(self, source: Any, base: str, where: str) -> Node:
        if isinstance(source, bool):
            return Node("true" if source else "false", source)
        if not isinstance(source, dict):
            raise InvalidSchema(f"at {where}: a schema is an object or a boolean, not {dump(source)[:100]}")
        if (known := self._known.get(id(source))) is not None:
            return known
        own = source.get("$id", source.get("id"))
        if isinstance(own, str):
            base = urljoin(base, own)
        parts = self._parts(source, base, where)
        if not parts:
            node = Node("empty")
        elif len(parts) == 1:
            node = parts[0]
        else:
            node = Node("combined", criterion="allOf", parts=tuple(parts))
        node.source = source
        node.id = source.get("id" if self._first_draft else "$id")
        node.title, node.description = source.get("title"), source.get("description")
        node.default = source.get("default", NOTHING)
        node.connect_type = source.get("connect.type")
        self._known[id(source)] = node
        return node

    def _parts(self, source: dict[str, Any], base: str, where: str) -> list[Node]:
        parts: list[Node] = []
        reference = source.get("$ref", source.get("$dynamicRef", source.get("$recursiveRef")) if self._modern else None)
        if reference is not None:
            if not isinstance(reference, str):
                raise InvalidSchema(f"at {where}/$ref: a reference is a text")
            node = Node("ref")
            target, base_there = self._documents.find(reference, base)
            self._waiting.append((node, target, base_there, reference))
            parts.append(node)
            if not self._modern:
                return parts  # what stands beside $ref did not count before 2019-09
        if "enum" in source:
            parts.append(Node("enum", values=tuple(_array(source, "enum", where))))
        for key in ("allOf", "anyOf", "oneOf"):
            if key in source:
                each = [self._load(one, base, f"{where}/{key}/{i}") for i, one in enumerate(_array(source, key, where))]
                parts.append(Node("combined", criterion=key, parts=tuple(each)))
        if "not" in source:
            parts.append(Node("not", parts=(self._load(source["not"], base, f"{where}/not"),)))
        if "const" in source and not self._first_draft:
            parts.append(Node("const", values=(source["const"],)))
        parts += self._typed(source, base, where)
        if not self._first_draft and any(key in source for key in ("if", "then", "else")):
            for key in ("if", "then", "else"):
                if key in source:
                    self._load(source[key], base, f"{where}/{key}")
            parts.append(Node("conditional"))
        return parts

    def _typed(self, source: dict[str, Any], base: str, where: str) -> list[Node]:
        named = source.get("type", NOTHING)
        names = named if isinstance(named, list) else [] if named is NOTHING else [named]
        for name in names:
            if name not in _TYPES:
                raise InvalidSchema(f"at {where}/type: unknown type {dump(name)}: use {', '.join(_TYPES)}")
        typed = [self._of_type(name, source, base, where) for name in names]
        # Keywords that speak of a type count even where no type is named.
        sorts = (
            ("array", self._array_keywords),
            ("object", self._object_keywords),
            ("number", _NUMBER),
            ("string", _STRING),
        )
        covered = {"number" if name == "integer" else name for name in names}
        sniffed = [
            self._of_type(sort, source, base, where)
            for sort, keywords in sorts
            if sort not in covered and any(key in source for key in keywords)
        ]
        if isinstance(named, list):
            typed = [Node("combined", criterion="anyOf", parts=tuple(typed))]
        return typed + sniffed

    @property
    def _object_keywords(self) -> tuple[str, ...]:
        return _MODERN_OBJECT if self._modern else _OBJECT

    @property
    def _array_keywords(self) -> tuple[str, ...]:
        return _MODERN_ARRAY if self._modern else _ARRAY

    def _of_type(self, name: str, source: dict[str, Any], base: str, where: str) -> Node:
        match name:
            case "string":
                return Node("string", limits=_limits(source, _STRING, where))
            case "number" | "integer":
                return self._number(name, source, where)
            case "object":
                return self._object(source, base, where)
            case "array":
                return self._array(source, base, where)
        return Node(name)

    def _number(self, name: str, source: dict[str, Any], where: str) -> Node:
        limits = _limits(source, _NUMBER, where)
        for key, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(source.get(key), bool):
                # Draft 4: whether the limit beside it is itself allowed.
                limits.pop(key, None)
                if source[key] and plain in limits:
                    limits[key] = limits[plain]
        if limits.get("multipleOf") == 0:
            raise InvalidSchema(f"at {where}/multipleOf: it cannot be 0")
        return Node("number", limits=limits, integer=name == "integer")

    def _object(self, source: dict[str, Any], base: str, where: str) -> Node:
        node = Node("object", limits=_limits(source, ("minProperties", "maxProperties"), where))
        properties = _object(source, "properties", where)
        node.properties = {key: self._load(each, base, f"{where}/properties/{key}") for key, each in properties.items()}
        node.required = frozenset(_texts(source, "required", where)) if "required" in source else frozenset()
        for pattern, each in _object(source, "patternProperties", where).items():
            _check_pattern(pattern, f"{where}/patternProperties")
            node.patterns[pattern] = self._load(each, base, f"{where}/patternProperties/{pattern}")
        for key in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, each in _object(source, key, where).items() if key == "dependencies" or self._modern else ():
                if isinstance(each, list):
                    node.needed[name] = frozenset(map(str, each))
                else:
                    node.dependent[name] = self._load(each, base, f"{where}/{key}/{name}")
        if "propertyNames" in source:
            self._load(source["propertyNames"], base, f"{where}/propertyNames")
        self._rest(node, source, "additionalProperties", base, where)
        if self._modern and "unevaluatedProperties" in source:
            node.unevaluated = self._load(source["unevaluatedProperties"], base, f"{where}/unevaluatedProperties")
        return node

    def _array(self, source: dict[str, Any], base: str, where: str) -> Node:
        keys = ["minItems", "maxItems", "uniqueItems", *(("minContains", "maxContains") if self._modern else ())]
        node = Node("array", limits=_limits(source, keys, where))
        if "contains" in source:
            self._load(source["contains"], base, f"{where}/contains")
            if self._modern:
                node.limits.setdefault("minContains", 1)
        else:
            for key in ("minContains", "maxContains"):
                node.limits.pop(key, None)
        if not node.limits.get("uniqueItems"):
            node.limits.pop("uniqueItems", None)
        tuple_key = "prefixItems" if self._tuples_by_prefix else "items"
        first = source.get(tuple_key)
        if isinstance(first, list):
            node.first_items = tuple(self._load(each, base, f"{where}/{tuple_key}/{i}") for i, each in enumerate(first))
        items = source.get("items", NOTHING)
        if self._tuples_by_prefix and (items is False or node.first_items):
            self._rest(node, source, "items", base, where)
        elif items is not NOTHING and not isinstance(items, list) and not (self._modern and items is True):
            node.items = self._load(items, base, f"{where}/items")
        if not self._tuples_by_prefix:
            self._rest(node, source, "additionalItems", base, where)
            if node.items is not None:
                node.closed = False  # One schema holds for all items: there are no additional ones.
        if self._modern and "unevaluatedItems" in source:
            node.unevaluated = self._load(source["unevaluatedItems"], base, f"{where}/unevaluatedItems")
        return node

    def _rest(self, node: Node, source: dict[str, Any], key: str, base: str, where: str) -> None:
        rest = source.get(key, True)
        if rest is False:
            node.closed = True
        elif rest is not True:
            node.others = self._load(rest, base, f"{where}/{key}")


def exact(number: Any) -> Fraction:
    """A number as it was written, so that 0.1 goes into 0.3 three times."""
    return Fraction(number.text) if isinstance(number, Real) else Fraction(number)


def _check_chain(node: Node) -> None:
    seen: set[int] = set()
    current: Node | None = node
    while current is not None and current.kind == "ref":
        if id(current) in seen:
            raise InvalidSchema("a $ref leads back to itself, and to no schema")
        seen.add(id(current))
        current = current.target


def _limits(source: dict[str, Any], keys: Any, where: str) -> dict[str, Any]:
    found = {key: source[key] for key in keys if key in source}
    for key, value in found.items():
        if key == "pattern":
            if not isinstance(value, str):
                raise InvalidSchema(f"at {where}/pattern: it is a text, not {dump(value)}")
            _check_pattern(value, where)
        elif key == "uniqueItems" or (key.startswith("exclusive") and isinstance(value, bool)):
            if not isinstance(value, bool):
                raise InvalidSchema(f"at {where}/{key}: it is true or false, not {dump(value)}")
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise InvalidSchema(f"at {where}/{key}: it is a number, not {dump(value)}")
        elif key in _WHOLE and (value < 0 or value != int(value)):
            raise InvalidSchema(f"at {where}/{key}: it is a whole number from 0, not {dump(value)}")
    return found


def _check_pattern(pattern: str, where: str) -> None:
    """Only what is broken beyond doubt: JSON Schema's expressions are JavaScript's, and Python does not know all of
    them.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        if "unterminated" in str(error) or "unbalanced" in str(error) or "nothing to repeat" in str(error):
            raise InvalidSchema(f"at {where}: {pattern!r} is not a regular expression: {error}") from None


def _array(source: dict[str, Any], key: str, where: str) -> list[Any]:
    value = source[key]
    if not isinstance(value, list):
        raise InvalidSchema(f"at {where}/{key}: it is an array, not {dump(value)[:100]}")
    return value


def _texts(source: dict[str, Any], key: str, where: str) -> list[str]:
    value = _array(source, key, where)
    if not all(isinstance(each, str) for each in value):
        raise InvalidSchema(f"at {where}/{key}: it is an array of names")
    return value


def _object(source: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = source.get(key, {})
    if not isinstance(value, dict):
        raise InvalidSchema(f"at {where}/{key}: it is an object, not {dump(value)[:100]}")
    return value
