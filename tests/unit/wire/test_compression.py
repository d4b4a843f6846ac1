"""The codecs: what they write, what they accept, and that a bomb costs no more memory than the bound."""

import gc
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.compression import Compression, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"the channel that carries water away from a mill " * 4000  # 192 KB: several blocks of every codec


def code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        action()
    return raised.value.code


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, random.Random(1).randbytes(200_000)], ids=len)
def test_both_ways(codec: Compression, data: bytes):
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data) + 1) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, (-1, 1, 9)),
        (Compression.LZ4, (1, 9, 12, 17)),
        (Compression.ZSTD, (-131072, 1, 3, 22)),
    ],
)
def test_every_level_that_kafka_allows(codec: Compression, levels: tuple[int, ...]):
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT


def test_levels_reach_the_codec():
    words = b" ".join(str(n * n % 7919).encode() for n in range(20_000))
    for codec, low, high in ((Compression.GZIP, 1, 9), (Compression.LZ4, 9, 12), (Compression.ZSTD, 1, 19)):
        assert len(compress(codec, words, high)) < len(compress(codec, words, low))


@pytest.mark.parametrize("codec", list(Compression))
def test_one_byte_over_the_bound_is_too_large(codec: Compression):
    packed = compress(codec, TEXT)
    assert code_of(lambda: decompress(codec, packed, len(TEXT) - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(lambda: decompress(codec, packed, 0)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_an_invalid_record(codec: Compression):
    packed = compress(codec, TEXT)
    for broken in (
        b"",
        b"\x01",
        packed[: len(packed) // 2],
        packed[:-1],
        packed + b"\x00\x00\x00\x00\x00",
        b"\xff" * 64,
    ):
        assert code_of(lambda data=broken: decompress(codec, data, len(TEXT))) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_random_damage_never_escapes_as_another_error(codec: Compression):
    randomness = random.Random(7)
    packed = compress(codec, TEXT)
    codes = set()
    for _ in range(300):
        broken = bytearray(packed)
        for _ in range(randomness.randrange(1, 4)):
            broken[randomness.randrange(len(broken))] = randomness.randrange(256)
        try:
            assert len(decompress(codec, broken, len(TEXT))) <= len(TEXT)
        except KafkaError as error:
            codes.add(error.code)
    assert ErrorCode.INVALID_RECORD in codes
    assert codes <= {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}


def test_lz4_frames_are_such_as_java_reads():
    frame = compress(Compression.LZ4, TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    flags, block_size = frame[4], frame[5]
    assert flags >> 6 == 1  # version
    assert flags & 0x20  # independent blocks
    assert not flags & 0x08  # no content size
    assert not flags & 0x04  # no content checksum
    assert not flags & 0x03  # no dictionary, reserved bit zero
    assert block_size == 0x40  # blocks of 64 KB


def test_lz4_frames_with_linked_blocks_are_read():
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT)), len(TEXT)) == TEXT


def test_raw_snappy_blocks_are_read():
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_xerial_streams_in_a_row_are_read():
    packed = compress(Compression.SNAPPY, TEXT)
    assert decompress(Compression.SNAPPY, packed + packed, 2 * len(TEXT)) == TEXT + TEXT


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x05", b"\x00\x00"])
def test_xerial_blocks_that_lie_about_their_length(length: bytes):
    packed = compress(Compression.SNAPPY, b"")
    assert code_of(lambda: decompress(Compression.SNAPPY, packed + length, 100)) is ErrorCode.INVALID_RECORD


def test_snappy_that_claims_more_than_it_can_hold_is_refused_before_it_is_allocated():
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00" * 8
    assert code_of(lambda: decompress(Compression.SNAPPY, claim, 1 << 40)) is ErrorCode.INVALID_RECORD


def gzip_bomb(size: int) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    chunk = bytes(1 << 20)
    return b"".join([compressor.compress(chunk) for _ in range(size >> 20)]) + compressor.flush()


BOMB_BYTES = 512 << 20
CLEAR_REFS = Path("/proc/self/clear_refs")
BOMBS = {
    Compression.GZIP: lambda: gzip_bomb(BOMB_BYTES),
    # xerial: one block of 32 KB of zeros, thousands of times.
    Compression.SNAPPY: lambda: (
        compress(Compression.SNAPPY, b"")
        + (lambda block: (len(block).to_bytes(4, "big") + block) * (BOMB_BYTES >> 15))(
            bytes(cramjam.snappy.compress_raw(bytes(1 << 15)))
        )
    ),
    # lz4: one full block of 64 KB of zeros, thousands of times, and no end mark.
    Compression.LZ4: lambda: (lambda frame: frame[:7] + frame[7:-4] * (BOMB_BYTES >> 16) + frame[-4:])(
        compress(Compression.LZ4, bytes(1 << 16))
    ),
    # zstd: a frame of 1 MB, again and again; frames may follow one another.
    Compression.ZSTD: lambda: compress(Compression.ZSTD, bytes(1 << 20)) * (BOMB_BYTES >> 20),
}


@pytest.mark.skipif(not CLEAR_REFS.exists(), reason="the kernel does not tell the peak of resident memory")
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_the_bound(codec: Compression):
    limit = 8 << 20
    bomb = BOMBS[codec]()
    assert len(bomb) < BOMB_BYTES // 15
    gc.collect()
    before = resident_peak_reset()
    assert code_of(lambda: decompress(codec, bomb, limit)) is ErrorCode.MESSAGE_TOO_LARGE
    # Twice the bound for a buffer that grows, and some for the codec's window.
    assert resident_peak() - before < 3 * limit


def resident_peak_reset() -> int:
    """Starts the kernel's count of the peak of resident memory anew; bytes resident now."""
    CLEAR_REFS.write_text("5")
    return resident_peak()


def resident_peak() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
