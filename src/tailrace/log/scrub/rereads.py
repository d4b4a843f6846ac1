"""Offsets of old segments that are read again and again: a sign that readers cannot use what they get.

A client that finds a CRC wrong asks again for the same offset, or is started again and does. Many clients that begin at
the same place look alike, so it is no more than a hint, on which a segment is checked. Followers are told apart, and
are a better one (`replica.isr`).
"""

READS_OF_A_SUSPECT = 4
# Offsets that are counted at one time. When there are more, all begin anew.
OFFSETS_MAX = 64


class Rereads:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, offset: int) -> bool:
        """Whether it has been read suspiciously often; the count begins anew then."""
        counts = self._counts
        count = counts.get(offset, 0) + 1
        if count >= READS_OF_A_SUSPECT:
            del counts[offset]
            return True
        if len(counts) >= OFFSETS_MAX:
            counts.clear()
        counts[offset] = count
        return False
