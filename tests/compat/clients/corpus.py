"""The records that every client writes and reads: the shapes in which libraries and brokers have been known to differ.

Timestamps rise by one second from START_MS, so that a search by time has one right answer.
"""

import random
import time

from . import Headers, Sent

# Sent an hour ago: no broker's bound on timestamps refuses it, and no clock on this machine is near it.
START_MS = int(time.time() * 1000) - 3_600_000
STEP_MS = 1_000

# 900 KB is the largest value that every client sends with its default limits (1 MB a request).
SIZES_BYTES = (1, 100, 1_000, 10_000, 100_000, 900_000)


def records() -> list[Sent]:
    """Every shape once, then every size, in a fixed order."""
    shapes: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"key", b"value", ()),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
        (b"one", b"header", (("trace", b"1"),)),
        (b"many", b"headers", (("same", b"1"), ("same", b"2"), ("empty", b""), ("größe", b"\x00\xff"))),
        (bytes(range(256)), bytes(reversed(range(256))), ()),
    ]
    shapes += [(b"size-%d" % size, _payload(size), ()) for size in SIZES_BYTES]
    return [Sent(key, value, headers, START_MS + index * STEP_MS) for index, (key, value, headers) in enumerate(shapes)]


def small(count: int, *, size_bytes: int = 100) -> list[Sent]:
    """Many records that share batches."""
    return [Sent(b"%06d" % index, _payload(size_bytes), (), START_MS + index * STEP_MS) for index in range(count)]


def _payload(size_bytes: int) -> bytes:
    # Half noise, half pattern: a codec neither gives up on it nor shrinks it to nothing.
    noise = random.Random(size_bytes).randbytes(size_bytes // 2)
    return (noise + b"tailrace" * (size_bytes // 8 + 1))[:size_bytes]
