"""The four codecs of record batches, both ways.

Owns the bytes of a compressed payload as Kafka's clients write and read them. Two rules:

- What we write, Kafka's Java client reads: snappy has xerial's framing in blocks of 32 KB, lz4 is a frame of
  independent blocks of 64 KB without a content checksum.
- `decompress` never makes more than `limit` bytes (and about as much working memory), whatever the data claims: the
  output goes into a buffer of a size that we chose, or a size that was checked first.

Damaged data is INVALID_RECORD, as a retry cannot help; more than `limit` is MESSAGE_TOO_LARGE, to which Kafka's
producer answers by splitting its batch; an unknown codec is UNSUPPORTED_COMPRESSION_TYPE.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from io import BytesIO
from struct import Struct

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Bytes


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, attributes: int) -> "Compression":
        codec = attributes & 7
        if codec > cls.ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"compression codec {codec} is not known: use none, gzip, snappy, lz4 or zstd",
            )
        return cls(codec)


def compress(codec: Compression, data: Bytes, level: int | None = None) -> bytes:
    """`level` is the codec's own scale, as in compression.gzip.level and its like; None is Kafka's default."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _compress_gzip(data, level)
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return _compress_zstd(data, level)


def decompress(codec: Compression, data: Bytes, limit: int) -> bytes:
    """At most `limit` bytes; raises KafkaError if there would be more or if the data is damaged."""
    match codec:
        case Compression.NONE:
            if len(data) > limit:
                raise _too_large(codec, limit)
            return bytes(data)
        case Compression.GZIP:
            return _decompress_gzip(data, limit)
        case Compression.SNAPPY:
            return _decompress_snappy(data, limit)
        case Compression.LZ4 | Compression.ZSTD:
            return _decompress_frame(codec, data, limit)


def _too_large(codec: Compression, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch decompresses ({codec.name.lower()}) to more than {limit} bytes: send smaller batches",
    )


def _damaged(codec: Compression, cause: object) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"a batch does not decompress ({codec.name.lower()}): {cause}; its sender has a faulty compressor",
    )


# --- gzip: the standard library's zlib, whose decompressor takes a bound on its output

_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # 16: with gzip's header and trailer


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    try:
        output = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise _damaged(Compression.GZIP, error) from None
    if len(output) > limit:
        del output  # Whoever keeps the error keeps this frame, and must not keep the bomb.
        raise _too_large(Compression.GZIP, limit)
    if not decompressor.eof:
        raise _damaged(Compression.GZIP, "it is cut short")
    # A second gzip member is legal and never written by Kafka's clients; reading one after another would let
    # thousands of tiny ones cost quadratic time.
    if decompressor.unused_data:
        raise _damaged(Compression.GZIP, "bytes follow its end")
    return output


# --- snappy: xerial's framing (of the snappy-java library) around raw blocks

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"  # version 1, readable by version 1
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = Struct(">i")
# Snappy's densest element copies 64 bytes and takes 3, so a block that claims to hold more than 22 times its size
# lies; it is refused before anything is allocated for it.
_SNAPPY_EXPANSION_MAX = 22


def _compress_snappy(data: Bytes) -> bytes:
    from cramjam import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, limit: int) -> bytes:
    view = memoryview(data)
    if not view:
        raise _damaged(Compression.SNAPPY, "it is empty")
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit, limit)
    parts = []
    size = 0
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # streams may follow one another, as snappy-java reads them
            continue
        if position + 4 > len(view):
            raise _damaged(Compression.SNAPPY, "it is cut short")
        length = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position += 4
        if not 0 <= length <= len(view) - position:
            raise _damaged(Compression.SNAPPY, f"a block claims {length} bytes of {len(view) - position}")
        parts.append(_decompress_snappy_block(view[position : position + length], limit - size, limit))
        size += len(parts[-1])
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        if size > _SNAPPY_EXPANSION_MAX * len(block):
            raise _damaged(Compression.SNAPPY, f"{len(block)} bytes claim to hold {size}")
        if size > room:
            raise _too_large(Compression.SNAPPY, limit)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise _damaged(Compression.SNAPPY, error) from None


# --- lz4 and zstd: frames, decompressed into a buffer that grows as far as the bound

_LZ4_FAST_LEVEL = 1
# Kafka's default of compression.lz4.level. Its Java code takes it to mean lz4's fast mode, and any other level the
# high-compression mode, so we do too.
_LZ4_DEFAULT_LEVEL = 9
_ZSTD_DEFAULT_LEVEL = 3
_FIRST_BUFFER_BYTES_MIN = 64 * 1024
_FIRST_EXPANSION = 4
_BUFFER_GROWTH = 8
# What cramjam says when the output buffer is full; every other message tells of damage.
_OUTPUT_IS_FULL = "failed to write whole buffer"


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    from cramjam import lz4

    mode = _LZ4_FAST_LEVEL if level is None or level == _LZ4_DEFAULT_LEVEL else level
    # Java refuses linked blocks, and mistakes the content checksum of a frame of several blocks.
    compressor = lz4.Compressor(mode, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # It takes no other kind of bytes.
    return bytes(compressor.finish())


def _compress_zstd(data: Bytes, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def _decompress_frame(codec: Compression, data: Bytes, limit: int) -> bytes:
    from cramjam import DecompressionError, lz4, zstd

    decompress_into: Callable[[Bytes, memoryview], int]
    decompress_into = lz4.decompress_into if codec is Compression.LZ4 else zstd.decompress_into
    size = min(limit, max(_FIRST_BUFFER_BYTES_MIN, _FIRST_EXPANSION * len(data)))
    while True:
        # Zeroed memory that the kernel provides as it is written to, and no copy at the end: a bytearray would be
        # filled with zeros and copied by this thread while it holds the GIL, for 30 ms with 10 MB.
        output = BytesIO(bytes(size))
        try:
            with output.getbuffer() as buffer:
                written = decompress_into(data, buffer)
        except DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise _damaged(codec, error) from None
            if size == limit:
                del output  # As above.
                raise _too_large(codec, limit) from None
            size = min(limit, size * _BUFFER_GROWTH)
            continue
        output.truncate(written)
        return output.getvalue()
