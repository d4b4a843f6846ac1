"""Records of a coordinator as bytes: those of one turn, on their way into one batch."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.coordinator.op import Producer, StoredBytes, StoredRecord
from tailrace.wire.payload import RecordLike
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value
from tailrace.wire.records import HEADER_SIZE, build_batch
from tailrace.wire.schema import Message

# Length, attributes, deltas of time and offset, lengths of key and value, headers: at most so much beside them.
_RECORD_OVERHEAD_BYTES = 32


class Batch:
    """A batch of records that were decided one after the other; as large as the topic allows."""

    __slots__ = ("_records", "size_bytes")

    def __init__(self) -> None:
        self._records: list[RecordLike] = []
        self.size_bytes = HEADER_SIZE  # Or a little less, never more.

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, encoded: EncodedRecords, now_ms: int) -> None:
        offset = len(self._records)
        self._records += [(offset + index, now_ms, key, value, ()) for index, (key, value) in enumerate(encoded.pairs)]
        self.size_bytes += encoded.size_bytes

    def build(self, producer: Producer | None = None) -> memoryview:
        if producer is None:
            built = build_batch(self._records)
        else:
            built = build_batch(
                self._records,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transactional=True,
            )
        return memoryview(bytearray(built))


class EncodedRecords:
    """The records of one op."""

    __slots__ = ("pairs", "size_bytes")

    def __init__(self, records: Sequence[StoredRecord | StoredBytes]) -> None:
        self.pairs: list[tuple[bytes, bytes | None]] = [
            (record.key, record.value) if isinstance(record, StoredBytes) else _encode(*record) for record in records
        ]
        self.size_bytes = sum(
            [len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD_BYTES for key, value in self.pairs]
        )


def _encode(key: Message, value: Message | None, version: int | None) -> tuple[bytes, bytes | None]:
    return encode_coordinator_key(key), None if value is None else encode_coordinator_value(value, version)
