"""Decoding to Arrow against the reader that takes record by record: the same rows or the same error, whatever the
batches are, and whatever the bytes inside them say."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.fetching import iterate_batches
from tailrace.client.ranges import FetchedBatches
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.spark.arrow.decode import COLUMN_NAMES, Columns, Decoder, arrow_schema
from tailrace.wire.markers import Marker, build_marker
from tailrace.wire.payload import encode_payload
from tailrace.wire.records import (
    Compression,
    Record,
    TimestampType,
    assemble_batch,
    build_batch,
    iterate_records,
    read_header,
    set_base_offset,
)

PARTITION = TopicPartition("orders", 3)
DECOMPRESSED_BYTES_MAX = 1 << 20
PRODUCER_IDS = (7, 8)
# In milliseconds: as microseconds it fits into 64 bits.
TIMESTAMP_MAX = (2**63 - 1) // 1000

few_bytes = st.none() | st.binary(max_size=5)
some_bytes = few_bytes | st.integers(0, 20_000).map(bytes)
ordinary_headers = st.lists(st.tuples(st.text(max_size=5), few_bytes), max_size=4)
# With a name that is not UTF-8, and more of them than are usual.
odd_headers = st.just([("\udcff", b"")]) | st.just([("a", b"")] * 40)
timestamps = st.integers(1_700_000_000_000, 1_700_000_100_000) | st.integers(-(2**52), 2**52) | st.just(-1)


class Log(NamedTuple):
    start: int
    end: int
    batches: bytes
    aborted: tuple[tuple[int, int], ...]

    def fetched(self, position: int, cut_bytes: int = 0) -> FetchedBatches:
        records = memoryview(self.batches)[: len(self.batches) - cut_bytes]
        return FetchedBatches(position, self.end, records, self.aborted, self.start, self.end, self.end)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    start = offset = draw(st.integers(0, 2**40))
    headers = draw(st.just(st.just([])) | st.just(ordinary_headers) | st.just(ordinary_headers | odd_headers))
    written, aborted = b"", []
    open_since: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 6))):
        producer_id = draw(st.sampled_from(PRODUCER_IDS))
        if producer_id in open_since and draw(st.booleans()):
            is_commit = draw(st.booleans())
            stamped = bytearray(
                build_marker(Marker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0)
            )
            set_base_offset(stamped, 0, offset)
            written += stamped
            first_offset = open_since.pop(producer_id)
            if not is_commit:
                aborted.append((first_offset, producer_id))
            offset += 1
            continue
        is_transactional = draw(st.booleans())
        if is_transactional:
            open_since.setdefault(producer_id, offset)
        batch, offset = draw(batches(offset, producer_id if is_transactional else -1, headers))
        written += batch
    return Log(start, offset, written, tuple(sorted(aborted)))


@st.composite
def batches(
    draw: st.DrawFn, offset: int, producer_id: int, headers: st.SearchStrategy[list[tuple[str, bytes | None]]]
) -> tuple[bytes, int]:
    """A batch, and the offset behind it. There are gaps where compaction was, and empty batches."""
    base_offset = offset
    records = []
    for _ in range(draw(st.integers(0, 6))):
        offset += draw(st.sampled_from((0, 0, 0, 1, 200, 20_000)))
        records.append(Record(offset, draw(timestamps), draw(some_bytes), draw(some_bytes), tuple(draw(headers))))
        offset += 1
    offset = max(offset, base_offset + 1) + draw(st.sampled_from((0, 0, 5)))
    batch = build_batch(
        records,
        base_offset=base_offset,
        compression=draw(st.sampled_from(Compression)),
        timestamp_type=draw(st.sampled_from(TimestampType)),
        last_offset_delta=offset - 1 - base_offset,
        producer_id=producer_id,
        transactional=producer_id >= 0,
    )
    return batch, offset


def expected_rows(fetched: FetchedBatches, start: int, end: int) -> Iterator[dict[str, object]]:
    position = max(start, fetched.position)
    batches = iterate_batches(
        fetched.records, PARTITION, position, fetched.aborted, high_watermark=fetched.high_watermark
    )
    for at, header, is_visible in batches:
        if header.base_offset >= end:
            return
        if is_visible:
            batch = fetched.records[at : at + header.size_bytes]
            records = list(iterate_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX))
            if any(abs(record.timestamp) > TIMESTAMP_MAX for record in records):
                raise KafkaError(ErrorCode.INVALID_TIMESTAMP)
            for record in records:
                if position <= record.offset < end:
                    yield expected_row(record, header.timestamp_type)
        position = header.next_offset


def expected_row(record: Record, timestamp_type: TimestampType) -> dict[str, object]:
    headers = [
        {"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for name, value in record.headers
    ]
    return {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": int(timestamp_type),
        "headers": headers or None,
    }


def decoded_rows(
    fetched: FetchedBatches, start: int, end: int, columns: Columns, **limits: int
) -> Iterator[dict[str, object]]:
    decoder = Decoder(PARTITION, start, end, columns, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX, **limits)
    for batch in decoder.decode(fetched):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns))
        assert 0 < batch.num_rows <= limits.get("rows_max", 10_000)
        # As numbers, for Python's datetime ends with the year 9999.
        arrays = [column.cast("int64") if pa.types.is_timestamp(column.type) else column for column in batch.columns]
        yield from pa.RecordBatch.from_arrays(arrays, list(columns.names)).to_pylist()


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_the_same_rows_as_record_by_record(log: Log, data: st.DataObject):
    start = log.start + data.draw(st.sampled_from((0, 0, 2, 7)))
    end = log.end - data.draw(st.sampled_from((-1, 0, 0, 3)))
    fetched = log.fetched(start, cut_bytes=data.draw(st.sampled_from((0, 0, 3, 60))))
    names = data.draw(st.just(COLUMN_NAMES) | st.permutations(COLUMN_NAMES).map(lambda names: tuple(names[:3])))
    limits = {
        "rows_max": data.draw(st.sampled_from((10_000, 1, 3))),
        "bytes_max": data.draw(st.sampled_from((1 << 20, 1, 500))),
    }
    found = list(decoded_rows(fetched, start, end, Columns(names), **limits))
    assert found == [{name: row[name] for name in names} for row in expected_rows(fetched, start, end)]


@given(logs(), st.data())
@settings(max_examples=100, deadline=None)
def test_changed_bytes_are_never_taken_for_records(log: Log, data: st.DataObject):
    changed = bytearray(log.batches)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    fetched = log._replace(batches=bytes(changed)).fetched(log.start)
    found = outcome(decoded_rows(fetched, log.start, log.end, Columns()))
    assert found == outcome(expected_rows(fetched, log.start, log.end))


any_timestamps = st.integers(-(2**63), 2**63 - 1) | st.sampled_from((-(2**63), 2**63 - 1))


@st.composite
def lying_payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """And how many records they claim to hold."""
    records = [
        Record(
            offset, draw(timestamps | any_timestamps), draw(few_bytes), draw(few_bytes), tuple(draw(ordinary_headers))
        )
        for offset in range(draw(st.integers(1, 4)))
    ]
    payload = bytearray(encode_payload(records, base_offset=0, base_timestamp=0))
    for _ in range(draw(st.integers(0, 3))):
        payload[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
    return bytes(payload), draw(st.just(len(records)) | st.integers(-1, 5))


@given(lying_payloads() | st.tuples(st.binary(max_size=60), st.integers(-1, 5)), st.integers(0, 5))
@settings(max_examples=400, deadline=None)
def test_a_payload_that_lies_under_a_right_checksum(claim: tuple[bytes, int], last_offset_delta: int):
    payload, count = claim
    header = read_header(build_batch([], last_offset_delta=last_offset_delta))
    header = header._replace(record_count=count, base_timestamp=5)
    batch = bytes(assemble_batch(header, payload))
    fetched = FetchedBatches(0, last_offset_delta + 1, memoryview(batch), (), 0, 9, 9)
    assert outcome(decoded_rows(fetched, 0, 9, Columns())) == outcome(expected_rows(fetched, 0, 9))


def outcome(rows: Iterator[dict[str, object]]) -> object:
    try:
        return list(rows)
    except KafkaError as error:
        return error.code, error.message if error.code is not ErrorCode.INVALID_TIMESTAMP else ""
