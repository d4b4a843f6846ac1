"""The values in JSON that have no parts, and what each type of Spark takes of them.

| type | taken |
|---|---|
| boolean | true, false |
| byte, short, int, long | numbers without fraction or exponent, in range |
| float, double | numbers, and NaN, Infinity, -Infinity, as a word or a string |
| decimal(p, s) | numbers and strings of them, rounded half up to s digits; p digits must do |
| string | strings; anything else as its JSON text |
| binary | strings of base64 |
| date | strings such as 2026-01-31 |
| timestamp | ISO 8601 strings, without a zone in UTC; integers are seconds since 1970 |
| timestamp_ntz | ISO 8601 strings without a zone |
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.spark.pyspark_api import arrow_type_of

_SHOWN_CHARACTERS_MAX = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = 1_000_000
# Room for every digit of what is rounded; a number with more digits than this is refused.
_DECIMAL_CONTEXT = Context(prec=400, rounding=ROUND_HALF_UP)
_NOT_FINITE = ("NaN", "Infinity", "+Infinity", "-Infinity", "INF", "+INF", "-INF")


class Leaf(NamedTuple):
    """How values become a column of one type. Those of `kinds` Arrow takes as they are, if they fit. Of any other value
    but None `convert` makes one that Arrow takes for certain, and of those that fit the same as Arrow would; it raises
    ValueError or ArithmeticError for the rest."""

    noun: str
    arrow_type: pa.DataType
    kinds: frozenset[type]
    convert: Callable[[Any], Any]
    # Without `kinds`: what a parser that knows types is to make of it.
    parsed: Any = str


def leaf_of(wanted: DataType) -> Leaf:
    arrow_type = arrow_type_of(wanted)
    match wanted:
        case BooleanType():
            return Leaf("true or false", arrow_type, frozenset({bool}), partial(_only, bool))
        case StringType():
            return Leaf("a string", arrow_type, frozenset({str}), _to_string)
        case BinaryType():
            return Leaf("base64", arrow_type, frozenset(), _to_binary)
        case DateType():
            return Leaf("a date such as 2026-01-31", arrow_type, frozenset(), _to_date)
        case TimestampType():
            return Leaf("a time such as 2026-01-31T12:00:00Z", arrow_type, frozenset(), _to_timestamp_us, int | str)
        case TimestampNTZType():
            noun = "a time without a zone, such as 2026-01-31T12:00:00"
            return Leaf(noun, arrow_type, frozenset(), _to_local_time_us)
        case DecimalType():
            return Leaf(wanted.simpleString(), arrow_type, frozenset(), partial(_to_decimal, wanted), Decimal)
        case FractionalType():
            return Leaf(wanted.simpleString(), arrow_type, frozenset({float}), _to_float)
    return Leaf(wanted.simpleString(), arrow_type, frozenset({int}), partial(_to_integer, arrow_type.bit_width))


def shown(value: Any) -> str:
    """A value as its JSON text, cut to a length that a header or a log line can bear."""
    try:
        text = _json_text(value).encode(errors="backslashreplace").decode()  # Half a surrogate pair is in no encoding.
    except ValueError as error:
        return str(error)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=float)
    except RecursionError:
        raise ValueError("a value that is nested too deep to be shown") from None


def _only(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value


def _to_string(value: Any) -> str:
    text = value if type(value) is str else _json_text(value)
    text.encode()  # Raises if half of a surrogate pair is in it.
    return text


def _to_binary(value: Any) -> bytes:
    return b64decode(_only(str, value), validate=True)


def _to_integer(bits: int, value: Any) -> int:
    number: int = _only(int, value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError
    return number


def _to_float(value: Any) -> float:
    if type(value) in (float, int, Decimal) or value in _NOT_FINITE:
        return float(value)
    raise ValueError


def _to_decimal(wanted: DecimalType, value: Any) -> Decimal:
    if type(value) not in (int, Decimal, str):
        raise ValueError
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-wanted.scale), context=_DECIMAL_CONTEXT)
    # adjusted() is the power of ten of the first digit.
    if not rounded.is_finite() or rounded.adjusted() >= wanted.precision - wanted.scale:
        raise ValueError
    return rounded


def _to_date(value: Any) -> date:
    return date.fromisoformat(_only(str, value))


def _to_timestamp_us(value: Any) -> int:
    if type(value) is int:
        return _to_integer(64, value * _MICROSECONDS)
    found = datetime.fromisoformat(_only(str, value))
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _to_local_time_us(value: Any) -> int:
    found = datetime.fromisoformat(_only(str, value))
    if found.tzinfo is not None:
        raise ValueError
    return (found.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
