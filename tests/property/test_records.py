"""Any records, any codec: what is built is read back; and no bytes at all make the reader fail in another way than
with KafkaError."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model.errors import KafkaError
from tailrace.wire.payload import MANY_HEADERS, Numbering, encode_payload, iterate_payload, scan_keyed
from tailrace.wire.records import (
    Compression,
    Record,
    TimestampType,
    build_batch,
    crc_is_valid,
    iterate_headers,
    iterate_records,
)

optional_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), optional_bytes), max_size=4).map(tuple)
timestamps = st.integers(-(2**62), 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[Record]]:
    base_offset = draw(st.integers(0, 2**50))
    offset = base_offset
    records = []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.integers(0, 2**20))
        records.append(
            Record(offset, draw(timestamps), draw(optional_bytes), draw(optional_bytes), draw(headers)),
        )
        offset += 1
    return base_offset, records


@given(batches(), st.sampled_from(Compression), st.sampled_from(TimestampType))
@settings(max_examples=200, deadline=None)
def test_what_is_built_is_read_back(batch: tuple[int, list[Record]], codec: Compression, kind: TimestampType):
    base_offset, records = batch
    built = build_batch(records, base_offset=base_offset, compression=codec, timestamp_type=kind)
    ((position, header),) = iterate_headers(built)
    assert position == 0
    assert crc_is_valid(built, 0, header)
    assert header.record_count == len(records)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp for record in records)
    expected = records
    if kind is TimestampType.LOG_APPEND_TIME:
        expected = [record._replace(timestamp=header.max_timestamp) for record in records]
    assert list(iterate_records(built, max_decompressed_bytes=1 << 20)) == expected


@given(batches(), st.data())
@settings(max_examples=200, deadline=None)
def test_changed_bytes_raise_nothing_but_kafka_errors(batch: tuple[int, list[Record]], data: st.DataObject):
    base_offset, records = batch
    built = bytearray(
        build_batch(records, base_offset=base_offset, compression=data.draw(st.sampled_from(Compression)))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        built[data.draw(st.integers(0, len(built) - 1))] = data.draw(st.integers(0, 255))
    try:
        for position, header in iterate_headers(built):
            for record in iterate_records(
                memoryview(built)[position : position + header.size_bytes], max_decompressed_bytes=1 << 16
            ):
                # Whatever came out can be written again.
                assert build_batch([record], base_offset=record.offset)
    except KafkaError:
        pass


@given(st.binary(max_size=300), st.integers(-1, 40))
@settings(max_examples=400, deadline=None)
def test_any_payload_is_read_or_refused(payload: bytes, count: int):
    numbering = Numbering(base_offset=0, last_offset_delta=2**31 - 1, base_timestamp=0, append_time=None)
    try:
        records = list(iterate_payload(payload, count, numbering))
    except KafkaError as error:
        with pytest.raises(KafkaError, match=re.escape(error.message)):
            list(iterate_payload(payload, count, numbering, only_checks=True))
        return
    assert len(records) == max(count, 0)
    checked = [
        each for each in iterate_payload(payload, count, numbering, only_checks=True) if each is not MANY_HEADERS
    ]
    assert checked == [record._replace(headers=()) for record in records]


@st.composite
def keyed_records(draw: st.DrawFn) -> list[Record]:
    """As they come to compacted topics, of lengths that take one, two and three bytes."""
    bodies = st.binary(max_size=20) | st.sampled_from((60, 70, 9_000, 20_000)).map(lambda size: b"v" * size)
    times = st.integers(-1, 2**60) | st.integers(1_700_000_000_000, 1_700_000_100_000)
    count = draw(st.sampled_from((1, 2, 5, 66)))
    drawn = [(draw(times), draw(bodies), draw(st.none() | bodies), draw(headers)) for _ in range(min(count, 5))]
    return [Record(offset, *drawn[offset % len(drawn)]) for offset in range(count)]


@given(keyed_records(), st.data())
@settings(max_examples=150, deadline=None)
def test_what_a_scan_says_is_what_reading_says(records: list[Record], data: st.DataObject):
    base_timestamp = records[0].timestamp
    payload = bytearray(encode_payload(records, base_offset=0, base_timestamp=base_timestamp))
    numbering = Numbering(0, len(records) - 1, base_timestamp, None)
    half = data.draw(st.integers(0, len(records)))

    def scan() -> tuple[int, int] | None:
        least, largest, position = 1 << 63, -(1 << 63), 0
        for deltas in (range(half), range(half, len(records))):
            scanned = scan_keyed(bytes(payload), position, deltas)
            if scanned is None:
                return None
            position = scanned[0]
            least, largest = min(least, scanned[1]), max(largest, scanned[2])
        return (base_timestamp + least, base_timestamp + largest) if position == len(payload) else None

    times = [record.timestamp for record in records]
    assert scan() == (min(times), max(times))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del payload[data.draw(st.integers(0, len(payload))) :]
    said = scan()
    # It may say nothing, and nothing but the truth; that a time has 64 bits shows by the topic's bounds.
    if said is not None and -(1 << 63) <= said[0] <= said[1] < 1 << 63:
        read = list(iterate_payload(bytes(payload), len(records), numbering))
        assert said == (min(record.timestamp for record in read), max(record.timestamp for record in read))
        assert [record.offset for record in read] == list(range(len(records)))
        assert all(record.key is not None for record in read)
