"""Batches encoded by columns hold what their rows say, as read by the plain decoder."""

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tailrace.client.lanes import ANONYMOUS, ProducerIdentity, ProducerOptions
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NO_SEQUENCE, PartitionIndex, TopicPartition
from tailrace.spark.arrow.encode import EncodedBatch, Records, encode
from tailrace.spark.arrow.murmur2 import murmur2_of
from tailrace.wire.murmur2 import murmur2
from tailrace.wire.records import Compression, crc_is_valid, iterate_records, read_header

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_700_000_000_123

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]


class Filler(bytes):
    """Many equal bytes, shown by their count."""

    def __repr__(self) -> str:
        return f"Filler({len(self)})"


# At these sizes a length begins to take one more byte.
fillers = st.sampled_from([Filler(size) for size in (63, 64, 8191, 8192)])
blobs = st.none() | st.binary(max_size=40) | fillers
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=4)
rows = st.lists(st.tuples(blobs, blobs, headers, st.integers(0, 3)), max_size=60)


def partitions(count: int = 4) -> list[TopicPartition]:
    return [TopicPartition("orders", PartitionIndex(index)) for index in range(count)]


def encode_rows(written: list[Row], options: ProducerOptions) -> list[EncodedBatch]:
    records = Records.of(
        key=pa.array([row[0] for row in written], pa.binary()),
        value=pa.array([row[1] for row in written], pa.binary()),
        headers=pa.array([row[2] for row in written], HEADERS),
    )
    destinations = np.array([row[3] for row in written], np.intp)
    return list(encode(records, destinations, partitions(), options, timestamp=NOW_MS))


@given(written=rows, compression=st.sampled_from(Compression), batch_bytes=st.sampled_from([100, 1000, 100_000]))
def test_each_partition_reads_its_rows_in_order(written: list[Row], compression: Compression, batch_bytes: int) -> None:
    batches = encode_rows(written, ProducerOptions(compression=compression, batch_bytes=batch_bytes))

    read: dict[int, list[tuple[object, ...]]] = {}
    for batch in batches:
        sealed = batch.seal(ProducerIdentity(7, 3), 40, transactional=True)
        header = read_header(sealed)
        assert crc_is_valid(sealed, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
        assert header.is_transactional
        assert header.max_timestamp == NOW_MS
        assert header.last_offset_delta == batch.record_count - 1
        records = list(iterate_records(sealed, max_decompressed_bytes=1 << 30))
        assert [record.offset for record in records] == list(range(batch.record_count))
        assert {record.timestamp for record in records} == {NOW_MS}
        if compression is Compression.NONE:
            assert len(sealed) <= batch_bytes or batch.record_count == 1
        read.setdefault(batch.partition.partition, []).extend(
            (record.key, record.value, [tuple(each) for each in record.headers]) for record in records
        )
    expected: dict[int, list[tuple[object, ...]]] = {}
    for key, value, header_list, partition in written:
        expected.setdefault(partition, []).append((key, value, header_list or []))
    assert read == expected


def test_a_batch_is_filled_as_far_as_it_may_be() -> None:
    written: list[Row] = [(None, b"v" * 90, None, 0)] * 1000

    batches = encode_rows(written, ProducerOptions(batch_bytes=10_000))

    sizes = [len(batch.batch) for batch in batches]
    assert max(sizes) <= 10_000
    assert min(sizes[:-1]) > 10_000 - 2 * 100


def test_columns_that_are_slices_or_text_are_read_where_they_are() -> None:
    text = pa.array(["skipped", "a", None, "", "skipped"])[1:4]
    listed = pa.array([[("s", b"s")], [("h", b"1")], None, [], [("s", b"s")]], HEADERS)[1:4]
    records = Records.of(key=text, value=text, headers=listed)

    (batch,) = encode(records, np.zeros(3, np.intp), partitions(1), ProducerOptions(), timestamp=NOW_MS)

    sealed = batch.seal(ANONYMOUS, NO_SEQUENCE, transactional=False)
    read = [(each.key, each.value, len(each.headers)) for each in iterate_records(sealed, max_decompressed_bytes=1000)]
    assert read == [(b"a", b"a", 1), (None, None, 0), (b"", b"", 0)]


def test_without_keys_headers_or_rows() -> None:
    records = Records.of(key=None, value=pa.array([b"v"], pa.binary()), headers=None)
    (batch,) = encode(records, np.zeros(1, np.intp), partitions(1), ProducerOptions(), timestamp=NOW_MS)
    (record,) = iterate_records(batch.seal(ANONYMOUS, NO_SEQUENCE, transactional=False), max_decompressed_bytes=1000)
    assert (record.key, record.value) == (None, b"v")

    nothing = Records.of(key=None, value=pa.array([], pa.binary()), headers=None)
    assert list(encode(nothing, np.empty(0, np.intp), partitions(1), ProducerOptions(), timestamp=NOW_MS)) == []


def test_a_header_without_a_name_is_refused() -> None:
    with pytest.raises(KafkaError, match="without a key"):
        Records.of(key=None, value=pa.array([b"v"], pa.binary()), headers=pa.array([[(None, b"1")]], HEADERS))


@given(keys=st.lists(st.binary(max_size=20) | st.integers(0, 300).map(Filler), max_size=80))
def test_murmur2_of_a_column_is_murmur2_of_each_key(keys: list[bytes]) -> None:
    column = pa.array([b"skipped", *keys], pa.binary())[1:]

    assert murmur2_of(column).tolist() == [murmur2(key) for key in keys]
