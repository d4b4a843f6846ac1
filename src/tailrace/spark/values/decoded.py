"""What every format makes of a column of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType


class Decoded(NamedTuple):
    """`column` is as long as what was decoded, and null where a row is in `bad` (by row, why it cannot be read)."""

    column: pa.Array
    bad: dict[int, str]


class ColumnDecoder(Protocol):
    """Lives in one task. Nothing that it is given can make it raise: whatever is wrong with a row is told in `bad`. It
    raises if it cannot find out, since a registry is away: then the task fails."""

    def decode(self, column: pa.Array) -> Decoded: ...


class Format(Protocol):
    """One choice of `key.format` or `value.format` with its options. Crosses to the executors by pickle."""

    @property
    def spark_type(self) -> DataType: ...

    def decoder(self) -> ColumnDecoder: ...
