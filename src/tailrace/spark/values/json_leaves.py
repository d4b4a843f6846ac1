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
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
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

_SHOWN_CHARACTERS_MAX = 60
_MICROSECONDS = 1_000_000
# Room for every digit of what is rounded; more of them than this are refused.
_DECIMAL_CONTEXT = Context(prec=400, rounding=ROUND_HALF_UP)
_NOT_FINITE = ("NaN", "Infinity", "+Infinity", "-Infinity", "INF", "+INF", "-INF")


class Leaf(NamedTuple):
    """How values become a column of one type. `make_all` takes a column in which only `kinds` and None occur,
    `make_one` any value but None. Both raise ValueError or ArithmeticError for what does not fit, and make the same of
    the same value: what becomes of a record must not depend on its neighbours."""

    noun: str
    arrow_type: pa.DataType
    kinds: frozenset[type]
    make_all: Callable[[list[Any]], pa.Array]
    make_one: Callable[[Any], pa.Scalar]


def leaf_of(wanted: DataType) -> Leaf:
    arrow_type = to_arrow_type(wanted, timezone="UTC")
    plain = partial(pa.array, type=arrow_type)
    if isinstance(wanted, BooleanType):
        return Leaf("true or false", arrow_type, frozenset({bool}), plain, _boolean)
    if isinstance(wanted, StringType):
        return Leaf("a string", arrow_type, frozenset({str}), plain, _string)
    if isinstance(wanted, BinaryType):
        return Leaf("base64", arrow_type, frozenset(), plain, _binary)
    if isinstance(wanted, DateType):
        return Leaf("a date such as 2026-01-31", arrow_type, frozenset({str}), _dates, _date)
    if isinstance(wanted, TimestampType):
        return Leaf("a time such as 2026-01-31T12:00:00Z", arrow_type, frozenset({str}), _timestamps, _timestamp)
    if isinstance(wanted, TimestampNTZType):
        noun = "a time without a zone, such as 2026-01-31T12:00:00"
        return Leaf(noun, arrow_type, frozenset({str}), _local_times, _local_time)
    noun = wanted.simpleString()
    if isinstance(wanted, DecimalType):
        return Leaf(noun, arrow_type, frozenset(), plain, partial(_decimal, wanted))
    if isinstance(wanted, FractionalType):
        numbers = frozenset({float, int, Decimal})
        return Leaf(noun, arrow_type, numbers, partial(_floats, arrow_type), partial(_float, arrow_type))
    return Leaf(noun, arrow_type, frozenset({int}), plain, partial(_integer, arrow_type))


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


def _boolean(value: Any) -> pa.Scalar:
    return pa.scalar(_only(bool, value), pa.bool_())


def _string(value: Any) -> pa.Scalar:
    return pa.scalar(value if type(value) is str else _json_text(value), pa.string())


def _binary(value: Any) -> pa.Scalar:
    return pa.scalar(b64decode(_only(str, value), validate=True), pa.binary())


def _integer(arrow_type: pa.DataType, value: Any) -> pa.Scalar:
    return pa.scalar(_only(int, value), arrow_type)


def _floats(arrow_type: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else float(value) for value in values], arrow_type)


def _float(arrow_type: pa.DataType, value: Any) -> pa.Scalar:
    if type(value) in (float, int, Decimal) or value in _NOT_FINITE:
        return pa.scalar(float(value), arrow_type)
    raise ValueError


def _decimal(wanted: DecimalType, value: Any) -> pa.Scalar:
    if type(value) not in (int, Decimal, str):
        raise ValueError
    step = Decimal(1).scaleb(-wanted.scale)
    rounded = Decimal(value).quantize(step, context=_DECIMAL_CONTEXT)
    return pa.scalar(rounded, pa.decimal128(wanted.precision, wanted.scale))


def _dates(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string()).cast(pa.date32())


def _date(value: Any) -> pa.Scalar:
    return _dates([_only(str, value)])[0]


def _local_times(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.string()).cast(pa.timestamp("us"))


def _local_time(value: Any) -> pa.Scalar:
    try:
        return _local_times([_only(str, value)])[0]
    except pa.ArrowInvalid:
        # Python reads more of ISO 8601, such as nanoseconds, which are cut.
        found = datetime.fromisoformat(value)
    if found.tzinfo is not None:
        raise ValueError
    return pa.scalar(found, pa.timestamp("us"))


def _timestamps(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return _local_times(values).cast(pa.timestamp("us", "UTC"))


def _timestamp(value: Any) -> pa.Scalar:
    if type(value) is int:
        return pa.scalar(value * _MICROSECONDS, pa.timestamp("us", "UTC"))
    try:
        return _timestamps([_only(str, value)])[0]
    except pa.ArrowInvalid:
        found = datetime.fromisoformat(value)
    return pa.scalar(found if found.tzinfo else found.replace(tzinfo=UTC), pa.timestamp("us", "UTC"))


def _only(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value
