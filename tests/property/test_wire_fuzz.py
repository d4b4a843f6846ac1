"""Damaged bytes: decoding them gives a message or a ProtocolError, at once and without a large allocation.

The seeds are Kafka's own messages, the golden vectors. Damage is drawn from a seeded generator, so that a failure
can be repeated.
"""

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tailrace.model.errors import ProtocolError
from tailrace.wire.apis import request_type, response_type, stored_records
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.compile import decode, encode
from tailrace.wire.frame import RequestHeader, ResponseHeader, decode_request_header
from tailrace.wire.schema import Message

VECTORS = Path(__file__).parents[1] / "golden" / "wire" / "vectors.jsonl.gz"
MESSAGES: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in (
        *(find(key) for key in ApiKey if not key.is_own for find in (request_type, response_type)),
        *(
            value
            for value in vars(stored_records).values()
            if isinstance(value, type) and value.__module__ == stored_records.__name__
        ),
        RequestHeader,
        ResponseHeader,
    )
}
# Lengths and counts that promise far more than follows, as a varint, an int32 and an int16; and an endless varint.
LIES = [b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\x7f\xff", b"\x80\x00\x00\x00", b"\xff" * 6, b"\x80" * 6]


def vectors() -> Iterator[tuple[type[Message], int, bytes]]:
    for line in gzip.decompress(VECTORS.read_bytes()).splitlines():
        name, version, data, _ = json.loads(line)
        yield MESSAGES[name], version, bytes.fromhex(data)


SEEDS = list(vectors())


def attempt(cls: type[Message], version: int, data: bytes | memoryview) -> Message | None:
    """Any exception but ProtocolError fails the test by itself."""
    try:
        return decode(cls, version, data)
    except ProtocolError:
        return None


def mutated(data: bytes, random: Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(random.randint(1, 3)):
        position = random.randrange(len(damaged) + 1)
        match random.randrange(4):
            case 0:
                damaged[position : position + 1] = random.randbytes(1)
            case 1:
                damaged[position : position + random.randint(1, 4)] = b""
            case 2:
                damaged[position:position] = random.randbytes(random.randint(1, 4))
            case _:
                lie = random.choice(LIES)
                damaged[position : position + len(lie)] = lie
    return bytes(damaged)


def test_every_truncation_is_refused() -> None:
    for cls, version, data in SEEDS[::3]:
        for end in range(0, len(data), max(1, len(data) // 40)):
            # Nothing that is cut short may pass for whole: the last field, or the count of tags, is missing.
            with pytest.raises(ProtocolError):
                decode(cls, version, memoryview(data)[:end])


@pytest.mark.parametrize("seed", range(4))
def test_mutations_decode_or_are_refused(seed: int) -> None:
    random = Random(seed)
    decoded = refused = 0
    for cls, version, data in SEEDS:
        for _ in range(40):
            message = attempt(cls, version, mutated(data, random))
            if message is None:
                refused += 1
            else:
                decoded += 1
                # What was understood can be said again, and means the same then.
                assert decode(cls, version, encode(message, version)) is not None
    assert decoded > 10_000
    assert refused > 10_000


def test_random_bytes_decode_or_are_refused() -> None:
    random = Random(7)
    for cls in MESSAGES.values():
        for version in cls.versions:
            for size in (0, 1, 7, 60):
                attempt(cls, version, random.randbytes(size))


def test_random_request_headers() -> None:
    random = Random(8)
    for _ in range(5000):
        try:
            decode_request_header(random.choice([b"\x00", b""]) + random.randbytes(random.randrange(40)), 0)
        except ProtocolError:
            continue


def test_lies_about_lengths_allocate_nothing() -> None:
    """Neither before the lie is found out, nor by reading what follows as if it were true."""
    random = Random(9)
    for cls, version, data in SEEDS[::3]:
        attempt(cls, version, data)  # compiles the decoder before memory is counted
        position, lie = random.randrange(len(data) + 1), random.choice(LIES)
        damaged = data[:position] + lie + data[position:] + bytes(2000)
        tracemalloc.start()
        attempt(cls, version, damaged)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # The smallest item takes one or two bytes; as an object with slots, its list and its strings, some 300.
        assert peak_bytes < 20_000 + 400 * len(damaged), f"{cls.__name__} v{version}"
