"""OTLP's MetricsData (opentelemetry-proto, metrics/v1), read as far as it is shown: gauges, sums and histograms.

Owns the little of protobuf that this takes. Bytes come from clients: lengths are checked, what is not known is skipped
as protobuf wants it, and ValueError says what is wrong. Points come one after the other, so that whoever reads can turn
to something else between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_double, _fixed64, _signed64 = Struct("<d"), Struct("<Q"), Struct("<q")
_VARINT_MAX_BYTES = 10
_DELTA = 1  # AGGREGATION_TEMPORALITY_DELTA

Labels = tuple[tuple[str, str], ...]
# The number of a field, and its value: an integer, or the eight bytes or the bytes that it has.
_Field = tuple[int, "int | memoryview"]


class Point(NamedTuple):
    """A value at this moment. Of a histogram there are two: `_count` and `_sum` are part of their names."""

    name: str
    labels: Labels
    value: float
    is_counter: bool
    is_delta: bool  # To be added to what was told before.


def read_points(data: bytes) -> Iterator[Point]:
    """Raises ValueError."""
    for resource_metrics in each_message(data, 1):
        yield from _points_of_resource(resource_metrics)


def each_message(data: bytes, wanted: int) -> Iterator[memoryview]:
    """Those in the field of this number. Raises ValueError."""
    return (_nested(value) for number, value in _fields(memoryview(data)) if number == wanted)


def _points_of_resource(resource_metrics: memoryview) -> Iterator[Point]:
    fields = list(_fields(resource_metrics))
    # There is one resource; more of them would be merged.
    resource = [each for number, value in fields if number == 1 for each in _labels(_nested(value), 1)]
    for number, scope_metrics in fields:
        if number == 2:
            for inner, metric in _fields(_nested(scope_metrics)):
                if inner == 2:
                    yield from _points_of_metric(_nested(metric), tuple(resource))


def _points_of_metric(metric: memoryview, resource: Labels) -> Iterator[Point]:
    fields = list(_fields(metric))
    name = next((_text(value) for number, value in fields if number == 1), "")
    for number, value in fields:
        if number in (5, 7):  # gauge, sum
            yield from _numbers(_nested(value), name, resource, is_sum=number == 7)
        elif number == 9:  # histogram
            yield from _histograms(_nested(value), name, resource)


def _numbers(data: memoryview, name: str, resource: Labels, *, is_sum: bool) -> Iterator[Point]:
    fields = list(_fields(data))
    settings = {number: value for number, value in fields if number in (2, 3)}
    is_counter = is_sum and settings.get(3) == 1
    is_delta = is_sum and settings.get(2) == _DELTA
    for number, point in fields:
        if number != 1:
            continue
        value: float | None = None
        for inner, each in _fields(_nested(point)):
            if inner == 4:
                value = _double.unpack(_eight(each))[0]
            elif inner == 6:
                value = _signed64.unpack(_eight(each))[0]
        if value is not None:
            labels = (*resource, *_labels(_nested(point), 7))
            yield Point(name, labels, value, is_counter, is_delta)


def _histograms(data: memoryview, name: str, resource: Labels) -> Iterator[Point]:
    fields = list(_fields(data))
    is_delta = any(number == 2 and value == _DELTA for number, value in fields)
    for number, point in fields:
        if number != 1:
            continue
        count, total = 0.0, 0.0
        for inner, each in _fields(_nested(point)):
            if inner == 4:
                count = _fixed64.unpack(_eight(each))[0]
            elif inner == 5:
                total = _double.unpack(_eight(each))[0]
        labels = (*resource, *_labels(_nested(point), 9))
        yield Point(f"{name}.count", labels, count, is_counter=True, is_delta=is_delta)
        yield Point(f"{name}.sum", labels, total, is_counter=True, is_delta=is_delta)


def _labels(data: memoryview, wanted: int) -> list[tuple[str, str]]:
    """The KeyValues in the field of this number; values that are no scalars are left out."""
    found = []
    for number, pair in _fields(data):
        if number != wanted:
            continue
        key, value = "", None
        for inner, each in _fields(_nested(pair)):
            if inner == 1:
                key = _text(each)
            elif inner == 2:
                value = _scalar(_nested(each))
        if key and value is not None:
            found.append((key, value))
    return found


def _scalar(data: memoryview) -> str | None:
    for number, value in _fields(data):
        match number:
            case 1:
                return _text(value)
            case 2:
                return "true" if value else "false"
            case 3 if isinstance(value, int):
                return str(value - (1 << 64) if value >= 1 << 63 else value)
            case 4:
                return str(_double.unpack(_eight(value))[0])
    return None


# ---- protobuf


def _fields(data: memoryview) -> Iterator[_Field]:
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        number, wire_type = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"a field has the wire type {wire_type}")
        if size > end - position:
            raise ValueError(f"a field of {size} bytes where {end - position} are left")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_MAX_BYTES, 7):
        if position >= len(data):
            raise ValueError("the data ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
    raise ValueError("a number has more than ten bytes")


def _nested(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message is expected")
    return value


def _eight(value: int | memoryview) -> memoryview:
    if isinstance(value, int) or len(value) != 8:
        raise ValueError("something else where eight bytes are expected")
    return value


def _text(value: int | memoryview) -> str:
    return str(_nested(value), "utf-8", "replace")
