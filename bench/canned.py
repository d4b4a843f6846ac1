"""Canned requests: bytes that are made once, before the clock starts.

Versions are the old, not flexible ones (Produce 8, Fetch 4), whose layout can be seen at a glance, and whose answers
have a size that is known beforehand.
"""

import struct
import time

from crc32c import crc32c

# The present: retention would delete older records in the middle of a measurement.
_TIMESTAMP_MS = int(time.time() * 1000)
_CLIENT = b"\x00\x05bench"


def produce_request(
    topic: str,
    *,
    records: int,
    value_bytes: int,
    acks: int = 1,
    version: int = 8,
    key: bytes | None = None,
    partition: int = 0,
) -> bytes:
    """A Produce of one batch; all its records have that key."""
    batch = _batch(records, value_bytes, key)
    body = (
        struct.pack(">hhii", -1, acks, 30_000, 1)
        + _string(topic)
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )
    return _frame(0, version, body)


def produce_response_bytes(topic: str) -> int:
    """The size of the answer to such a request, if there was no error."""
    # size, correlation id; topics, name, partitions; index, error, three int64, no record errors, no message; throttle
    return 4 + 4 + 4 + 2 + len(topic) + 4 + (4 + 2 + 24 + 4 + 2) + 4


def fetch_request(topic: str, *, offset: int, max_bytes: int, wait_ms: int = 0) -> bytes:
    """A Fetch of partition 0."""
    body = (
        struct.pack(">iiiibi", -1, wait_ms, min(wait_ms, 1), max_bytes, 0, 1)
        + _string(topic)
        + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    )
    return _frame(1, 4, body)


def records_in(batch_bytes: int, value_bytes: int) -> int:
    """How many records of a size fill a batch of about that size."""
    return max(1, batch_bytes // len(_record(10_000, value_bytes)))


def _frame(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api_key, version, 1) + _CLIENT
    return struct.pack(">i", len(head) + len(body)) + head + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _batch(records: int, value_bytes: int, key: bytes | None) -> bytes:
    payload = b"".join(_record(index, value_bytes, key) for index in range(records))
    times = (_TIMESTAMP_MS, _TIMESTAMP_MS)
    summed = struct.pack(">hiqqqhii", 0, records - 1, *times, -1, -1, -1, records) + payload
    return struct.pack(">qiibI", 0, 9 + len(summed), -1, 2, crc32c(summed)) + summed


def _record(index: int, value_bytes: int, key: bytes | None = None) -> bytes:
    # attributes, timestamp delta 0, offset delta, key or null, value, no headers
    keyed = b"\x01" if key is None else _varint(len(key)) + key
    body = b"\x00\x00" + _varint(index) + keyed + _varint(value_bytes) + b"x" * value_bytes + b"\x00"
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    value <<= 1
    output = bytearray()
    while value > 0x7F:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)
