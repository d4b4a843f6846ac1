"""What fails together: the brokers of one rack and, within it, those of one machine.

Of a partition no domain has more than its part of the replicas, rounded up; racks come before machines. Brokers are
numbered as in the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tailrace.balance.plan.picture import BrokerState

Excess = tuple[int, ...]  # Replicas that are too many in their racks, and on their machines.


class Domains:
    def __init__(self, brokers: Sequence[BrokerState], opened: Sequence[int]) -> None:
        """`opened` are the brokers that may be given replicas."""
        self._brokers = brokers
        self._opened = opened
        self.racks = _numbered([broker.rack or "" for broker in brokers])
        machines = _numbered([broker.machine or f"of {broker.node_id}" for broker in brokers])
        self._levels = [_Level(each, opened) for each in (self.racks, machines)]
        self._mattering = [level for level in self._levels if level.matters]

    @property
    def rack_count(self) -> int:
        return self._levels[0].count

    def excess(self, held: Iterable[int]) -> Excess:
        held = list(held)
        return tuple(level.excess(held) for level in self._levels)

    def excess_with(self, held: Iterable[int], giver: int, taker: int) -> Excess:
        return self.excess(taker if each == giver else each for each in held)

    def options(self, held: Sequence[int]) -> list[tuple[int, int]]:
        """From whom to whom a replica could go so that there is less excess; the leader comes last."""
        excess = self.excess(held)
        for number, level in enumerate(self._levels):
            if excess[number]:
                found = [
                    (self.excess_with(held, giver, taker), (giver, taker))
                    for giver, taker in level.options(held, self._opened)
                ]
                best = min((after for after, _ in found), default=excess)
                if best < excess:
                    return [option for after, option in found if after == best]
        return []

    def describe(self, held: Sequence[int], giver: int) -> str:
        """Where a broker stands that has one replica too many."""
        broker = self._brokers[giver]
        return f"rack {broker.rack}" if self.excess(held)[0] else f"the machine of broker {broker.node_id}"

    def keeps(self, held: Sequence[int], giver: int, taker: int) -> bool:
        """Whether the taker could have it, and its domains have no more than their part then."""
        return taker not in held and all(level.keeps(held, giver, taker) for level in self._mattering)


class _Level:
    def __init__(self, domains: Sequence[int], opened: Sequence[int]) -> None:
        self._of = domains
        self.count = len({domains[index] for index in opened})
        # Where each broker is alone in its domain, or all are in one, every choice is as good.
        self.matters = 1 < self.count < len(domains)

    def excess(self, held: Sequence[int]) -> int:
        if not self.matters:
            return 0
        found = [self._of[index] for index in held]
        bound = self._bound(len(found))
        return 0 if len({*found}) == len(found) else sum(n - bound for n in Counter(found).values() if n > bound)

    def options(self, held: Sequence[int], opened: Iterable[int]) -> list[tuple[int, int]]:
        of, bound = self._of, self._bound(len(held))
        counts = Counter(of[index] for index in held)
        givers = [index for index in reversed(held) if counts[of[index]] > bound]
        takers = [index for index in opened if counts[of[index]] < bound and index not in held]
        return [(giver, taker) for giver in givers for taker in takers]

    def keeps(self, held: Sequence[int], giver: int, taker: int) -> bool:
        of, domain = self._of, self._of[taker]
        if domain == of[giver]:
            return True
        count = 0
        for each in held:
            count += of[each] == domain
        return count < self._bound(len(held))

    def _bound(self, replicas: int) -> int:
        return math.ceil(replicas / max(1, self.count))


def _numbered(names: Sequence[str]) -> list[int]:
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return [numbers[name] for name in names]
