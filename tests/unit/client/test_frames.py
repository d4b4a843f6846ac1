"""Frames come out whole, however the bytes come in."""

import random
import struct

import pytest

from tailrace.client.frames import FrameReader
from tailrace.model.errors import ProtocolError

FRAMES = [b"", b"a", b"x" * 1000, b"y" * 65_532, b"z" * 65_533, b"w" * 300_000, b"end"]
STREAM = b"".join(struct.pack(">i", len(frame)) + frame for frame in FRAMES)


def read(reader: FrameReader, stream: bytes, sizes: "random.Random | int") -> list[bytes]:
    frames = []
    position = 0
    while position < len(stream):
        room = reader.room()
        assert len(room)
        wanted = sizes if isinstance(sizes, int) else sizes.randrange(1, 100_000)
        chunk = stream[position : position + min(wanted, len(room))]
        room[: len(chunk)] = chunk
        position += len(chunk)
        frames += [bytes(frame) for frame in reader.take(len(chunk))]
    return frames


@pytest.mark.parametrize("size", [3, 7, 4096, 1 << 20])
def test_any_size_of_pieces(size: int):
    assert read(FrameReader(1 << 20), STREAM, size) == FRAMES


def test_random_pieces():
    for seed in range(50):
        assert read(FrameReader(1 << 20), STREAM * 2, random.Random(seed)) == FRAMES * 2


def test_frames_do_not_share_memory_with_what_comes_after():
    reader = FrameReader(100)
    first = struct.pack(">i", 3) + b"abc"
    reader.room()[:7] = first
    (frame,) = reader.take(7)
    reader.room()[:7] = struct.pack(">i", 3) + b"xyz"
    reader.take(7)
    assert bytes(frame) == b"abc"


def receive(reader: FrameReader, content: bytes) -> memoryview:
    stream = struct.pack(">i", len(content)) + content
    frames: list[memoryview] = []
    while stream:
        room = reader.room()
        chunk = stream[: len(room)]
        room[: len(chunk)] = chunk
        frames += reader.take(len(chunk))
        stream = stream[len(chunk) :]
    (frame,) = frames
    return frame


def test_the_memory_of_a_large_frame_is_used_again_once_nobody_looks_at_it():
    reader = FrameReader(1 << 23)
    first = receive(reader, b"a" * 300_000)
    part = first[1000:2000]
    second = receive(reader, b"b" * 300_000)
    assert bytes(first) == b"a" * 300_000
    assert second.obj is not first.obj
    del first
    third = receive(reader, b"c" * 200_000)  # The second is held.
    assert third.obj is not second.obj
    assert bytes(part) == b"a" * 1000
    assert bytes(second) == b"b" * 300_000
    memory = third.obj
    del third
    fourth = receive(reader, b"d" * 250_000)
    assert fourth.obj is memory
    assert bytes(fourth) == b"d" * 250_000


def test_the_memory_of_a_huge_frame_is_not_kept():
    reader = FrameReader(1 << 23)
    huge = receive(reader, b"a" * (5 << 20))
    memory = huge.obj
    del huge
    assert receive(reader, b"b" * 300_000).obj is not memory


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x65", b"HTTP"])
def test_impossible_sizes(size: bytes):
    reader = FrameReader(100)
    reader.room()[:4] = size
    with pytest.raises(ProtocolError, match="claims"):
        reader.take(4)
