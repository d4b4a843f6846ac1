"""Plain batches: what most Produce requests carry, judged by one unpacking and one CRC.

A batch is plain if the topic wants nothing done to it: one batch of magic 2, uncompressed or compressed as the producer
chose, create time within the topic's bounds, no transaction. Such batches can be judged one by one and written many at
a time (`Log.append_plain`).

An idempotent producer's batch comes with its header: whoever has it written asks `ProducerStates.check` first, or, if
others that are not written yet go before it, `follows`. The log then remembers it as any other.

A compacted topic, and one that asks for deep validation, has every record looked at. Those of a batch are plain if they
have keys and their place in the batch is their offset, as in nearly all (`scan_plain_records`).

`validation` owns the rules and explains what breaks them. This is only its fast way to say yes: whatever is not
plain, bad batches included, gets None here and goes there. A property test holds the two together.
"""

from collections.abc import Generator
from struct import Struct

from tailrace.model.config import TopicConfig, validates_schema_ids
from tailrace.wire.checksum import crc32c
from tailrace.wire.payload import scan_keyed
from tailrace.wire.records import HEADER_SIZE, MAGIC, BatchHeader

# (view of the whole batch, its size in bytes, last offset delta, max timestamp, header if it has a producer id). A bare
# tuple: one is made per request.
PlainBatch = tuple[memoryview, int, int, int, BatchHeader | None]

# Batches that are written at once hold at most this much, and one more batch.
GROUP_MAX_BYTES = 1 << 20

# Records whose positions are looked at between two pauses, about half a millisecond.
RECORDS_PER_SCAN = 600

_unpack_header = Struct(">qiibIhiqqqhii").unpack_from
_LOG_OVERHEAD = 12
_CRC_COVERS_FROM = 21
_CODEC_MASK = 0x07
_LAST_CODEC = 4
_LOG_APPEND_BIT = 0x08


class PlainRules:
    """What a topic's settings mean for plain batches; made anew when they change."""

    __slots__ = ("after_max_ms", "applies", "before_max_ms", "size_max_bytes")

    def __init__(self, config: TopicConfig) -> None:
        self.size_max_bytes = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        # Whether batches of this topic can be plain at all. A group must fit into one segment.
        self.applies = (
            config.message_timestamp_type == "CreateTime"
            and config.compression_type == "producer"
            and "compact" not in config.cleanup_policy
            and not config.record_validation_deep
            and not validates_schema_ids(config)
            and (config.internal_segment_bytes or config.segment_bytes) >= GROUP_MAX_BYTES + config.max_message_bytes
        )


def read_plain(view: memoryview, rules: PlainRules, now_ms: int) -> PlainBatch | None:
    """The batch, if it is plain and sound; the caller has made sure that `rules.applies`."""
    size = len(view)
    if not HEADER_SIZE <= size <= rules.size_max_bytes:
        return None
    header = _unpack_header(view)
    (
        base_offset,
        batch_length,
        _leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = header
    if (
        base_offset
        or batch_length + _LOG_OVERHEAD != size
        or magic != MAGIC
        or attributes & ~_CODEC_MASK
        or attributes > _LAST_CODEC
        or record_count < 1
        or record_count != last_offset_delta + 1
        or not now_ms - rules.before_max_ms <= base_timestamp <= max_timestamp <= now_ms + rules.after_max_ms
        or crc32c(view[_CRC_COVERS_FROM:]) != crc
    ):
        return None
    if producer_id < 0:
        return view, size, last_offset_delta, max_timestamp, None
    if producer_epoch < 0 or base_sequence < 0:
        return None
    # Past the NamedTuple's own constructor, which takes as long as all the rest.
    return view, size, last_offset_delta, max_timestamp, tuple.__new__(BatchHeader, header)


def scan_plain_records(
    header: BatchHeader, data: bytes, earliest_ms: int, latest_ms: int
) -> Generator[None, bytes, int | None]:
    """The largest timestamp, if all records of an unpacked batch are plain and of that time. Pauses now and then."""
    if header.base_offset or header.attributes & _LOG_APPEND_BIT:
        return None
    position, least, largest = 0, latest_ms, earliest_ms
    for first in range(0, header.record_count, RECORDS_PER_SCAN):
        if first:
            yield None
        scanned = scan_keyed(data, position, range(first, min(first + RECORDS_PER_SCAN, header.record_count)))
        if scanned is None:
            return None
        position, least_delta, largest_delta = scanned
        least = min(least, header.base_timestamp + least_delta)
        largest = max(largest, header.base_timestamp + largest_delta)
    return largest if position == len(data) and earliest_ms <= least <= largest <= latest_ms else None
