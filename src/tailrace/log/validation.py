"""What a log lets in: the bytes of a Produce (or of a replica, or of Raft) become batches that may be written.

Owns every rule about a batch in isolation; what a batch means next to earlier ones is `producers`' and `log`'s.

    rule                                                        client  coordinator  replication  raft
    one batch, no more, no less                                    x
    magic 2, a length that fits, a CRC that matches                x         x            x         x
    base offset 0, counts that agree, no control batch,
    a producer id only with an epoch and a sequence                x
    size <= max.message.bytes                                      x         x                      x
    timestamps within the topic's bounds, or log-append time       x         x
    the topic's codec; records deeply read where a topic asks      x         x
    offsets and epochs that only grow, a partial last batch cut off                       x         x

One batch of a client costs one header, one CRC and a dozen comparisons: no work per record. Records are read one
by one only for compacted topics (they need keys) and where `record.validation.deep` is set; lies inside the payload
(a record count, a timestamp, an offset) are found only then. Re-compression works on the block as a whole.

The rules are written once, as a generator of steps (`check_client_batch`): a step is a piece of codec work, which
releases the GIL and may run in a helper thread, or None after some hundred records, where others may have their turn.
`validate_batches` takes all the steps at once. A million tiny records take a second, so whoever has others to serve
asks `needs_slices` first, takes the steps in its own time, and writes what comes out (`settle_batch`) as long as the
topic still has the configuration that it was checked under.

Never assigns offsets, never writes, never looks at a clock. The view is patched in place where the topic asks for
log-append time, so the caller must own it.
"""

from collections.abc import Callable, Generator
from enum import Enum
from functools import partial
from struct import Struct
from typing import NamedTuple, TypeVar

from tailrace.log.plain_batches import RECORDS_PER_SCAN, scan_plain_records
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.compression import compress, decompress
from tailrace.wire.records import (
    HEADER_SIZE,
    HEADERS_AT_ONCE,
    MANY_HEADERS,
    BatchHeader,
    Compression,
    assemble_batch,
    crc_is_valid,
    iterate_unpacked,
    read_header,
    set_log_append_time,
    unpack_records,
)

# A batch may unpack to at most this much before it counts as a bomb: 100 times the default max.message.bytes.
DEFAULT_MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
# The error message of a response names this many records at most; every bad record is in `record_errors`.
MAX_ERRORS_SHOWN = 3
# One request must not make us build an error per record of a million-record batch.
MAX_RECORD_ERRORS = 100
# A batch of no more than this, unpacked, is checked at once: that takes half a millisecond at most (8 KB may be 4000
# headers), and a task with a helper thread costs as much as 200 records.
SMALL_RECORDS = 200
SMALL_BYTES = 8 * 1024
# Records between two steps, about half a millisecond; reading a few headers takes as long as reading a record.
RECORDS_PER_STEP = 400
_HEADERS_PER_RECORD = 4
# So much is copied in no time; a helper thread would take longer.
COPIED_AT_ONCE_BYTES = 128 * 1024

T = TypeVar("T")
# The checks of a batch in steps: each yields codec work, whose result it is sent, or None for a pause.
Steps = Generator[Callable[[], bytes] | None, bytes, T]

_NO_TIMESTAMP = -1
_CODEC_MASK = 0x07
_LAST_CODEC = int(Compression.ZSTD)
_LOG_APPEND_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_OVERHEAD = 12
# Attributes, base timestamp, max timestamp, record count.
_unpack_glance = Struct(">21xh4xqq14xi").unpack_from


class Origin(Enum):
    """Who asks for the append, which decides how far the batches are trusted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # our own writes to internal topics, and transaction markers
    REPLICATION = "replication"  # a leader has validated and numbered them
    RAFT = "raft"  # the metadata log, numbered by the Raft leader


class InvalidRecordsError(KafkaError):
    """Some records of a batch were refused; `record_errors` is (index in the batch, message), as KIP-467 asks."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class CheckedBatch(NamedTuple):
    """A client's batch that may be settled, as long as the topic has this very configuration."""

    view: memoryview
    header: BatchHeader
    config: TopicConfig


class ValidatedBatches(NamedTuple):
    """Batches that may be written as they stand, except for base offset and leader epoch."""

    view: memoryview
    headers: list[BatchHeader]
    max_timestamp: int
    record_count: int
    log_append_time_ms: int  # -1 where the records keep their create time


def validate_batches(
    view: memoryview,
    config: TopicConfig,
    *,
    now_ms: int,
    origin: Origin,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> ValidatedBatches:
    if origin is not Origin.CLIENT:
        return _validate_trusted(view, config, now_ms, origin, max_decompressed_bytes)
    header = _read_only_batch(view)
    _check_client_header(view, header, config)
    return _apply_topic_rules(view, header, config, now_ms, max_decompressed_bytes)


def needs_slices(view: memoryview, config: TopicConfig, *, now_ms: int) -> bool:
    """Whether the checks of a client's batch would hold the loop for long: it has to be opened, and is large."""
    size = len(view)
    if not HEADER_SIZE <= size <= config.max_message_bytes:
        return False  # It is refused by its header alone.
    attributes, base_timestamp, max_timestamp, record_count = _unpack_glance(view)
    codec = attributes & _CODEC_MASK
    is_small = size <= SMALL_BYTES and record_count <= SMALL_RECORDS
    if is_small and not codec:
        return False
    if not _must_open(attributes, base_timestamp, max_timestamp, config, now_ms):
        return False
    return not is_small or _unpacks_to_much(codec, view[HEADER_SIZE:])


def _unpacks_to_much(codec: int, payload: memoryview) -> bool:
    """A few hundred bytes of zstd may hold megabytes, so that only trying tells."""
    try:
        decompress(Compression.of(codec), payload, SMALL_BYTES)
    except KafkaError as error:
        return error.code is ErrorCode.MESSAGE_TOO_LARGE
    return False


def check_client_batch(
    view: memoryview, config: TopicConfig, *, now_ms: int, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> Steps[CheckedBatch]:
    """What `validate_batches` does for a client, step by step; `settle_batch` is the rest of it. Nobody else may
    change the view meanwhile."""
    header = _read_only_batch(view)
    _check_client_header(view, header, config)
    view, header = yield from _check_content(view, header, config, now_ms, max_decompressed_bytes)
    return CheckedBatch(view, header, config)


def check_at_once(view: memoryview, steps: Steps[CheckedBatch]) -> CheckedBatch | None:
    """What `check_client_batch` gives for a batch that `needs_slices`, if that is one step. None if it takes more."""
    attributes, _, _, record_count = _unpack_glance(view)
    if attributes & _CODEC_MASK or len(view) > COPIED_AT_ONCE_BYTES or record_count > RECORDS_PER_SCAN:
        return None
    try:
        next(steps)
    except StopIteration as done:
        checked: CheckedBatch = done.value
        return checked
    return None


def settle_batch(checked: CheckedBatch, *, now_ms: int) -> ValidatedBatches:
    """Log-append time is the time at which it is written, not that of the check."""
    return _settle(checked.view, checked.header, checked.config, now_ms)


def _read_only_batch(view: memoryview) -> BatchHeader:
    size = len(view)
    if size == 0:
        raise _invalid("The partition has no record batch; a Produce must carry exactly one. Send the records again.")
    header = read_header(view)
    batch_size = header[1] + _OVERHEAD
    if batch_size == size:
        return header
    if batch_size < size:
        raise _invalid(
            f"{size - batch_size} bytes follow the first record batch, but a Produce must carry exactly one batch "
            "per partition. Send each batch in its own request."
        )
    raise KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The record batch says that it has {batch_size} bytes but {size} came: "
        "it was cut or damaged on the way. Send it again.",
    )


def _check_client_header(view: memoryview, header: BatchHeader, config: TopicConfig) -> None:
    (
        base_offset,
        batch_length,
        _leader_epoch,
        _magic,
        _crc,
        attributes,
        last_offset_delta,
        _base_timestamp,
        _max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = header
    if base_offset != 0:
        raise _invalid(f"The base offset of a batch from a client must be 0, not {base_offset}: the broker assigns it.")
    if batch_length + _OVERHEAD > config.max_message_bytes:
        raise _too_large(batch_length + _OVERHEAD, config.max_message_bytes)
    if not crc_is_valid(view, 0, header):
        raise _corrupt_crc(header)
    if record_count < 1 or record_count != last_offset_delta + 1:
        raise _invalid(
            f"The batch says that it has {record_count} records and a last offset delta of {last_offset_delta}; "
            "there must be at least one record, and the delta must be one less than their number."
        )
    if attributes & _CODEC_MASK > _LAST_CODEC:
        Compression.of(attributes)  # raises UNSUPPORTED_COMPRESSION_TYPE
    if attributes & _CONTROL_BIT:
        raise _invalid("Clients may not write control batches; only the transaction coordinator does.")
    if producer_id >= 0:
        if base_sequence < 0 or producer_epoch < 0:
            raise _invalid(
                f"The batch of producer id {producer_id} has epoch {producer_epoch} and sequence {base_sequence}; "
                "with a producer id neither may be negative."
            )
    elif attributes & _TRANSACTIONAL_BIT:
        raise _invalid("A transactional batch needs a producer id; call InitProducerId first.")


def _apply_topic_rules(
    view: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, max_decompressed_bytes: int
) -> ValidatedBatches:
    """What the topic's settings ask of one batch: timestamps, codec, keys."""
    attributes = header[5]
    if attributes & _LOG_APPEND_BIT or _must_open(attributes, header[7], header[8], config, now_ms):
        view, header = _take_all(_check_content(view, header, config, now_ms, max_decompressed_bytes))
    return _settle(view, header, config, now_ms)


def _must_open(attributes: int, base_timestamp: int, max_timestamp: int, config: TopicConfig, now_ms: int) -> bool:
    """Whether the header alone does not tell if the topic takes the batch as it is."""
    if config.message_timestamp_type == "CreateTime" and not (
        now_ms - config.message_timestamp_before_max_ms
        <= base_timestamp
        <= max_timestamp
        <= now_ms + config.message_timestamp_after_max_ms
    ):
        return True
    if attributes & _CONTROL_BIT:
        return False
    return (
        "compact" in config.cleanup_policy
        or config.record_validation_deep
        or (config.compression_type != "producer" and _target_codec(config) != attributes & _CODEC_MASK)
    )


def _take_all(steps: Steps[T]) -> T:
    try:
        work = next(steps)
        while True:
            work = steps.send(b"" if work is None else work())
    except StopIteration as done:
        result: T = done.value
        return result


def _settle(view: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> ValidatedBatches:
    if config.message_timestamp_type == "CreateTime":
        # Past the NamedTuple's own constructor, which takes as long as all the checks of a header.
        return tuple.__new__(ValidatedBatches, (view, [header], header[8], header[12], -1))
    view = _writable(view)
    set_log_append_time(view, 0, now_ms)
    return ValidatedBatches(view, [read_header(view)], now_ms, header.record_count, now_ms)


def _check_content(
    view: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, max_decompressed_bytes: int
) -> Steps[tuple[memoryview, BatchHeader]]:
    """Everything for which a batch is opened, and the batch as the topic wants it."""
    (_, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, _) = header
    is_create_time = config.message_timestamp_type == "CreateTime"
    if is_create_time and attributes & _LOG_APPEND_BIT:
        # Which clock a timestamp comes from is the topic's to say, not the producer's.
        view, header = _assemble(header._replace(attributes=attributes & ~_LOG_APPEND_BIT), view[HEADER_SIZE:])
    earliest_ms, latest_ms = _timestamp_bounds(config, now_ms)
    is_in_time = not is_create_time or earliest_ms <= base_timestamp <= max_timestamp <= latest_ms
    is_control = bool(attributes & _CONTROL_BIT)
    is_deep = ("compact" in config.cleanup_policy or config.record_validation_deep) and not is_control
    data: bytes | None = None
    if is_deep or not is_in_time:
        unpack = partial(unpack_records, view, header, max_decompressed_bytes)
        is_copied_at_once = not attributes & _CODEC_MASK and len(view) <= COPIED_AT_ONCE_BYTES
        data = unpack() if is_copied_at_once else (yield unpack)
        largest_timestamp = yield from _check_records(header, data, config, now_ms)
        if not is_in_time:
            # Unless the header lies, an error that names the records was raised by now.
            _check_timestamp(max_timestamp, config, now_ms)
            _check_timestamp(base_timestamp, config, now_ms)
        if is_deep and is_create_time and largest_timestamp != max_timestamp:
            # A header whose max timestamp is wrong is put right, as Kafka does.
            view, header = _assemble(header._replace(max_timestamp=largest_timestamp), view[HEADER_SIZE:])
    if config.compression_type != "producer" and not is_control and header.compression != _target_codec(config):
        view, header = yield from _recompress(view, header, data, config, max_decompressed_bytes)
    return view, header


def _assemble(header: BatchHeader, payload: memoryview | bytes) -> tuple[memoryview, BatchHeader]:
    view = memoryview(assemble_batch(header, payload))
    return view, read_header(view)


def _check_timestamp(timestamp: int, config: TopicConfig, now_ms: int) -> None:
    earliest_ms, latest_ms = _timestamp_bounds(config, now_ms)
    if not (earliest_ms <= timestamp <= latest_ms or timestamp == _NO_TIMESTAMP):
        raise InvalidRecordsError(
            ErrorCode.INVALID_TIMESTAMP, _timestamp_problem(timestamp, earliest_ms, latest_ms), []
        )


def _timestamp_bounds(config: TopicConfig, now_ms: int) -> tuple[int, int]:
    return now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms


def _timestamp_problem(timestamp: int, earliest_ms: int, latest_ms: int) -> str:
    return (
        f"Timestamp {timestamp} is not within [{earliest_ms}, {latest_ms}], the topic's bounds. "
        "Check the producer's clock, or raise message.timestamp.before.max.ms / message.timestamp.after.max.ms."
    )


def _recompress(
    view: memoryview, header: BatchHeader, data: bytes | None, config: TopicConfig, max_decompressed_bytes: int
) -> Steps[tuple[memoryview, BatchHeader]]:
    """Records are the same bytes under every codec, so the block is unpacked, unless it is (`data`), and packed again
    as a whole."""
    if data is None:
        data = yield partial(decompress, header.compression, view[HEADER_SIZE:], max_decompressed_bytes)
    target = _target_codec(config)
    packed = yield partial(compress, target, data, _level(target, config))
    if HEADER_SIZE + len(packed) > config.max_message_bytes:
        raise _too_large(HEADER_SIZE + len(packed), config.max_message_bytes)
    return _assemble(header._replace(attributes=(header.attributes & ~_CODEC_MASK) | target), packed)


def _target_codec(config: TopicConfig) -> Compression:
    """For topics that do not leave it to the producer."""
    name = config.compression_type
    return Compression.NONE if name == "uncompressed" else Compression[name.upper()]


def _level(codec: Compression, config: TopicConfig) -> int | None:
    match codec:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def _check_records(header: BatchHeader, data: bytes, config: TopicConfig, now_ms: int) -> Steps[int]:
    """Reads every record; gives the largest timestamp."""
    must_have_keys = "compact" in config.cleanup_policy
    is_create_time = config.message_timestamp_type == "CreateTime"
    earliest_ms, latest_ms = _timestamp_bounds(config, now_ms)
    if is_create_time:
        scanned = yield from scan_plain_records(header, data, earliest_ms, latest_ms)
        if scanned is not None:
            return scanned
    largest_timestamp = _NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    index, left_in_step = 0, RECORDS_PER_STEP
    for record in iterate_unpacked(header, data, only_checks=True):
        if left_in_step <= 0:
            left_in_step = RECORDS_PER_STEP
            yield None
        if record is MANY_HEADERS:
            left_in_step -= HEADERS_AT_ONCE // _HEADERS_PER_RECORD
            continue
        offset, timestamp, key, _, _ = record
        if timestamp > largest_timestamp:  # noqa: PLR1730 - max() would cost a tenth of the whole loop
            largest_timestamp = timestamp
        if key is None and must_have_keys:
            errors.append((index, "A compacted topic accepts no record without a key"))
        elif offset != index:
            errors.append((index, f"Its offset delta is {offset} where {index} belongs"))
        elif is_create_time and not earliest_ms <= timestamp <= latest_ms and timestamp != _NO_TIMESTAMP:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, _timestamp_problem(timestamp, earliest_ms, latest_ms)))
        if len(errors) == MAX_RECORD_ERRORS:
            break
        index += 1
        left_in_step -= 1
    if errors:
        raise _invalid_records(code, errors)
    return largest_timestamp


def _validate_trusted(
    view: memoryview, config: TopicConfig, now_ms: int, origin: Origin, max_decompressed_bytes: int
) -> ValidatedBatches:
    if origin is Origin.COORDINATOR:
        header = _read_only_batch(view)
        # A marker is written whatever the setting: a transaction that has begun must be ended.
        if header.size_bytes > config.max_message_bytes and not header.is_control:
            raise _too_large(header.size_bytes, config.max_message_bytes)
        if not crc_is_valid(view, 0, header):
            raise _corrupt_crc(header)
        return _apply_topic_rules(view, header, config, now_ms, max_decompressed_bytes)
    return _walk_numbered(view, None if origin is Origin.REPLICATION else config.max_message_bytes)


def _walk_numbered(view: memoryview, max_message_bytes: int | None) -> ValidatedBatches:
    """Batches that a leader has numbered. A fetch may end in the middle of a batch: the rest is cut off."""
    headers: list[BatchHeader] = []
    position = record_count = 0
    max_timestamp, next_offset, leader_epoch = _NO_TIMESTAMP, -1, -1
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        size = header.size_bytes
        if size > len(view) - position:
            break
        if max_message_bytes is not None and size > max_message_bytes:
            raise _too_large(size, max_message_bytes)
        if not crc_is_valid(view, position, header):
            raise _corrupt_crc(header)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Offsets {header.base_offset} to {header.last_offset} follow {next_offset - 1}: offsets only grow.",
            )
        if header.leader_epoch < leader_epoch:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"Leader epoch {header.leader_epoch} at offset {header.base_offset} follows {leader_epoch}: "
                "epochs only grow.",
            )
        next_offset, leader_epoch = header.next_offset, header.leader_epoch
        max_timestamp = max(max_timestamp, header.max_timestamp)
        record_count += header.record_count
        headers.append(header)
        position += size
    return ValidatedBatches(view[:position], headers, max_timestamp, record_count, -1)


def _writable(view: memoryview) -> memoryview:
    return memoryview(bytearray(view)) if view.readonly else view


def _invalid(message: str) -> InvalidRecordsError:
    return InvalidRecordsError(ErrorCode.INVALID_RECORD, message, [])


def _invalid_records(code: ErrorCode, errors: list[tuple[int, str]]) -> InvalidRecordsError:
    shown = "; ".join(f"record {index}: {problem}" for index, problem in errors[:MAX_ERRORS_SHOWN])
    return InvalidRecordsError(
        code, f"{len(errors)} or more records were refused and so the whole batch was: {shown}", errors
    )


def _too_large(size: int, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch has {size} bytes, more than the topic's max.message.bytes of {limit}. "
        "Send smaller batches, or raise that setting.",
    )


def _corrupt_crc(header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The CRC of the record batch is not the {header.crc:#010x} it says: it was damaged on the way. Send it again.",
    )
