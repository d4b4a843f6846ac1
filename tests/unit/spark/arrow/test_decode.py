"""Decoding to Arrow, case by case: sizes, bounds, and what cannot be a row. That records come out as they went in is
tests/property/test_arrow_decode.py."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.client.ranges import FetchedBatches
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.spark.arrow.decode import Columns, Decoder, arrow_schema
from tailrace.wire.payload import encode_payload
from tailrace.wire.records import Compression, Record, assemble_batch, build_batch, read_header

PARTITION = TopicPartition("orders", 3)
END = 1 << 40
ALL = Columns()
MEGABYTE = 1024 * 1024


def records(start: int, count: int, size: int = 1) -> list[Record]:
    return [Record(offset, 1_700_000_000_000, None, bytes(size)) for offset in range(start, start + count)]


def decode(*batches: bytes, columns: Columns = ALL, position: int = 0, **limits: int) -> list[pa.RecordBatch]:
    fetched = FetchedBatches(position, END, memoryview(b"".join(batches)), (), 0, END, END)
    return list(Decoder(PARTITION, position, END, columns, **limits).decode(fetched))


def offsets(found: Sequence[pa.RecordBatch]) -> list[int]:
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_the_schema_is_the_one_of_spark():
    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    expected = types.StructType(
        [
            types.StructField("key", types.BinaryType()),
            types.StructField("value", types.BinaryType()),
            types.StructField("topic", types.StringType()),
            types.StructField("partition", types.IntegerType()),
            types.StructField("offset", types.LongType()),
            types.StructField("timestamp", types.TimestampType()),
            types.StructField("timestampType", types.IntegerType()),
            types.StructField("headers", types.ArrayType(header)),
        ]
    )
    assert arrow_schema(ALL).equals(to_arrow_schema(expected, timezone="UTC"))


def test_an_answer_without_records_gives_nothing():
    assert decode() == []


def test_a_batch_of_rows_is_bounded_by_rows_and_by_bytes():
    small = build_batch(records(0, 2500))
    assert [batch.num_rows for batch in decode(small, rows_max=1000)] == [1000, 1000, 500]
    large = build_batch(records(0, 50, size=100_000), compression=Compression.ZSTD)
    found = decode(large)
    assert offsets(found) == list(range(50))
    assert [batch.num_rows for batch in found] == [10] * 5
    # What one row has more is not held against it.
    assert [batch.num_rows for batch in decode(large, bytes_max=1000)] == [1] * 50


def test_small_batches_come_together():
    (found,) = decode(*(build_batch(records(at, 10), base_offset=at) for at in range(0, 500, 10)))
    assert offsets([found]) == list(range(500))


def test_plain_and_compressed_batches_in_one_answer():
    kinds = (Compression.NONE, Compression.LZ4, Compression.NONE, Compression.GZIP)
    (found,) = decode(
        *(build_batch(records(at * 3, 3), base_offset=at * 3, compression=kind) for at, kind in enumerate(kinds))
    )
    assert offsets([found]) == list(range(12))


def test_batches_that_overlap_give_no_row_twice():
    found = decode(build_batch(records(0, 5)), build_batch(records(3, 5), base_offset=3))
    assert offsets(found) == list(range(8))


def test_a_header_name_that_is_not_utf_8_is_shown_with_the_replacement_character():
    headers = (("\udcff", b"1"), ("b", None))
    (found,) = decode(build_batch([Record(0, 0, None, None, headers)]), columns=Columns(("headers",)))
    assert found.to_pylist() == [{"headers": [{"key": "\ufffd", "value": b"1"}, {"key": "b", "value": None}]}]


def test_a_record_with_very_many_headers():
    headers = tuple((str(number), b"") for number in range(5000))
    (found,) = decode(build_batch([Record(0, 0, None, b"v", headers), *records(1, 1)]))
    assert [len(row or ()) for row in found.column("headers").to_pylist()] == [5000, 0]


@pytest.mark.parametrize("timestamp", [2**60, -(2**60)])
def test_a_time_that_spark_cannot_hold_is_an_error_unless_it_is_not_wanted(timestamp: int):
    batch = build_batch([*records(0, 1), Record(1, timestamp, None, b"v")])
    with pytest.raises(KafkaError, match=f"offset 1 has a timestamp of {timestamp} ms") as raised:
        decode(batch)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert offsets(decode(batch, columns=Columns(("offset", "value")))) == [0, 1]


def test_damage_is_named():
    damaged = bytearray(build_batch(records(0, 3)) + build_batch(records(3, 3), base_offset=3))
    damaged[-2] ^= 1
    with pytest.raises(KafkaError, match="the batch at offset 3 of orders-3 is damaged") as raised:
        decode(bytes(damaged))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 7)])
def test_offsets_that_do_not_rise_within_the_batch_are_refused(deltas: tuple[int, int]):
    payload = b"".join(
        encode_payload([Record(delta, 0, b"k", b"v")], base_offset=0, base_timestamp=0) for delta in deltas
    )
    header = read_header(build_batch(records(0, 2)))
    with pytest.raises(KafkaError, match="offset delta") as raised:
        decode(bytes(assemble_batch(header, payload)))
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_what_a_batch_decompresses_to_is_bounded():
    with pytest.raises(KafkaError, match="decompresses") as raised:
        decode(build_batch(records(0, 1, size=MEGABYTE), compression=Compression.ZSTD), decompressed_bytes_max=1000)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE
