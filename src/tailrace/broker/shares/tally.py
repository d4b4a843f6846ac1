"""What has happened to records of one share group on this broker since it has started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.coordinator.share_partition.delivery import Acknowledged


class Tally:
    __slots__ = ("acknowledged", "delivered", "expired", "lost", "written")

    def __init__(self) -> None:
        self.delivered = 0
        self.acknowledged: Counter[int] = Counter()  # By what members have said.
        self.expired = 0  # Locks of records that ran out.
        self.written = 0  # Dead letters.
        self.lost = 0  # Records that were given up without one, though the group has a topic for them.

    def note_acknowledged(self, batches: Sequence[Acknowledged]) -> None:
        for batch in batches:
            if len(batch.types) == 1:
                self.acknowledged[batch.types[0]] += batch.last_offset - batch.first_offset + 1
            else:
                self.acknowledged.update(batch.types)


class Tallies:
    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def of(self, group_id: str, *, groups_max: int) -> Tally:
        """Any client can make up groups: the one that was asked for the longest ago is forgotten."""
        tally = self._tallies.pop(group_id, None) or Tally()
        while len(self._tallies) >= groups_max:
            del self._tallies[next(iter(self._tallies))]
        self._tallies[group_id] = tally
        return tally

    def items(self) -> list[tuple[str, Tally]]:
        return sorted(self._tallies.items())
