"""A lane of the express way: what the repeated bytes of a producer's requests mean, and the bytes of its answers.

It is for Produce requests of one topic and one partition. What precedes the partition is a *prefix*, from the client id
to the number of partitions. Positions are found by a few fields and without decoding; a caller must not trust them
before it has compared the bytes, or decoded them once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from tailrace.broker.handlers.produce import fill_error
from tailrace.model.errors import KafkaError
from tailrace.model.ports import Buffer, Bytes, FileSlice
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.frame import encode_response

if TYPE_CHECKING:
    from tailrace.broker.metrics.requests import Meter
    from tailrace.broker.refused_batches import Place
    from tailrace.replica.partition import Partition

PartitionAnswer = ProduceResponse.PartitionProduceResponse

_unpack_short = struct.Struct(">h").unpack_from
FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_TOPIC_IDS = 13
# The empty tag sections of the partition, the topic and the request.
_NO_TAGS = bytes(3)
# A connection keeps a thousand of them: this bounds what a client can make it keep.
_PREFIX_MAX_BYTES = 512

# A third of a lane's memory, were it not shared by those of topics with names of the same length.
_struct = lru_cache(maxsize=512)(struct.Struct)
# Found in no topic name, for it is not UTF-8; marks the place of the base offset in a template.
_MARK = 0x0123456789ABCDEF


class Lane:
    """What the repeated bytes of a producer's requests mean, and how its answers are built."""

    __slots__ = (
        "answer_size",
        "head",
        "is_flexible",
        "meter",
        "pack",
        "partitions",
        "prefix",
        "rest",
        "tail",
        "terms",
        "topic",
        "topic_data",
        "version",
    )

    def __init__(self, version: int, prefix: bytes, topic: str, request: ProduceRequest, *, client_id: str) -> None:
        self.version = version
        self.prefix = prefix
        self.topic = topic
        # The same for all requests of a run.
        self.terms = request.acks, request.timeout_ms, client_id
        named = request.topic_data[0]
        # As the client named it, for answers that are not packed.
        self.topic_data = ProduceRequest.TopicProduceData(name=named.name, topic_id=named.topic_id)
        self.meter: Meter | None = None  # Where the node has some.
        self.rest = 0  # Requests to let pass because the last one did not fit.
        self.is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self.partitions: dict[int, Partition] = {}  # Bounded by the partitions that exist.
        template = _encode(version, 0, named, PartitionAnswer(base_offset=_MARK, log_start_offset=0))
        marked = template.rindex(_MARK.to_bytes(8, "big"))
        # Size and correlation id, what comes before the partition's own fields, those fields, and the rest.
        self.head, self.tail = template[8 : marked - 6], template[marked + 24 :]
        self.answer_size = len(template) - 4
        self.pack: Callable[..., bytes] = _struct(f">ii{len(self.head)}sihqqq{len(self.tail)}s").pack

    def place(self, partition: Partition) -> Place:
        return self.topic_data.name or self.topic_data.topic_id, partition.topic_partition.partition

    def throttled_tail(self, throttle_ms: int) -> bytes:
        """In all versions the throttle is the last field of an answer, with nothing but empty tags behind it."""
        end = len(self.tail) - self.is_flexible
        return self.tail[: end - 4] + throttle_ms.to_bytes(4, "big") + self.tail[end:]

    def encode_error(self, correlation_id: int, index: int, error: KafkaError) -> Bytes:
        answer = PartitionAnswer(index=index)
        fill_error(answer, error)
        return _encode(self.version, correlation_id, self.topic_data, answer)


def _encode(
    version: int, correlation_id: int, topic: ProduceRequest.TopicProduceData, answer: PartitionAnswer
) -> bytes:
    answers = ProduceResponse.TopicProduceResponse(
        name=topic.name, topic_id=topic.topic_id, partition_responses=[answer]
    )
    (encoded,) = encode_response(ApiKey.PRODUCE, version, correlation_id, ProduceResponse(responses=[answers]))
    assert not isinstance(encoded, FileSlice), "an answer to Produce carries no records"
    return bytes(encoded)


def prefix_end(buffer: Buffer | memoryview, version: int, start: int) -> int:
    """Where the prefix that begins with the client id ends: behind the number of partitions. `start` if it is too long
    or cut off; anywhere if the request is of a kind that has no lane."""
    try:
        position = start + max(0, _unpack_short(buffer, start)[0])
        if version < FIRST_FLEXIBLE_VERSION:
            # The length of the client id, no transactional id, acks, timeout, number of topics.
            position += 14
            # The length of the name, the name, number of partitions.
            end = position + 6 + _unpack_short(buffer, position)[0]
        else:
            position += 11
            if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                end = position + 17
            elif buffer[position] < 0x80:
                end = position + 1 + buffer[position]
            else:
                end = position + 2 + (buffer[position] & 0x7F | buffer[position + 1] << 7)
    except (struct.error, IndexError):
        return start
    return end if end - start <= _PREFIX_MAX_BYTES else start


def index_position(version: int, frame_size: int, records_size: int) -> int:
    """Where the partition's index stands in a frame without its size, if its records are followed by no tags."""
    if version < FIRST_FLEXIBLE_VERSION:
        return frame_size - records_size - 8
    length_size = ((records_size + 1).bit_length() + 6) // 7
    return frame_size - len(_NO_TAGS) - records_size - length_size - 4


def records_start(buffer: Buffer, position: int, frame_end: int) -> int:
    """Behind the compact length at `position`, if it says that the records reach to the empty tag sections at the end
    of the frame; else the end of the frame."""
    length = shift = 0
    start = position
    while shift <= 21:
        byte = buffer[start]
        start += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    tags = frame_end - len(_NO_TAGS)
    return start if start + length - 1 == tags and buffer[tags:frame_end] == _NO_TAGS else frame_end
