"""Each kind of batch that a log must refuse, and what it does to those it takes."""

from collections.abc import Callable

import pytest

from tailrace.log.validation import InvalidRecordsError, Origin, ValidatedBatches, validate_batches
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.compression import compress
from tailrace.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    TimestampType,
    assemble_batch,
    build_batch,
    crc_is_valid,
    iterate_records,
    read_header,
)

NOW_MS = 1_800_000_000_000
RECORDS = [(index, NOW_MS + index, b"k%d" % index, b"v" * 40, ()) for index in range(3)]
PLAIN = build_batch(RECORDS)


def validate(
    batch: bytes | bytearray, config: TopicConfig | None = None, origin: Origin = Origin.CLIENT, **options: int
) -> ValidatedBatches:
    return validate_batches(
        memoryview(bytearray(batch)), config or TopicConfig(), now_ms=NOW_MS, origin=origin, **options
    )


def refusal(batch: bytes | bytearray, config: TopicConfig | None = None, origin: Origin = Origin.CLIENT) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        validate(batch, config, origin)
    # Problem, cause and remedy do not fit into a few words.
    assert len(raised.value.message) > 30
    return raised.value


def changed(change: Callable[[BatchHeader], BatchHeader], batch: bytes = PLAIN) -> bytearray:
    """The batch with another header and a CRC that matches it."""
    return assemble_batch(change(read_header(batch)), batch[HEADER_SIZE:])


def test_a_good_batch_passes_untouched() -> None:
    validated = validate(PLAIN)
    assert bytes(validated.view) == PLAIN
    assert validated.headers == [read_header(PLAIN)]
    assert validated.max_timestamp == NOW_MS + 2
    assert validated.record_count == 3
    assert validated.log_append_time_ms == -1


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_passes_as_it_is(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    assert bytes(validate(batch).view) == batch


# No batch, or several


def test_no_batch_is_refused() -> None:
    assert refusal(b"").code is ErrorCode.INVALID_RECORD


def test_two_batches_are_refused() -> None:
    assert refusal(PLAIN + PLAIN).code is ErrorCode.INVALID_RECORD


def test_bytes_behind_the_batch_are_refused() -> None:
    assert refusal(PLAIN + b"\x00").code is ErrorCode.INVALID_RECORD


# Damage


@pytest.mark.parametrize("position", [17, 21, 30, HEADER_SIZE + 1, len(PLAIN) - 1])
def test_a_flipped_bit_is_found_by_the_crc(position: int) -> None:
    batch = bytearray(PLAIN)
    batch[position] ^= 1
    assert refusal(batch).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [1, 11, 16, 17, HEADER_SIZE - 1, HEADER_SIZE, len(PLAIN) - 1])
def test_a_batch_that_is_cut_short_is_corrupt(size: int) -> None:
    assert refusal(PLAIN[:size]).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_length_that_lies_is_corrupt(length: int) -> None:
    batch = bytearray(PLAIN)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert refusal(batch).code is ErrorCode.CORRUPT_MESSAGE


def test_a_length_below_the_real_one_makes_the_rest_a_second_batch() -> None:
    batch = bytearray(PLAIN)
    batch[8:12] = (len(PLAIN) - 12 - 5).to_bytes(4, "big")
    assert refusal(batch).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"),
    [(0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)],
)
def test_wrong_magic_is_refused(magic: int, code: ErrorCode) -> None:
    batch = bytearray(PLAIN)
    batch[16] = magic
    assert refusal(batch).code is code


# Headers that do not agree with themselves, or that only a broker may write


@pytest.mark.parametrize(
    "lie",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 2},
        {"record_count": 4},
        {"last_offset_delta": 0},
        {"last_offset_delta": -1},
        {"record_count": 0, "last_offset_delta": -1},
        {"base_offset": 1},
        {"base_offset": -1},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": -2, "base_sequence": 0},
        {"attributes": 0x20},
        {"attributes": 0x30, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0},
        {"attributes": 0x10},
    ],
    ids=str,
)
def test_headers_that_lie_are_invalid(lie: dict[str, int]) -> None:
    assert refusal(changed(lambda header: header._replace(**lie))).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_unsupported(codec: int) -> None:
    batch = changed(lambda header: header._replace(attributes=codec))
    assert refusal(batch).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_max_message_bytes_is_the_size_of_the_whole_batch() -> None:
    assert refusal(PLAIN, TopicConfig(max_message_bytes=len(PLAIN) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE
    validate(PLAIN, TopicConfig(max_message_bytes=len(PLAIN)))


# Timestamps


@pytest.mark.parametrize(
    ("timestamp", "is_taken"),
    [
        (NOW_MS - 1000, True),
        (NOW_MS - 1001, False),
        (NOW_MS + 500, True),
        (NOW_MS + 501, False),
        (-1, True),
    ],
)
def test_timestamps_have_bounds(timestamp: int, is_taken: bool) -> None:
    config = TopicConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    batch = build_batch([(0, timestamp, b"k", b"v", ())])
    if is_taken:
        validate(batch, config)
    else:
        assert refusal(batch, config).code is ErrorCode.INVALID_TIMESTAMP


def test_the_first_record_may_not_be_too_old_either() -> None:
    config = TopicConfig(message_timestamp_before_max_ms=1000)
    batch = build_batch([(0, NOW_MS - 5000, b"k", b"v", ()), (1, NOW_MS, b"k", b"v", ())])
    assert refusal(batch, config).code is ErrorCode.INVALID_TIMESTAMP


def test_which_clock_timestamps_come_from_is_the_topics_to_say() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    validated = validate(batch)
    (header,) = validated.headers
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert crc_is_valid(validated.view, 0, header)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_log_append_time_is_a_header_field(codec: Compression) -> None:
    config = TopicConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    validated = validate(build_batch(RECORDS, compression=codec), config)
    (header,) = validated.headers
    assert validated.log_append_time_ms == validated.max_timestamp == header.max_timestamp == NOW_MS
    assert crc_is_valid(validated.view, 0, header)
    records = list(iterate_records(validated.view, max_decompressed_bytes=10_000))
    assert [record.timestamp for record in records] == [NOW_MS] * 3


def test_log_append_time_leaves_a_read_only_view_alone() -> None:
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    validated = validate_batches(memoryview(PLAIN), config, now_ms=NOW_MS, origin=Origin.CLIENT)
    assert validated.headers[0].max_timestamp == NOW_MS
    assert read_header(PLAIN).max_timestamp == NOW_MS + 2


# Re-compression


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_batches_get_the_codec_of_the_topic(source: Compression, target: str) -> None:
    batch = build_batch(RECORDS, compression=source, producer_id=7, producer_epoch=1, base_sequence=9)
    validated = validate(batch, TopicConfig(compression_type=target))
    (header,) = validated.headers
    assert header.compression is (Compression.NONE if target == "uncompressed" else Compression[target.upper()])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 9)
    assert header.size_bytes == len(validated.view)
    assert crc_is_valid(validated.view, 0, header)
    assert [tuple(r) for r in iterate_records(validated.view, max_decompressed_bytes=10_000)] == RECORDS


def test_a_batch_may_become_too_large_by_unpacking() -> None:
    batch = build_batch([(0, NOW_MS, b"k", b"v" * 10_000, ())], compression=Compression.ZSTD)
    config = TopicConfig(compression_type="uncompressed", max_message_bytes=5_000)
    assert refusal(batch, config).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_decompression_bomb_is_refused(codec: Compression) -> None:
    payload = compress(codec, bytes(2_000_000))
    bomb = assemble_batch(read_header(PLAIN)._replace(attributes=codec), payload)
    for config in (TopicConfig(compression_type="uncompressed"), TopicConfig(cleanup_policy=frozenset({"compact"}))):
        with pytest.raises(KafkaError) as raised:
            validate(bomb, config, max_decompressed_bytes=1_000_000)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


# Deep validation

DEEP = TopicConfig(record_validation_deep=True)
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


@pytest.mark.parametrize("codec", list(Compression))
def test_compacted_topics_need_keys_and_say_which_records_lack_one(codec: Compression) -> None:
    records = [(0, NOW_MS, b"k", b"v", ()), (1, NOW_MS, None, b"v", ()), (2, NOW_MS, None, b"v", ())]
    error = refusal(build_batch(records, compression=codec), COMPACTED)
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [1, 2]
    assert all("key" in problem for _, problem in error.record_errors)
    validate(build_batch(records, compression=codec), DEEP)


def test_the_list_of_refused_records_is_bounded() -> None:
    records = [(index, NOW_MS, None, b"v", ()) for index in range(5_000)]
    error = refusal(build_batch(records), COMPACTED)
    assert isinstance(error, InvalidRecordsError)
    assert len(error.record_errors) == 100


def test_a_lie_inside_the_payload_is_found_only_by_deep_validation() -> None:
    two_records = build_batch(RECORDS[:2])
    batch = assemble_batch(read_header(PLAIN), two_records[HEADER_SIZE:])
    validate(batch)
    assert refusal(batch, DEEP).code is ErrorCode.INVALID_RECORD


def test_offset_deltas_must_count_up() -> None:
    gapped = build_batch([RECORDS[0], RECORDS[2]])
    batch = changed(lambda header: header._replace(record_count=2, last_offset_delta=1), gapped)
    validate(batch)
    assert refusal(batch, DEEP).code is ErrorCode.INVALID_RECORD


def test_deep_validation_sees_each_timestamp() -> None:
    config = TopicConfig(record_validation_deep=True, message_timestamp_before_max_ms=1000)
    records = [(0, NOW_MS, b"k", b"v", ()), (1, NOW_MS - 9999, b"k", b"v", ()), (2, NOW_MS, b"k", b"v", ())]
    error = refusal(build_batch(records), config)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordsError)
    assert [index for index, _ in error.record_errors] == [1]


def test_deep_validation_puts_the_max_timestamp_right() -> None:
    batch = changed(lambda header: header._replace(max_timestamp=NOW_MS))
    validated = validate(batch, DEEP)
    assert validated.max_timestamp == validated.headers[0].max_timestamp == NOW_MS + 2
    assert crc_is_valid(validated.view, 0, validated.headers[0])


# Other origins


def test_a_coordinator_may_write_control_batches_and_ids_without_sequences() -> None:
    marker = build_batch([(0, NOW_MS, b"\0\0\0\1", b"\0" * 6, ())], control=True, transactional=True, producer_id=3)
    assert validate(marker, COMPACTED, Origin.COORDINATOR).headers[0].is_control
    assert validate(marker, TopicConfig(compression_type="gzip"), Origin.COORDINATOR).view == marker
    assert validate(marker, TopicConfig(max_message_bytes=HEADER_SIZE), Origin.COORDINATOR).view == marker
    keyless = build_batch([(0, NOW_MS, None, b"v", ())])
    assert refusal(keyless, COMPACTED, Origin.COORDINATOR).code is ErrorCode.INVALID_RECORD
    assert refusal(PLAIN + PLAIN, origin=Origin.COORDINATOR).code is ErrorCode.INVALID_RECORD


def numbered(*offsets: int) -> bytes:
    return b"".join(build_batch([(o, NOW_MS + o, b"k", b"v", ())], base_offset=o, leader_epoch=4) for o in offsets)


def test_replicated_batches_keep_their_offsets_and_lose_a_partial_last_one() -> None:
    whole = numbered(10, 11, 15)
    for cut in (0, 5, 20, 40):
        validated = validate(whole + numbered(16)[:cut], origin=Origin.REPLICATION)
        assert validated.view == whole
        assert [header.base_offset for header in validated.headers] == [10, 11, 15]
        assert validated.max_timestamp == NOW_MS + 15
        assert validated.record_count == 3


def test_replicated_batches_are_not_judged_by_the_topic() -> None:
    config = TopicConfig(max_message_bytes=10, message_timestamp_after_max_ms=0, cleanup_policy=frozenset({"compact"}))
    validate(numbered(10), config, Origin.REPLICATION)
    assert refusal(numbered(10), config, Origin.RAFT).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("origin", [Origin.REPLICATION, Origin.RAFT, Origin.COORDINATOR])
def test_no_origin_gets_a_bad_crc_past(origin: Origin) -> None:
    batch = bytearray(numbered(0))
    batch[-1] ^= 1
    assert refusal(batch, origin=origin).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("offsets", [(10, 10), (11, 10)])
def test_replicated_offsets_only_grow(offsets: tuple[int, ...]) -> None:
    assert refusal(numbered(*offsets), origin=Origin.REPLICATION).code is ErrorCode.CORRUPT_MESSAGE


def test_an_empty_replicated_fetch_is_no_error() -> None:
    assert validate(b"", origin=Origin.REPLICATION).headers == []
