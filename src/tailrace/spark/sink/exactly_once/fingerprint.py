"""The fingerprint of the rows that pass through a task.

A sum of checksums of rows: it does not depend on their order, which a shuffle does not keep, nor on how they are cut
into batches. Keys and values are what counts. A microsecond per row of 1 KB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from tailrace.spark.sink.exactly_once.decision import Fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

_MODULUS = 1 << 64


class Fingerprints:
    """Passes rows on, and knows the fingerprint of those so far."""

    def __init__(self) -> None:
        self._rows = 0
        self._checksum = 0

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._rows, self._checksum)

    def watch(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self._add(batch)
            yield batch

    def _add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        checksums = [0] * batch.num_rows
        for name in ("key", "value"):
            if name in batch.schema.names:
                checksums = list(map(crc32, _contents(batch.column(name)), checksums))
        self._checksum = (self._checksum + sum(checksums)) % _MODULUS


def _contents(column: pa.Array) -> list[bytes]:
    import pyarrow as pa

    # So that a row without a value is told from one with an empty value.
    return list(column.cast(pa.binary()).fill_null(b"\0null").to_pylist())
