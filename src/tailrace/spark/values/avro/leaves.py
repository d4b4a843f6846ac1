"""Steps for values that hold no others: numbers, texts, bytes, symbols, times and decimals.

A step reads one value of every row. What it gives builds the Arrow array of them, and is not called for a field that
the reader does not want.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.spark.arrow.columns import binary_array
from tailrace.spark.arrow.records import Blobs, Booleans, Ints
from tailrace.spark.values.avro.rows import OddRowsError, Rows

Build = Callable[[], pa.Array]
Step = Callable[[Rows], Build]

_EPOCH_DAY = date(1970, 1, 1).toordinal()
# What Python's dates and times can say: others the reader of single rows refuses, too.
_DAYS = (date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY)
_MICROS = tuple(
    int((each - datetime(1970, 1, 1)).total_seconds()) * 1_000_000 + each.microsecond
    for each in (datetime.min, datetime.max)
)
_INTS = (-(2**31), 2**31 - 1)
_DECIMAL_BYTES = 16


def nothing(found: pa.DataType) -> Step:
    return lambda rows: lambda: pa.nulls(len(rows), found)


def constant(value: pa.Array) -> Step:
    """A default of the reader's: an array of one."""
    return lambda rows: lambda: value.take(pa.array(np.zeros(len(rows), np.int32)))


def booleans(rows: Rows) -> Build:
    found = rows.read_octets()
    rows.check(found <= 1)
    return lambda: pa.array(found.astype(np.bool_))


def ints(found: pa.DataType, *, times: int = 1) -> Step:
    """int and long, as any number, or a date, or a time that is `times` microseconds."""
    if pa.types.is_int32(found):
        return _within(_INTS, found, np.int32)
    if pa.types.is_date(found):
        return _within(_DAYS, found, np.int32)
    if pa.types.is_timestamp(found):
        return _within((_MICROS[0] // times, _MICROS[1] // times), found, np.int64, times)
    if pa.types.is_int64(found):
        return _plain(Rows.read_ints, found)
    # By way of a double, as Python would do it.
    return _plain(lambda rows: rows.read_ints().astype(np.float64), found)


def floats(kind: str, found: pa.DataType) -> Step:
    return _plain(lambda rows: rows.read_fixed(kind), found)


def _within(bounds: Sequence[int], found: pa.DataType, width: type, times: int = 1) -> Step:
    least, most = bounds

    def step(rows: Rows) -> Build:
        numbers = rows.read_ints()
        rows.check((numbers >= least) & (numbers <= most))
        return lambda: _of_numbers((numbers * times).astype(width), found)

    return step


def _plain(read: Callable[[Rows], Any], found: pa.DataType) -> Step:
    width = found.to_pandas_dtype()

    def step(rows: Rows) -> Build:
        numbers = read(rows)
        return lambda: _of_numbers(numbers.astype(width), found)

    return step


def _of_numbers(numbers: Any, found: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(found, len(numbers), [None, pa.py_buffer(numbers)])


# --- bytes


def blobs(found: pa.DataType, size_bytes: int | None = None) -> Step:
    """bytes and string, or fixed if there is a size: as text, as bytes, or as a decimal."""
    build = _decimals if pa.types.is_decimal(found) else _texts if pa.types.is_string(found) else _bytes

    def step(rows: Rows) -> Build:
        if size_bytes is None:
            start, size = rows.read_blobs()
        else:
            start, size = rows.position, np.full(len(rows), size_bytes)
            rows.skip(size)
        return lambda: build(rows, start, size, found)

    return step


def _bytes(rows: Rows, start: Ints, size: Ints, _found: pa.DataType) -> pa.Array:
    return binary_array(rows.data.data, Blobs(start, size, None))


def _texts(rows: Rows, start: Ints, size: Ints, found: pa.DataType) -> pa.Array:
    written = _bytes(rows, start, size, found)
    try:
        return written.cast(found)
    except pa.ArrowInvalid:
        raise OddRowsError(rows.number[~np.fromiter(map(_is_text, written.to_pylist()), np.bool_)]) from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decimals(rows: Rows, start: Ints, size: Ints, found: pa.DataType) -> pa.Array:
    """From big-endian bytes, as many as there are, to 16 little-endian ones."""
    rows.check(size <= _DECIMAL_BYTES)
    is_negative = (size > 0) & (rows.data.take(start, mode="clip") > 0x7F)
    written = np.where(is_negative[:, None], np.uint8(0xFF), np.uint8(0)).repeat(_DECIMAL_BYTES, axis=1)
    for place in range(int(size.max(initial=0))):
        has = np.flatnonzero(size > place)
        written[has, place] = rows.data[(start + size)[has] - 1 - place]
    decimals = pa.Array.from_buffers(found, len(rows), [None, pa.py_buffer(written)])
    try:
        decimals.validate(full=True)
    except pa.ArrowInvalid:
        limit = 10**found.precision
        numbers = (int.from_bytes(each.tobytes(), "little", signed=True) for each in written)
        raise OddRowsError(rows.number[[abs(each) >= limit for each in numbers]]) from None
    return decimals


def symbols(names: Sequence[str | None]) -> Step:
    """An enum, by what the reader calls each of the writer's symbols; None: it cannot be read."""
    is_known: Booleans = np.array([name is not None for name in names], np.bool_)
    texts = pa.array(names, pa.string())

    def step(rows: Rows) -> Build:
        index = rows.read_ints()
        rows.check((index >= 0) & (index < len(names)))
        rows.check(is_known[index])
        return lambda: texts.take(pa.array(index))

    return step
