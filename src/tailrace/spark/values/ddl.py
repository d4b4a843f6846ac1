"""Schemas as text, without a JVM: Spark plans a Python source in a process that has none.

Two forms are read, as `from_json` reads them: Spark's DDL (`id BIGINT, tags ARRAY<STRING>`) and the JSON of
`StructType.json()`. Names in backticks, NOT NULL and COMMENT are understood. Every field becomes nullable, since what
arrives in a topic may lack any.
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

# Nobody writes deeper by hand, and a schema must not exhaust Python's stack.
_DEPTH_MAX = 64

_PLAIN_TYPES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
_DECIMALS = ("decimal", "dec", "numeric")
_NESTED = ("array", "map", "struct")
_KNOWN = (*_PLAIN_TYPES, *_DECIMALS, *_NESTED)

_TOKEN = re.compile(
    r"""\s*(?:
      `(?P<quoted>(?:[^`]|``)+)`
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<word>\w+)
    | (?P<sign>[<>(),:])
    | (?P<end>$)
    )""",
    re.VERBOSE,
)


class SchemaError(ValueError):
    """What is wrong with the text of a schema, and where."""


def parse_schema(text: str) -> StructType:
    """Raises SchemaError."""
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    parser = _Parser(text)
    fields = parser.read_struct_or_fields()
    parser.expect_end()
    return fields


def _parse_json(text: str) -> StructType:
    try:
        found = StructType.fromJson(json.loads(text))
    except json.JSONDecodeError as error:
        raise SchemaError(f"it starts like Spark's JSON, and is none: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, PySparkException) as error:
        raise SchemaError(
            f"it is JSON, but not that of a Spark schema, as df.schema.json() writes it: {error!r}"
        ) from None
    nullable = _nullable(found)
    assert isinstance(nullable, StructType)
    return nullable


def _nullable(found: DataType) -> DataType:
    if isinstance(found, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in found.fields])
    if isinstance(found, ArrayType):
        return ArrayType(_nullable(found.elementType))
    if isinstance(found, MapType):
        return MapType(_nullable(found.keyType), _nullable(found.valueType))
    if isinstance(found, DecimalType) or found in _PLAIN_TYPES.values():
        return found
    raise SchemaError(f"type {found.simpleString()} cannot be read from a record; {_known_types()}")


class _Token(NamedTuple):
    text: str
    kind: str  # the group of _TOKEN that matched
    column: int  # from 1 on

    def __str__(self) -> str:
        return f"{self.text!r} at column {self.column}" if self.kind != "end" else "its end"


class _Parser:
    """By recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._position = 0
        self._depth = 0

    def read_struct_or_fields(self) -> StructType:
        if self._next.text.lower() == "struct" and self._tokens[self._position + 1].text == "<":
            found = self._read_type()
            assert isinstance(found, StructType)
            return found
        return self._read_fields(closing="")

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise SchemaError(f"a comma or the end is expected, not {self._next}")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self) -> _Token:
        token = self._next
        self._position += token.kind != "end"
        return token

    def _take_if(self, *words: str) -> bool:
        """Takes all these words if they are next."""
        following = [
            token.text.lower() if token.kind in ("word", "sign") else None
            for token in self._tokens[self._position : self._position + len(words)]
        ]
        is_next = following == list(words)
        self._position += len(words) if is_next else 0
        return is_next

    def _expect(self, sign: str) -> None:
        if not self._take_if(sign):
            raise SchemaError(f"{sign!r} is expected, not {self._next}")

    def _read_fields(self, closing: str) -> StructType:
        fields = [self._read_field()]
        while self._take_if(","):
            fields.append(self._read_field())
        if closing:
            self._expect(closing)
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"field {twice!r} is there twice")
        return StructType(fields)

    def _read_field(self) -> StructField:
        name = self._take()
        if name.kind not in ("word", "quoted"):
            raise SchemaError(f"the name of a field is expected, not {name}")
        self._take_if(":")
        found = self._read_type()
        self._take_if("not", "null")
        if self._take_if("comment") and self._take().kind != "text":
            raise SchemaError(f"COMMENT of field {name.text!r} is followed by no text in quotes")
        return StructField(name.text, found)

    def _read_type(self) -> DataType:
        token = self._take()
        name = token.text.lower()
        if token.kind == "word" and name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        if token.kind == "word" and name in _DECIMALS:
            return self._read_decimal(token)
        if token.kind != "word" or name not in _NESTED:
            raise SchemaError(_unknown_type(token))
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise SchemaError(f"types are nested more than {_DEPTH_MAX} deep")
        self._expect("<")
        found = self._read_nested(name)
        self._depth -= 1
        return found

    def _read_nested(self, name: str) -> DataType:
        if name == "struct":
            return self._read_fields(closing=">")
        first = self._read_type()
        if name == "array":
            self._expect(">")
            return ArrayType(first)
        self._expect(",")
        second = self._read_type()
        self._expect(">")
        return MapType(first, second)

    def _read_decimal(self, token: _Token) -> DecimalType:
        if not self._take_if("("):
            return DecimalType()
        numbers = [self._take().text]
        if self._take_if(","):
            numbers.append(self._take().text)
        self._expect(")")
        if not all(number.isdecimal() for number in numbers):
            raise SchemaError(f"{token} needs numbers, such as DECIMAL(10, 2)")
        precision, scale = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaError(f"{token} needs a precision of 1 to 38 and a scale not above it")
        return DecimalType(precision, scale)


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, position)
        if match is None:
            rest = text[position:].lstrip()
            raise SchemaError(f"{rest[:1]!r} at column {len(text) - len(rest) + 1} has no meaning in a schema")
        kind = match.lastgroup or "end"
        content = match.group(kind)
        if kind == "quoted":
            content = content.replace("``", "`")
        tokens.append(_Token(content, kind, match.start(kind) + 1))
        position = match.end()
    return tokens


def _unknown_type(token: _Token) -> str:
    nearest = get_close_matches(token.text.lower(), _KNOWN, n=1, cutoff=0.75)
    hint = f"; did you mean {nearest[0].upper()}?" if nearest else f"; {_known_types()}"
    return f"a type is expected, not {token}{hint}"


def _known_types() -> str:
    return "types are " + ", ".join(_KNOWN).upper()
