"""Kafka's hash: of keys, and of whatever else Kafka spreads over partitions."""

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        state = state * _M & _MASK ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15
