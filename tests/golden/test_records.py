"""Batches as other clients wrote them, kept as files: each is decoded to the last field, and those that are not
compressed are built again byte for byte.

`java_*` come from kafka-clients 4.3.0 (MemoryRecordsBuilder, MemoryRecords.filterTo), `librdkafka_*` from
librdkafka 2.16 and `aiokafka_*` from aiokafka 0.14, as a broker received them.
"""

from pathlib import Path

import pytest

from tailrace.wire.records import (
    BatchHeader,
    Compression,
    Record,
    TimestampType,
    build_batch,
    crc_is_valid,
    iterate_headers,
    iterate_records,
)

FOLDER = Path(__file__).parent / "records"
NOW = 1_700_000_000_000

SMALL = (
    Record(0, NOW, b"k0", b"hello"),
    Record(1, NOW + 1, None, b"no key"),
    Record(2, NOW + 2, b"tombstone", None),
    Record(3, NOW + 3, b"", b""),
    Record(4, NOW - 5, b"headers", b"v", (("trace", b"\x00\x01"), ("null", None), ("", b""), ("ünï", b"x"))),
    Record(5, NOW + 100_000, b"long", bytes(i % 251 for i in range(300))),
)
# Longer than a block of xerial's snappy (32 KB) and of lz4 (64 KB).
LARGE = (*SMALL, Record(6, NOW + 100_001, b"blocks", b"tailrace " * 9000))


def load(name: str) -> tuple[bytes, BatchHeader]:
    batch = (FOLDER / f"{name}.bin").read_bytes()
    ((position, header),) = iterate_headers(batch)
    assert position == 0
    assert header.size_bytes == len(batch)
    assert crc_is_valid(batch, 0, header)
    return batch, header


def records_of(batch: bytes) -> tuple[Record, ...]:
    return tuple(iterate_records(batch, max_decompressed_bytes=100_000))


def moved(records: tuple[Record, ...], base_offset: int) -> tuple[Record, ...]:
    return tuple(record._replace(offset=record.offset + base_offset) for record in records)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("java_gzip", Compression.GZIP),
        ("java_gzip_level_9", Compression.GZIP),
        ("java_snappy", Compression.SNAPPY),
        ("java_lz4", Compression.LZ4),
        ("java_lz4_level_12", Compression.LZ4),
        ("java_zstd", Compression.ZSTD),
        ("java_zstd_level_22", Compression.ZSTD),
        ("librdkafka_gzip", Compression.GZIP),
        ("librdkafka_snappy", Compression.SNAPPY),
        ("librdkafka_lz4", Compression.LZ4),
        ("librdkafka_zstd", Compression.ZSTD),
        ("aiokafka_gzip", Compression.GZIP),
        ("aiokafka_snappy", Compression.SNAPPY),
        ("aiokafka_lz4", Compression.LZ4),
        ("aiokafka_zstd", Compression.ZSTD),
    ],
)
def test_compressed_batches_of_other_clients(name: str, codec: Compression):
    batch, header = load(name)
    assert header.compression is codec
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 100_001)
    assert (header.last_offset_delta, header.record_count) == (6, 7)
    assert records_of(batch) == moved(LARGE, header.base_offset)


def test_xerial_snappy_has_the_framing_of_java():
    batch, _ = load("java_snappy")
    ours = build_batch(LARGE, compression=Compression.SNAPPY)
    # Two compressors may choose different copies; magic, version, compatible version and block sizes are fixed.
    assert ours[61 : 61 + 16] == batch[61 : 61 + 16]
    assert _block_sizes(ours) == _block_sizes(batch)


def _block_sizes(batch: bytes) -> list[int]:
    position = 61 + 16
    sizes = []
    while position < len(batch):
        length = int.from_bytes(batch[position : position + 4], "big")
        # A raw snappy block starts with its decompressed size, here in three bytes of seven bits at most.
        size = shift = 0
        for byte in batch[position + 4 : position + 7]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        sizes.append(size)
        position += 4 + length
    return sizes


@pytest.mark.parametrize("name", ["java_none", "librdkafka_none"])
def test_plain_batches_decode_and_rebuild_byte_for_byte(name: str):
    batch, header = load(name)
    records = moved(SMALL, header.base_offset)
    assert records_of(batch) == records
    assert build_batch(records, base_offset=header.base_offset, leader_epoch=header.leader_epoch) == batch


def test_transactional_batch_whose_sequence_wraps():
    batch, header = load("java_transactional")
    assert header.is_transactional
    assert not header.is_control
    assert (header.producer_id, header.producer_epoch) == (4711, 3)
    assert (header.base_sequence, header.last_sequence) == (2_147_483_645, 2)
    rebuilt = build_batch(
        moved(SMALL, 1000),
        base_offset=1000,
        leader_epoch=1,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=2_147_483_645,
        transactional=True,
    )
    assert rebuilt == batch


def test_log_append_time_is_the_time_of_every_record():
    batch, header = load("java_log_append_time")
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in records_of(batch)} == {NOW + 9}


def test_commit_marker():
    batch, header = load("java_commit_marker")
    assert header.is_control
    assert header.is_transactional
    # Key: version 0, type 1 (commit). Value: version 0, coordinator epoch 6.
    marker = Record(77, NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x06")
    assert records_of(batch) == (marker,)
    rebuilt = build_batch(
        [marker],
        base_offset=77,
        leader_epoch=5,
        producer_id=4711,
        producer_epoch=3,
        transactional=True,
        control=True,
    )
    assert rebuilt == batch


def test_compaction_leaves_gaps_and_a_delete_horizon():
    batch, header = load("java_compacted")
    kept = moved((SMALL[2], SMALL[4]), 42)
    horizon = NOW + 500 + 86_400_000
    assert header.has_delete_horizon
    assert (header.base_offset, header.last_offset, header.base_timestamp) == (42, 47, horizon)
    assert records_of(batch) == kept
    rebuilt = build_batch(kept, base_offset=42, leader_epoch=7, delete_horizon_ms=horizon, last_offset_delta=5)
    assert rebuilt == batch


def test_empty_batch_that_compaction_left():
    batch, header = load("java_empty")
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 42, 47)
    assert records_of(batch) == ()
