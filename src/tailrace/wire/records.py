"""RecordBatch v2: the blob in which records travel and rest.

    0  base offset 8 | batch length 4 | leader epoch 4 | magic 1 | crc 4
    21 attributes 2 | last offset delta 4 | base timestamp 8 | max timestamp 8
    43 producer id 8 | producer epoch 2 | base sequence 4 | record count 4
    61 the records, compressed as one block where the attributes say so

The CRC covers everything from byte 21 on; base offset and leader epoch lie before it, so a broker stamps them in
place without summing again. Brokers live on the header alone. Records are opened by clients, and by a broker only
for deep validation, compaction and re-compression.

Nothing read here is trusted. A header that cannot be is CORRUPT_MESSAGE, the old formats (magic 0 and 1) and every
lie inside the payload are INVALID_RECORD, as in Kafka. The CRC is checked where it is asked for (`crc_is_valid`).
Timestamps are milliseconds.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tailrace.model.ports import Bytes
from tailrace.wire.checksum import crc32c
from tailrace.wire.compression import Compression, compress, decompress
from tailrace.wire.payload import (
    HEADERS_AT_ONCE,
    MANY_HEADERS,
    Numbering,
    Record,
    RecordLike,
    encode_payload,
    encode_record,
    iterate_payload,
)

__all__ = [
    "HEADERS_AT_ONCE",
    "HEADER_SIZE",
    "LOG_APPEND_TIME_BIT",
    "MAGIC",
    "MANY_HEADERS",
    "NO_TIMESTAMP",
    "TRANSACTIONAL_BIT",
    "BatchHeader",
    "Compression",
    "Record",
    "RecordLike",
    "TimestampType",
    "assemble_batch",
    "build_batch",
    "crc_is_valid",
    "encode_record",
    "iterate_headers",
    "iterate_records",
    "iterate_unpacked",
    "read_header",
    "seal_batch",
    "set_base_offset",
    "set_log_append_time",
    "stamp_header",
    "unpack_records",
]

HEADER_SIZE = 61
MAGIC = 2
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LOG_OVERHEAD = 12  # base offset and batch length, which the batch length does not count
_BATCH_LENGTH_MIN = HEADER_SIZE - _LOG_OVERHEAD
_MAGIC_AT = 16
_CRC_AT = 17
_CRC_COVERS_FROM = 21
_MAX_TIMESTAMP_AT = 35
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")

_COMPRESSION_BITS = 7
LOG_APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
_CONTROL_BIT = 1 << 5
_DELETE_HORIZON_BIT = 1 << 6
_SEQUENCE_MODULUS = 1 << 31  # sequences wrap from 2147483647 to 0


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. `batch_length` is the wire's: it leaves out the first 12 bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # holds the delete horizon instead where `has_delete_horizon`
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + _LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE for a codec that does not exist."""
        return Compression.of(self.attributes)

    @property
    def is_compressed(self) -> bool:
        return bool(self.attributes & _COMPRESSION_BITS)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & _DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_MODULUS


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """Raises KafkaError unless there are 61 bytes of a batch of magic 2 whose length is possible. Whether the whole
    batch is there is for the caller to check."""
    try:
        header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _unreadable_header(buffer, position) from None
    if header.magic != MAGIC or header.batch_length < _BATCH_LENGTH_MIN:
        raise _unreadable_header(buffer, position)
    return header


def _unreadable_header(buffer: Bytes, position: int) -> KafkaError:
    available = len(buffer) - position
    if available > _MAGIC_AT:
        magic = buffer[position + _MAGIC_AT]
        if magic < MAGIC:
            return KafkaError(
                ErrorCode.INVALID_RECORD,
                f"record batches of magic {magic} (before Kafka 0.11) are not taken: use a client that writes magic 2",
            )
        if magic > MAGIC:
            return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} at position {position}: not a record batch")
    if available < HEADER_SIZE:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{available} bytes at position {position} are too few for a batch header of {HEADER_SIZE}",
        )
    length = _INT32.unpack_from(buffer, position + 8)[0]
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"a batch at position {position} claims a length of {length}, less than its own header",
    )


def iterate_headers(buffer: Bytes, *, allow_partial: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of each batch. The last one may be cut short only with `allow_partial`, as in a fetch
    response that ends where its size did; it is then left out."""
    position = 0
    end = len(buffer)
    while position < end:
        if allow_partial and end - position < HEADER_SIZE:
            return
        header = read_header(buffer, position)
        if header.size_bytes > end - position:
            if allow_partial:
                return
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch at position {position} claims {header.size_bytes} bytes of {end - position}",
            )
        yield position, header
        position += header.size_bytes


def crc_is_valid(buffer: Bytes, position: int, header: BatchHeader) -> bool:
    end = position + header.size_bytes
    return end <= len(buffer) and crc32c(memoryview(buffer)[position + _CRC_COVERS_FROM : end]) == header.crc


def iterate_records(batch: Bytes, *, max_decompressed_bytes: int) -> Iterator[Record]:
    """The records of the batch at the start of a buffer. Offsets must rise and stay within the header's range; they
    may have gaps, which compaction leaves. Raises KafkaError for any lie, at once if it shows before the records."""
    header = read_header(batch)
    return iterate_unpacked(header, unpack_records(batch, header, max_decompressed_bytes))


def unpack_records(batch: Bytes, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """The records as bytes, decompressed: what takes long here may run in a helper thread."""
    if len(batch) < header.size_bytes:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch claims {header.size_bytes} bytes, of which {len(batch)} are there"
        )
    if header.record_count < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch claims {header.record_count} records")
    payload = memoryview(batch)[HEADER_SIZE : header.size_bytes]
    # Compaction leaves empty batches that still name a codec: there is nothing to decompress in them.
    codec = header.compression if payload else Compression.NONE
    # One copy into bytes: reading single bytes and cutting slices is twice as fast there as in a memoryview.
    return bytes(payload) if codec is Compression.NONE else decompress(codec, payload, max_decompressed_bytes)


def iterate_unpacked(header: BatchHeader, data: bytes, *, only_checks: bool = False) -> Iterator[Record]:
    """With `only_checks` headers are left out, and MANY_HEADERS may stand between two records."""
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    numbering = Numbering(header.base_offset, header.last_offset_delta, header.base_timestamp, append_time)
    return iterate_payload(data, header.record_count, numbering, only_checks=only_checks)


def build_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """One batch. Offsets are absolute, rise, and start at `base_offset` or later; `last_offset_delta` may reach past
    the last of them where compaction has removed what stood there, and then there may be no records at all."""
    assert records or last_offset_delta is not None, "an empty batch has to say which offsets it stands for"
    attributes = timestamp_type << 3
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= _CONTROL_BIT
    base_timestamp = records[0][1] if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        attributes |= _DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    if last_offset_delta is None:
        last_offset_delta = records[-1][0] - base_offset
    payload = encode_payload(records, base_offset=base_offset, base_timestamp=base_timestamp)
    if records and compression is not Compression.NONE:
        attributes |= compression
        payload = compress(compression, payload, level)
    batch = bytearray(HEADER_SIZE) + payload
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - _LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max((record[1] for record in records), default=NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    _sum_again(batch, 0)
    return bytes(batch)


def seal_batch(
    payload: Bytes,
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> bytearray:
    """A producer's batch of records that are encoded already, by `encode_record` with offsets from 0 on."""
    attributes = TRANSACTIONAL_BIT if transactional else 0
    if compression is not Compression.NONE:
        attributes |= compression
        payload = compress(compression, payload, level)
    numbers = (count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count)
    return assemble_batch(BatchHeader(0, 0, NO_EPOCH, MAGIC, 0, attributes, *numbers), payload)


def assemble_batch(header: BatchHeader, payload: Bytes) -> bytearray:
    """A batch out of another's header, changed as need be, and a payload under its codec: re-compression and
    compaction. Length and CRC are made anew."""
    batch = bytearray(HEADER_SIZE) + payload
    stamp_header(batch, header)
    return batch


def stamp_header(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Writes the header into the first 61 bytes of a batch, before its payload. Length and CRC are made anew."""
    _HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - _LOG_OVERHEAD, crc=0))
    _sum_again(batch, 0)


# --- what a broker stamps into a batch in place


def set_base_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    _INT64.pack_into(buffer, position, offset)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Makes it the time of every record of the batch. These fields lie within the CRC, which is summed again."""
    attributes = _INT16.unpack_from(buffer, position + _CRC_COVERS_FROM)[0]
    _INT16.pack_into(buffer, position + _CRC_COVERS_FROM, attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    _sum_again(buffer, position)


def _sum_again(buffer: bytearray | memoryview, position: int) -> None:
    length = _INT32.unpack_from(buffer, position + 8)[0]
    covered = memoryview(buffer)[position + _CRC_COVERS_FROM : position + length + _LOG_OVERHEAD]
    _UINT32.pack_into(buffer, position + _CRC_AT, crc32c(covered))
