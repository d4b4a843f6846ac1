"""Where things stand in the bytes of a Produce request of one topic and one partition, for the express lane.

What precedes the partition is a *prefix*, from the client id to the number of partitions. Positions are found by a few
fields and without decoding; a caller must not trust them before it has compared the bytes, or decoded them once.
"""

import struct

from tailrace.model.ports import Buffer

_unpack_short = struct.Struct(">h").unpack_from
FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_TOPIC_IDS = 13
# The empty tag sections of the partition, the topic and the request.
_NO_TAGS = bytes(3)
# A connection keeps a thousand of them: this bounds what a client can make it keep.
_PREFIX_MAX_BYTES = 512


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
