"""The last offset of each key, within a bound of memory.

Owns how keys are held: as they are up to 32 bytes, longer ones as 33 bytes made of a mark and their 256-bit BLAKE2b
digest. So a key never stands for another: no literal key is 33 bytes long, and no two digests have ever been found
equal. (Kafka keeps a 128-bit MD5 of every key in 24 bytes of a fixed table. In Python hashing a short key costs more
than the bytes it saves.)

The map is many small dicts, because one large one stops the loop: growing a dict of a million entries takes tens of
milliseconds, and so does freeing it. A dict of some thousands grows and dies in microseconds.
"""

from collections.abc import Iterator

_LITERAL_BYTES_MAX = 32
_DIGEST_MARK = b"\x00"
_SHARDS = 1024
_SHARDS_PER_STEP = 16
# A bytes object without its content (33), an int (32) and its share of a dict (50), as measured with short keys.
_ENTRY_BYTES = 115


class KeyMap:
    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._shards: list[dict[bytes, int]] = [{} for _ in range(_SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= self.capacity_bytes

    def put(self, key: bytes, offset: int) -> None:
        """Offsets come in rising order, so the last put of a key is its latest."""
        if len(key) > _LITERAL_BYTES_MAX:
            key = _digest(key)
        shard = self._shards[hash(key) % _SHARDS]
        if key not in shard:
            self.used_bytes += _ENTRY_BYTES + len(key)
        shard[key] = offset

    def latest_offset(self, key: bytes) -> int:
        """-1 for a key that was not put."""
        if len(key) > _LITERAL_BYTES_MAX:
            key = _digest(key)
        return self._shards[hash(key) % _SHARDS].get(key, -1)

    def release(self) -> Iterator[None]:
        """Frees the map, a bit at each step."""
        while self._shards:
            del self._shards[-_SHARDS_PER_STEP:]
            yield


def _digest(key: bytes) -> bytes:
    # Loads OpenSSL, which a broker that compacts nothing need not wait for.
    from hashlib import blake2b

    return _DIGEST_MARK + blake2b(key, digest_size=32).digest()
