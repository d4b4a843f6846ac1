"""A client made of a socket and struct.pack: nothing of ours is used, so that it can say what no client would.

Requests are of old, non-flexible versions: Produce 8, Fetch 4, ApiVersions 0, CreateTopics 2.
"""

import socket
import struct
import time
from typing import NamedTuple

from crc32c import crc32c

TIMEOUT_S = 10.0

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 3, 18, 19


class Produced(NamedTuple):
    """The part of a Produce response that is about the one partition that was written to."""

    error: int
    base_offset: int
    message: str | None


class RawClient:
    """One connection. Every receive is bounded in time; an answer that does not come fails the test."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """One response, its header included."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the stream; whatever comes instead is no end."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, api_key: int, version: int, body: bytes) -> "Reader":
        self._correlation_id += 1
        self.send(request(api_key, version, body, self._correlation_id))
        answer = Reader(self.receive())
        assert answer.number("i") == self._correlation_id
        return answer

    def is_served(self) -> bool:
        return self.ask(API_VERSIONS, 0, b"").number("h") == 0

    def produce(self, topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0) -> Produced:
        answer = self.ask(PRODUCE, 8, produce_body(topic, records, acks=acks, partition=partition))
        assert (answer.number("i"), answer.string(), answer.number("i")) == (1, topic, 1)
        assert answer.number("i") == partition
        error, base_offset = answer.number("h"), answer.number("q")
        answer.number("q"), answer.number("q")
        for _ in range(answer.number("i")):
            answer.number("i"), answer.string()
        return Produced(error, base_offset, answer.string())

    def fetch(self, topic: str, offset: int = 0) -> tuple[int, bytes]:
        """The error, and the bytes of all batches from that offset on, without waiting."""
        body = struct.pack(">iiiib", -1, 0, 0, 1 << 24, 0) + struct.pack(">i", 1) + string(topic)
        answer = self.ask(FETCH, 4, body + struct.pack(">iiqi", 1, 0, offset, 1 << 24))
        answer.number("i")
        assert (answer.number("i"), answer.string(), answer.number("i"), answer.number("i")) == (1, topic, 1, 0)
        error = answer.number("h")
        answer.number("q"), answer.number("q")
        assert answer.number("i") <= 0, "no transactions here"
        return error, answer.take(max(0, answer.number("i")))

    def create_topic(self, name: str, *, partitions: int = 1, replicas: int = 1) -> int:
        """The error code."""
        wanted = string(name) + struct.pack(">ihii", partitions, replicas, 0, 0)
        answer = self.ask(CREATE_TOPICS, 2, struct.pack(">i", 1) + wanted + struct.pack(">i?", 5000, False))
        answer.number("i")
        assert (answer.number("i"), answer.string()) == (1, name)
        return answer.number("h")

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, f"the connection ended after {len(data)} of {size} bytes"
            data += chunk
        return data


class Reader:
    """Takes a response apart, field by field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        self._position += size
        return self._data[self._position - size : self._position]

    def number(self, code: str) -> int:
        (value,) = struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))
        return value

    def string(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else self.take(size).decode()


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def request(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    return frame(struct.pack(">hhi", api_key, version, correlation_id) + string("raw") + body)


def produce_body(topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0) -> bytes:
    data = struct.pack(">i", -1) if records is None else frame(records)
    return struct.pack(">hhii", -1, acks, 5000, 1) + string(topic) + struct.pack(">ii", 1, partition) + data


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def record(value: bytes, *, delta: int = 0, key: bytes | None = None) -> bytes:
    keyed = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + keyed + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


# Nothing that a test writes is old: retention looks at a broker's topics half a minute after its start.
NOW_MS = int(time.time() * 1000)


def batch(
    *values: bytes,
    payload: bytes | None = None,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    length: int | None = None,
    count: int | None = None,
    last_offset_delta: int | None = None,
    timestamp_ms: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    crc: int | None = None,
) -> bytes:
    """A record batch that is right unless told otherwise. `producer` is its id, epoch and base sequence."""
    if payload is None:
        payload = b"".join(record(value, delta=delta) for delta, value in enumerate(values))
    count = len(values) if count is None else count
    last = count - 1 if last_offset_delta is None else last_offset_delta
    summed = struct.pack(">hiqqqhii", attributes, last, timestamp_ms, timestamp_ms, *producer, count) + payload
    size = 9 + len(summed) if length is None else length
    return struct.pack(">qiibI", base_offset, size, -1, magic, crc32c(summed) if crc is None else crc) + summed
