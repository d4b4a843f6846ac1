"""Which partition of an internal topic a group or a transactional id belongs to."""

from functools import lru_cache

_NAMES_REMEMBERED = 10_000
# Characters. Names may have 32,767, and so many of that length would fill the memory.
_NAME_REMEMBERED_MAX = 200


def _key_hash(key: str) -> int:
    """Java's String.hashCode, without its sign."""
    number = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        number = (31 * number + unit) & 0xFFFFFFFF
    return number & 0x7FFFFFFF


_remembered_hash = lru_cache(maxsize=_NAMES_REMEMBERED)(_key_hash)


def coordinator_partition(key: str, partition_count: int) -> int:
    """All brokers, of whatever make, must find the same one."""
    key_hash = _remembered_hash(key) if len(key) <= _NAME_REMEMBERED_MAX else _key_hash(key)
    return key_hash % partition_count
