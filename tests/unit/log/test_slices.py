"""Checking a batch in steps: the same verdicts and bytes as at once, and no step that takes long."""

import random
from typing import Any

import pytest

from tailrace.log.log import Log
from tailrace.log.plain_batches import RECORDS_PER_SCAN
from tailrace.log.validation import (
    RECORDS_PER_STEP,
    SMALL_BYTES,
    SMALL_RECORDS,
    CheckedBatch,
    InvalidRecordsError,
    Steps,
    check_client_batch,
    needs_slices,
)
from tailrace.model.config import TopicConfig
from tailrace.model.errors import KafkaError
from tailrace.wire.records import HEADER_SIZE, Compression, assemble_batch, build_batch, read_header
from tests.unit.log.storage import World

NOW_MS = 10_000
COMPACT = TopicConfig(cleanup_policy=frozenset({"compact"}))
CONFIGS = [
    COMPACT,
    TopicConfig(),
    TopicConfig(record_validation_deep=True, message_timestamp_type="LogAppendTime"),
    TopicConfig(record_validation_deep=True, message_timestamp_before_max_ms=1000),
    TopicConfig(compression_type="gzip", message_timestamp_after_max_ms=100),
    TopicConfig(compression_type="uncompressed", max_message_bytes=3000),
    TopicConfig(compression_type="zstd", cleanup_policy=frozenset({"compact"})),
]


def take(steps: Steps[CheckedBatch]) -> tuple[CheckedBatch, list[Any]]:
    taken: list[Any] = []
    try:
        work = next(steps)
        while True:
            taken.append(work)
            work = steps.send(b"" if work is None else work())
    except StopIteration as done:
        return done.value, taken


def random_batch(chance: random.Random) -> bytes:
    """Good ones, and ones with a lie in the header, in the records or in the bytes."""
    count = chance.choice([1, 3, 50, 900])
    base = chance.choice([NOW_MS] * 4 + [NOW_MS - 5000, NOW_MS + 5000])
    has_key = chance.random() < 0.7
    headers = tuple(("h", None) for _ in range(chance.choice([0, 0, 1, 20])))
    records = [
        (index, base + chance.randrange(3), b"k" if has_key or chance.random() < 0.99 else None, b"v" * 9, headers)
        for index in range(count)
    ]
    batch = bytearray(build_batch(records, compression=chance.choice(list(Compression))))
    header, payload = read_header(batch), bytearray(batch[HEADER_SIZE:])
    match chance.randrange(10):
        case 0:
            payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(8)
        case 1:
            header = header._replace(record_count=count + 1, last_offset_delta=count)
        case 2:
            header = header._replace(max_timestamp=header.max_timestamp + chance.choice([1, 1 << 40]))
        case 3:
            header = header._replace(attributes=header.attributes ^ chance.choice([1, 2, 4, 8]))
        case 4:
            batch[chance.randrange(len(batch))] ^= 1
            return bytes(batch)
        case 5:
            payload = payload[:-1]
    return bytes(assemble_batch(header, payload))


def outcome(log: Log, batch: bytes, *, in_steps: bool) -> object:
    view = memoryview(bytearray(batch))
    try:
        checked = take(log.check(view))[0] if in_steps else None
        return log.append_as_leader(view, leader_epoch=0, checked=checked)
    except InvalidRecordsError as error:
        return error.code, error.message, error.record_errors
    except KafkaError as error:
        return error.code, error.message


@pytest.mark.parametrize("config", CONFIGS)
def test_both_ways_say_and_write_the_same(config: TopicConfig):
    chance = random.Random(11)
    at_once, in_steps = World(config).open(), World(config).open()
    refused = 0
    for _ in range(120):
        batch = random_batch(chance)
        expected = outcome(at_once, batch, in_steps=False)
        assert outcome(in_steps, batch, in_steps=True) == expected
        refused += isinstance(expected, tuple) and isinstance(expected[0], int) and len(expected) < 4
    assert 0 < refused < 120
    end = at_once.log_end_offset
    first, second = (log.read(0, 1 << 30, end_offset=end) for log in (at_once, in_steps))
    assert first is not None
    assert second is not None
    assert first.read() == second.read()


def test_what_was_checked_under_other_settings_is_checked_again():
    log = World(TopicConfig(record_validation_deep=True)).open()
    view = memoryview(bytearray(build_batch([(0, NOW_MS, None, b"v", ())])))
    checked, _ = take(log.check(view))
    log.reconfigure(COMPACT)
    with pytest.raises(InvalidRecordsError):
        log.append_as_leader(view, leader_epoch=0, checked=checked)


def test_log_append_time_is_that_of_the_append():
    world = World(TopicConfig(record_validation_deep=True, message_timestamp_type="LogAppendTime"))
    log = world.open()
    view = memoryview(bytearray(build_batch([(0, NOW_MS, b"k", b"v", ())])))
    checked, _ = take(log.check(view))
    world.clock.advance_ms(500)
    assert log.append_as_leader(view, leader_epoch=0, checked=checked).log_append_time_ms == NOW_MS + 500


def test_records_are_read_a_few_hundred_a_step():
    batch = build_batch([(index, NOW_MS, b"k", b"v", ()) for index in range(10 * RECORDS_PER_SCAN + 1)])
    _, taken = take(check_client_batch(memoryview(batch), COMPACT, now_ms=NOW_MS))
    assert taken.count(None) == 10
    # Without keys they are not plain, where they are allowed.
    batch = build_batch([(index, NOW_MS, None, b"v", ()) for index in range(10 * RECORDS_PER_STEP + 1)])
    deep = TopicConfig(record_validation_deep=True)
    _, taken = take(check_client_batch(memoryview(batch), deep, now_ms=NOW_MS))
    assert taken.count(None) == 10


@pytest.mark.parametrize(("records", "headers"), [(1, 40_000), (40, 1000), (4000, 10)])
def test_headers_count_as_work_too(records: int, headers: int):
    many = (("", None),) * headers
    batch = build_batch([(index, NOW_MS, b"k", b"v", many) for index in range(records)])
    _, taken = take(check_client_batch(memoryview(batch), COMPACT, now_ms=NOW_MS))
    # Eight headers are read at once and weigh as much as two records.
    weight = records + records * (headers // 8) * 2
    assert weight // (RECORDS_PER_STEP + 2) <= taken.count(None) <= weight // RECORDS_PER_STEP


def test_codecs_are_handed_out_as_work():
    config = TopicConfig(cleanup_policy=frozenset({"compact"}), compression_type="gzip")
    batch = build_batch([(0, NOW_MS, b"k", b"v", ())], compression=Compression.ZSTD)
    checked, taken = take(check_client_batch(memoryview(batch), config, now_ms=NOW_MS))
    assert len(taken) == 2  # To unpack, once for both purposes, and to pack.
    assert None not in taken
    assert checked.header.compression is Compression.GZIP


def sized(count: int, value: bytes = b"v", compression: Compression = Compression.NONE) -> memoryview:
    return memoryview(build_batch([(i, NOW_MS, b"k", value, ()) for i in range(count)], compression=compression))


@pytest.mark.parametrize(
    ("batch", "config", "expected"),
    [
        (sized(1), COMPACT, False),
        (sized(SMALL_RECORDS), COMPACT, False),
        (sized(SMALL_RECORDS + 1), COMPACT, True),
        (sized(1, bytes(SMALL_BYTES)), COMPACT, True),
        (sized(1, bytes(SMALL_BYTES)), TopicConfig(), False),
        (sized(1, bytes(SMALL_BYTES)), TopicConfig(record_validation_deep=True), True),
        (sized(1, bytes(SMALL_BYTES)), TopicConfig(compression_type="gzip"), True),
        (sized(1, bytes(SMALL_BYTES)), TopicConfig(compression_type="uncompressed"), False),
        # Small on the wire, but not once it is unpacked.
        (sized(1, bytes(100), Compression.ZSTD), COMPACT, False),
        (sized(1, bytes(SMALL_BYTES), Compression.ZSTD), COMPACT, True),
        (sized(1, bytes(SMALL_BYTES), Compression.ZSTD), TopicConfig(), False),
        (sized(1, bytes(SMALL_BYTES), Compression.ZSTD), TopicConfig(compression_type="zstd"), False),
        # Refused by the header alone, whatever is inside.
        (sized(1, bytes(SMALL_BYTES)), TopicConfig(compression_type="gzip", max_message_bytes=5000), False),
        (memoryview(b""), COMPACT, False),
        # Each record is named in the error.
        (sized(SMALL_RECORDS + 1), TopicConfig(message_timestamp_after_max_ms=-1), True),
    ],
)
def test_what_is_large_and_has_to_be_opened_needs_slices(batch: memoryview, config: TopicConfig, expected: bool):
    assert needs_slices(batch, config, now_ms=NOW_MS) is expected
