"""Zigzag varints as records use them: seven bits a byte, lowest first, the high bit says that more follow.

Decoding is strict: a varint has at most 5 bytes (32 bits), a varlong at most 10 (64 bits). Whoever is in a hurry
reads the first byte itself and comes here only if its high bit is set.
"""

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Bytes

# Indexed by -64..63 (a negative index counts from the end, which is just what zigzag needs).
_ONE_BYTE = tuple(bytes((n << 1,)) for n in range(64)) + tuple(bytes(((n << 1) ^ -1,)) for n in range(-64, 0))


# Those from 0 on that most lengths and deltas in records are: whoever is in a hurry looks here before it calls.
SMALL_VARINTS = tuple(bytes((n << 1,)) if n < 64 else bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(4096))


def encode_varint(value: int) -> bytes:
    """Takes any size up to 64 bits: a varint and a varlong have the same bytes where both can hold the value."""
    if -64 <= value < 64:
        return _ONE_BYTE[value]
    rest = (value << 1) ^ (value >> 63)
    if rest < 1 << 14:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def read_rest_of_varint(first: int, data: Bytes, position: int) -> tuple[int, int]:
    """The raw (still zigzag) value that began with the byte `first`, and the position after it.
    Raises IndexError at the end of the data."""
    byte = data[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    raw = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> 32:
                break
            return raw, position
    raise KafkaError(ErrorCode.INVALID_RECORD, "a varint in a record has more than 32 bits")


def read_rest_of_varlong(first: int, data: bytes, position: int) -> tuple[int, int]:
    """As `read_rest_of_varint`, up to 64 bits."""
    byte = data[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    raw = first & 0x7F
    for shift in (7, 14, 21, 28, 35, 42, 49, 56, 63):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> 64:
                break
            return raw, position
    raise KafkaError(ErrorCode.INVALID_RECORD, "a varlong in a record has more than 64 bits")
