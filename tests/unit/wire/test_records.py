"""RecordBatch v2: headers, patches in place, and every lie that a batch can tell."""

import struct
from collections.abc import Callable

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.checksum import crc32c
from tailrace.wire.compression import compress
from tailrace.wire.payload import scan_keyed
from tailrace.wire.records import (
    HEADER_SIZE,
    Compression,
    Record,
    TimestampType,
    build_batch,
    crc_is_valid,
    iterate_headers,
    iterate_records,
    read_header,
    set_base_offset,
    set_log_append_time,
)

NOW = 1_700_000_000_000
RECORDS = (
    Record(10, NOW, b"a", b"1"),
    Record(11, NOW + 7, None, b"2", (("h", b"x"), ("n", None))),
    Record(13, NOW - 3, b"c", None),
)


def records_of(batch: bytes | bytearray | memoryview) -> list[Record]:
    return list(iterate_records(batch, max_decompressed_bytes=1 << 20))


def code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        action()
    return raised.value.code


def batch_with(payload: bytes, *, count: int = 1, last_offset_delta: int = 0, attributes: int = 0) -> bytes:
    """A batch with a true CRC around whatever payload."""
    body = struct.pack(">hiqqqhii", attributes, last_offset_delta, NOW, NOW, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def record_bytes(fields: bytes, *, length: int | None = None) -> bytes:
    return bytes([2 * (len(fields) if length is None else length)]) + fields


def test_header_of_a_built_batch():
    batch = build_batch(
        RECORDS, base_offset=10, leader_epoch=4, producer_id=9, producer_epoch=1, base_sequence=2**31 - 1
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 13, 14)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (4, 9, 1)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 7)
    assert header.last_sequence == 2  # wrapped
    assert header.compression is Compression.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (False, False, False)
    assert crc_is_valid(batch, 0, header)


def test_no_sequence_has_no_last_sequence():
    assert read_header(build_batch(RECORDS, base_offset=10)).last_sequence == -1


@pytest.mark.parametrize("codec", list(Compression))
def test_what_is_built_is_read_back(codec: Compression):
    batch = build_batch(RECORDS, base_offset=10, compression=codec)
    assert read_header(batch).compression is codec
    assert records_of(memoryview(batch)) == list(RECORDS)


def test_long_fields_take_longer_varints():
    records = [Record(0, 0, b"k" * 70, b"v" * 20_000), Record(3_000_000, 2**62, b"", b"x" * 3_000_000)]
    assert records_of(build_batch(records)) == records


def test_header_names_that_are_not_utf8_survive():
    lone = b"\xff\xfe"
    fields = b"\x00\x00\x00\x01\x01\x02" + b"\x04" + lone + b"\x01"
    (record,) = records_of(batch_with(record_bytes(fields)))
    assert record.headers[0][0].encode("utf-8", "surrogateescape") == lone
    assert records_of(build_batch([record])) == [record]


def test_a_patch_before_the_crc_keeps_it_valid():
    buffer = bytearray(b"before" + build_batch(RECORDS, base_offset=10))
    set_base_offset(buffer, 6, 500)
    header = read_header(buffer, 6)
    assert header.base_offset == 500
    assert crc_is_valid(buffer, 6, header)
    assert [record.offset for record in records_of(buffer[6:])] == [500, 501, 503]


def test_log_append_time_sums_the_crc_again():
    batch = build_batch(RECORDS, base_offset=10, compression=Compression.GZIP)
    buffer = bytearray(batch + batch)
    set_log_append_time(buffer, len(batch), NOW + 99)
    assert buffer[: len(batch)] == batch
    header = read_header(buffer, len(batch))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW + 99
    assert crc_is_valid(buffer, len(batch), header)
    assert {record.timestamp for record in records_of(buffer[len(batch) :])} == {NOW + 99}


def test_every_flipped_bit_behind_the_crc_is_found():
    batch = bytearray(build_batch(RECORDS, base_offset=10))
    header = read_header(batch)
    for position in range(21, len(batch)):
        batch[position] ^= 0x10
        assert not crc_is_valid(batch, 0, header)
        batch[position] ^= 0x10
    assert crc_is_valid(batch, 0, header)
    assert not crc_is_valid(batch[:-1], 0, header)


def test_headers_of_several_batches():
    first, second = build_batch(RECORDS[:1], base_offset=10), build_batch(RECORDS[1:], base_offset=11)
    both = first + second
    assert [(position, header.base_offset) for position, header in iterate_headers(both)] == [
        (0, 10),
        (len(first), 11),
    ]
    assert list(iterate_headers(b"")) == []


@pytest.mark.parametrize("cut", [1, 30, HEADER_SIZE - 1, HEADER_SIZE, HEADER_SIZE + 1])
def test_a_batch_cut_short_is_corrupt_unless_a_partial_one_is_allowed(cut: int):
    batch = build_batch(RECORDS, base_offset=10)
    buffer = batch + batch[:cut]
    assert code_of(lambda: list(iterate_headers(buffer))) is ErrorCode.CORRUPT_MESSAGE
    assert len(list(iterate_headers(buffer, allow_partial=True))) == 1


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (0xFF, ErrorCode.CORRUPT_MESSAGE),
    ],
)
@pytest.mark.parametrize("size", [17, 60, 200])
def test_other_magics_are_refused(magic: int, code: ErrorCode, size: int):
    batch = bytearray(build_batch([Record(0, NOW, None, b"x" * 200)])[:size])
    batch[16] = magic
    assert code_of(lambda: read_header(batch)) is code


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_batch_length_below_the_header_is_corrupt(length: int):
    batch = bytearray(build_batch(RECORDS, base_offset=10))
    struct.pack_into(">i", batch, 8, length)
    assert code_of(lambda: read_header(batch)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: list(iterate_headers(batch))) is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_length_beyond_the_buffer_is_corrupt():
    batch = bytearray(build_batch(RECORDS, base_offset=10))
    struct.pack_into(">i", batch, 8, 2**31 - 1)
    assert code_of(lambda: records_of(batch)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(lambda: list(iterate_headers(batch))) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int):
    batch = batch_with(b"whatever", attributes=codec)
    assert code_of(lambda: records_of(batch)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


PLAIN = b"\x00\x00\x00\x02k\x02v\x00"  # attributes, both deltas 0, key "k", value "v", no headers

LIES = {
    "count too high": {"payload": record_bytes(PLAIN), "count": 2, "last_offset_delta": 1},
    "count enormous": {"payload": record_bytes(PLAIN), "count": 2**31 - 1},
    "count too low": {"payload": record_bytes(PLAIN) * 2, "count": 1},
    "count zero": {"payload": record_bytes(PLAIN), "count": 0},
    "count negative": {"payload": record_bytes(PLAIN), "count": -1},
    "no payload": {"payload": b""},
    "trailing byte": {"payload": record_bytes(PLAIN) + b"\x00"},
    "length too long": {"payload": record_bytes(PLAIN, length=len(PLAIN) + 1)},
    "length too short": {"payload": record_bytes(PLAIN, length=len(PLAIN) - 1)},
    "length negative": {"payload": b"\x01" + PLAIN},
    "length past the end, fields too": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\x02\x02a\x10x", length=17)},
    "length of six bytes": {"payload": b"\xff\xff\xff\xff\xff\x01" + PLAIN},
    "length of 33 bits": {"payload": b"\xfe\xff\xff\xff\x7f" + PLAIN},
    "length without an end": {"payload": b"\xff\xff"},
    "offsets repeat": {"payload": record_bytes(PLAIN) * 2, "count": 2, "last_offset_delta": 1},
    "offset beyond the last": {"payload": record_bytes(b"\x00\x00\x02\x01\x01\x00")},
    "offset negative": {"payload": record_bytes(b"\x00\x00\x01\x01\x01\x00")},
    "timestamp of 11 bytes": {"payload": record_bytes(b"\x00" + b"\xff" * 10 + b"\x01\x00\x01\x01\x00")},
    "timestamp of 65 bits": {"payload": record_bytes(b"\x00" + b"\xff" * 9 + b"\x03\x00\x01\x01\x00")},
    "timestamp beyond 64 bits in sum": {"payload": record_bytes(b"\x00\xfe" + b"\xff" * 8 + b"\x01\x00\x01\x01\x00")},
    "key length -2": {"payload": record_bytes(b"\x00\x00\x00\x03\x01\x00")},
    "key too long": {"payload": record_bytes(b"\x00\x00\x00\x7ekk\x01\x00")},
    "key of 2 GB": {"payload": record_bytes(b"\x00\x00\x00\xfe\xff\xff\xff\x0fkk\x01\x00")},
    "value length -2": {"payload": record_bytes(b"\x00\x00\x00\x01\x03\x00")},
    "value eats the header count": {"payload": record_bytes(b"\x00\x00\x00\x01\x04v\x00")},
    "header count negative": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\x01")},
    "header count too high": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\x04\x02a\x01")},
    "header count enormous": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f")},
    "header name null": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\x02\x01\x01")},
    "header value length -2": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\x02\x02a\x03")},
    "headers end before the record": {"payload": record_bytes(b"\x00\x00\x00\x01\x01\x02\x02a\x01\x00")},
    "empty record": {"payload": b"\x00"},
}


def test_the_lies_start_from_a_truth():
    assert records_of(batch_with(record_bytes(PLAIN))) == [Record(0, NOW, b"k", b"v")]


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("compressed", [False, True])
def test_lies_in_the_payload(lie: dict, compressed: bool):
    if compressed:
        lie = lie | {"payload": compress(Compression.GZIP, lie["payload"]), "attributes": 1}
    assert code_of(lambda: records_of(batch_with(**lie))) is ErrorCode.INVALID_RECORD


def test_an_empty_batch_reads_as_nothing_even_if_it_names_a_codec():
    assert records_of(batch_with(b"", count=0, last_offset_delta=4, attributes=Compression.LZ4)) == []


def test_building_refuses_offsets_that_do_not_rise():
    with pytest.raises(AssertionError):
        build_batch([RECORDS[1], RECORDS[0]], base_offset=10)
    with pytest.raises(AssertionError):
        build_batch([])


def keyed_record(*, length: int = 16, attributes: int = 0, delta: int = 0, key: bytes = b"\x04kk") -> bytes:
    """By default one that `scan_keyed` takes; its length and its offset delta are given as they stand in it."""
    return bytes((length, attributes, 0, delta)) + key + b"\x00\x00"


@pytest.mark.parametrize(
    "lie",
    [
        keyed_record(length=17),  # minus nine
        keyed_record(length=14),
        keyed_record(length=18),
        keyed_record(length=18) + b"\x00",
        keyed_record(delta=1),
        keyed_record(delta=2),
        keyed_record(key=b"\x03kk"),
        keyed_record(key=b"\x06kk"),
        keyed_record(length=12, key=b"\x01"),
        keyed_record(length=18, key=b"\x04kk\x03"),  # a value of minus two bytes
        keyed_record()[:-1],
        keyed_record()[:-1] + b"\x01",
        keyed_record()[:-1] + b"\x02",
    ],
)
def test_a_scan_takes_no_lie(lie):
    assert scan_keyed(keyed_record() + keyed_record(delta=2), 0, range(2)) == (18, 0, 0)
    scanned = scan_keyed(lie, 0, range(1))
    assert scanned is None or scanned[0] != len(lie)
    assert scan_keyed(lie + keyed_record(delta=2), 0, range(2)) is None
