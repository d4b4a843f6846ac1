"""Which partition of an internal topic a group or a transactional id belongs to."""

from functools import lru_cache

_NAMES_REMEMBERED = 10_000


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _key_hash(key: str) -> int:
    """Java's String.hashCode, without its sign."""
    number = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        number = (31 * number + unit) & 0xFFFFFFFF
    return number & 0x7FFFFFFF


def coordinator_partition(key: str, partition_count: int) -> int:
    """All brokers, of whatever make, must find the same one."""
    return _key_hash(key) % partition_count
