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
    offsets that only grow, a partial last batch cut off                                  x         x

One batch of a client costs one header, one CRC and a dozen comparisons: no work per record. Records are read one
by one only for compacted topics (they need keys) and where `record.validation.deep` is set; lies inside the payload
(a record count, a timestamp, an offset) are found only then. Re-compression works on the block as a whole.

Never assigns offsets, never writes, never looks at a clock. The view is patched in place where the topic asks for
log-append time, so the caller must own it.
"""

from enum import Enum
from typing import NamedTuple

from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.compression import compress, decompress
from tailrace.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    assemble_batch,
    crc_is_valid,
    iterate_records,
    read_header,
    set_log_append_time,
)

# A batch may unpack to at most this much before it counts as a bomb: 100 times the default max.message.bytes.
DEFAULT_MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
# The error message of a response names this many records at most; every bad record is in `record_errors`.
MAX_ERRORS_SHOWN = 3
# One request must not make us build an error per record of a million-record batch.
MAX_RECORD_ERRORS = 100

_NO_TIMESTAMP = -1
_CODEC_MASK = 0x07
_LAST_CODEC = int(Compression.ZSTD)
_LOG_APPEND_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_OVERHEAD = 12


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


class ValidatedBatches(NamedTuple):
    """Batches that may be written as they stand, except for base offset and leader epoch."""

    view: memoryview
    headers: list[BatchHeader]
    max_timestamp: int
    max_timestamp_index: int  # which of `headers` holds it; -1 where there is none
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
    (_, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, record_count) = header
    is_create_time = config.message_timestamp_type == "CreateTime"
    if is_create_time:
        if attributes & _LOG_APPEND_BIT:
            # Which clock a timestamp comes from is the topic's to say, not the producer's.
            header = header._replace(attributes=attributes & ~_LOG_APPEND_BIT)
            view = memoryview(assemble_batch(header, view[HEADER_SIZE:]))
            header = read_header(view)
        earliest_ms = now_ms - config.message_timestamp_before_max_ms
        if not earliest_ms <= base_timestamp <= max_timestamp <= now_ms + config.message_timestamp_after_max_ms:
            # Unless the header lies, this raises an error that names the records.
            _check_records(view, header, config, now_ms, max_decompressed_bytes)
            _check_timestamp(max_timestamp, config, now_ms)
            _check_timestamp(base_timestamp, config, now_ms)
    if ("compact" in config.cleanup_policy or config.record_validation_deep) and not attributes & _CONTROL_BIT:
        view, header = _check_records(view, header, config, now_ms, max_decompressed_bytes)
    if config.compression_type != "producer" and not attributes & _CONTROL_BIT:
        view, header = _recompress(view, header, config, max_decompressed_bytes)
    if is_create_time:
        # Past the NamedTuple's own constructor, which takes as long as all the checks above.
        return tuple.__new__(ValidatedBatches, (view, [header], header[8], 0, record_count, -1))
    view = _writable(view)
    set_log_append_time(view, 0, now_ms)
    return ValidatedBatches(view, [read_header(view)], now_ms, 0, record_count, now_ms)


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
    view: memoryview, header: BatchHeader, config: TopicConfig, max_decompressed_bytes: int
) -> tuple[memoryview, BatchHeader]:
    """Records are the same bytes under every codec, so the block is unpacked and packed again as a whole."""
    source = header.compression
    name = config.compression_type
    target = Compression.NONE if name == "uncompressed" else Compression[name.upper()]
    if source is target:
        return view, header
    block = decompress(source, view[HEADER_SIZE:], max_decompressed_bytes)
    packed = compress(target, block, _level(target, config))
    attributes = (header.attributes & ~_CODEC_MASK) | target
    recompressed = memoryview(assemble_batch(header._replace(attributes=attributes), packed))
    if len(recompressed) > config.max_message_bytes:
        raise _too_large(len(recompressed), config.max_message_bytes)
    return recompressed, read_header(recompressed)


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


def _check_records(
    view: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, max_decompressed_bytes: int
) -> tuple[memoryview, BatchHeader]:
    """Reads every record. A header whose max timestamp is wrong is put right, as Kafka does."""
    must_have_keys = "compact" in config.cleanup_policy
    is_create_time = config.message_timestamp_type == "CreateTime"
    earliest_ms, latest_ms = _timestamp_bounds(config, now_ms)
    largest_timestamp = _NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    records = iterate_records(view, max_decompressed_bytes=max_decompressed_bytes)
    for index, (offset, timestamp, key, _, _) in enumerate(records):
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
    if errors:
        raise _invalid_records(code, errors)
    if is_create_time and largest_timestamp != header.max_timestamp:
        view = memoryview(assemble_batch(header._replace(max_timestamp=largest_timestamp), view[HEADER_SIZE:]))
        header = read_header(view)
    return view, header


def _validate_trusted(
    view: memoryview, config: TopicConfig, now_ms: int, origin: Origin, max_decompressed_bytes: int
) -> ValidatedBatches:
    if origin is Origin.COORDINATOR:
        header = _read_only_batch(view)
        if header.size_bytes > config.max_message_bytes:
            raise _too_large(header.size_bytes, config.max_message_bytes)
        if not crc_is_valid(view, 0, header):
            raise _corrupt_crc(header)
        return _apply_topic_rules(view, header, config, now_ms, max_decompressed_bytes)
    return _walk_numbered(view, None if origin is Origin.REPLICATION else config.max_message_bytes)


def _walk_numbered(view: memoryview, max_message_bytes: int | None) -> ValidatedBatches:
    """Batches that a leader has numbered. A fetch may end in the middle of a batch: the rest is cut off."""
    headers: list[BatchHeader] = []
    position = record_count = 0
    max_timestamp, max_timestamp_index, next_offset = _NO_TIMESTAMP, -1, -1
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
        next_offset = header.next_offset
        if header.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_index = header.max_timestamp, len(headers)
        record_count += header.record_count
        headers.append(header)
        position += size
    return ValidatedBatches(view[:position], headers, max_timestamp, max_timestamp_index, record_count, -1)


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
