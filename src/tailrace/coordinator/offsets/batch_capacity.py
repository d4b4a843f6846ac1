"""How much goes into one batch of records about offsets."""

# Records, and bytes of names and texts: well below the usual max.message.bytes, which a batch must keep. A group id may
# be 32 KB long, and so may the metadata of an offset: two records always find room.
RECORDS_PER_BATCH = 500
_BYTES_PER_BATCH = 256 << 10
# What a record takes beside them, and the longest character in UTF-8.
_RECORD_BYTES = 100
_CHARACTER_BYTES = 4


class BatchCapacity:
    __slots__ = ("_bytes", "_records", "_records_max")

    def __init__(self, records_max: int = RECORDS_PER_BATCH) -> None:
        self._records_max = self._records = records_max
        self._bytes = _BYTES_PER_BATCH

    def takes(self, *texts: str) -> bool:
        """One more record, which holds these texts. The first one always finds room."""
        size_bytes = _RECORD_BYTES + sum(
            [len(text) if text.isascii() else _CHARACTER_BYTES * len(text) for text in texts]
        )
        if not self._records or (size_bytes > self._bytes and self._records < self._records_max):
            return False
        self._records -= 1
        self._bytes -= size_bytes
        return True
