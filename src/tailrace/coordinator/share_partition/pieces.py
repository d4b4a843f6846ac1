"""The pieces of a window: deliveries in the order of their offsets, without a hole, split where need be."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tailrace.coordinator.share_partition.delivery import Delivery


class Pieces:
    def __init__(self, start_offset: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._deliveries: list[Delivery] = []
        self._firsts: list[int] = []  # Of the deliveries.
        self._done_count = 0  # Offsets in the window that are done with, those that are being stored included.

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._deliveries)

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def done_count(self) -> int:
        return self._done_count

    def _index(self, offset: int) -> int:
        """Of the delivery that has it, or of the first one."""
        return max(0, bisect_right(self._firsts, offset) - 1)

    def _overlapping(self, first: int, last: int) -> list[Delivery]:
        found: list[Delivery] = []
        for index in range(self._index(first), len(self._deliveries)):
            delivery = self._deliveries[index]
            if delivery.first > last:
                break
            if delivery.last >= first:
                found.append(delivery)
        return found

    def _cut_out(self, delivery: Delivery, first: int, last: int) -> Delivery:
        """The piece from `first` to `last`, a delivery of its own."""
        if first > delivery.first:
            delivery = self._split(delivery, first)
        if last < delivery.last:
            self._split(delivery, last + 1)
        return delivery

    def _split(self, delivery: Delivery, offset: int) -> Delivery:
        place = self._index(delivery.first) + 1
        rest = delivery.split(offset)
        self._deliveries.insert(place, rest)
        self._firsts.insert(place, offset)
        return rest

    def _extend(self, last: int) -> None:
        if last >= self.end_offset:
            self._append(Delivery(self.end_offset, last))

    def _append(self, delivery: Delivery) -> None:
        assert delivery.first == self.end_offset <= delivery.last, "deliveries follow each other"
        self._deliveries.append(delivery)
        self._firsts.append(delivery.first)
        self.end_offset = delivery.last + 1
        if delivery.is_done:
            self._done_count += delivery.size

    def _drop(self, count: int, start_offset: int) -> None:
        for delivery in self._deliveries[:count]:
            if delivery.is_done:
                self._done_count -= delivery.last - max(delivery.first, self.start_offset) + 1
        del self._deliveries[:count], self._firsts[:count]
        if self._deliveries and self._deliveries[0].is_done:
            first = max(self._deliveries[0].first, self.start_offset)
            self._done_count -= max(0, start_offset - first)
        self.start_offset = max(self.start_offset, start_offset)
        self.end_offset = max(self.end_offset, self.start_offset)
