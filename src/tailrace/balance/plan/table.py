"""The arithmetic of a plan in the making: who holds what, what each broker carries, and how bad that is.

Brokers and partitions are numbered from 0 here. `penalty` says how far a broker is outside of a goal's band; within
the band it is 0, so that a later goal may use the room that an earlier one leaves. A change of the table is one of two:
`replace` gives one broker's replica to another, and `lead` lets another of its replicas be the preferred leader.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tailrace.balance.plan.domains import Domains
from tailrace.balance.plan.picture import (
    LOADS,
    BrokerState,
    Goals,
    PartitionState,
    Picture,
    Resource,
    Spread,
    Wish,
)

Vector = tuple[float, ...]  # One number for each Resource.
_NOTHING = 1e-9


class Table:
    def __init__(self, picture: Picture, goals: Goals, wish: Wish) -> None:
        self.brokers: list[BrokerState] = sorted(picture.brokers)
        self.index = {broker.node_id: index for index, broker in enumerate(self.brokers)}
        self.partitions: list[PartitionState] = sorted(picture.partitions, key=lambda each: each.partition)
        # Who may be given replicas.
        self.is_open = [broker.is_live and broker.node_id not in wish.drained for broker in self.brokers]
        self.opened = [index for index, is_open in enumerate(self.is_open) if is_open]
        self.domains = Domains(self.brokers, self.opened)
        self.replicas = [[self.index[node] for node in each.replicas if node in self.index] for each in self.partitions]
        self.topics = {name: number for number, name in enumerate(sorted({p.partition.topic for p in self.partitions}))}
        self.topic_of = [self.topics[each.partition.topic] for each in self.partitions]
        # Where a partition stands among those of its topic: the first of all in this order are the first of each.
        sizes = Counter(self.topic_of)
        counts: Counter[int] = Counter()
        self.places: list[float] = []
        for topic in self.topic_of:
            self.places.append((counts[topic] + 0.5) / sizes[topic])
            counts[topic] += 1
        self.vectors = [_vectors(each, len(held)) for each, held in zip(self.partitions, self.replicas, strict=True)]
        self.held: list[set[int]] = [set() for _ in self.brokers]
        self.loads = [[0.0] * len(Resource) for _ in self.brokers]
        self.topic_counts = [[0] * len(self.brokers) for _ in self.topics]
        for number, held in enumerate(self.replicas):
            for place, broker in enumerate(held):
                self._add(number, broker, self.vectors[number][place > 0], 1)
        self.caps = [self._caps_of(broker, goals) for broker in self.brokers]
        self.weights = self._weights()
        self.set_bands(goals)

    def _caps_of(self, broker: BrokerState, goals: Goals) -> list[float]:
        bounds = [broker.capacity.get(each, math.inf) * goals.use_max.get(each, 1.0) for each in LOADS]
        return [*bounds, math.inf, math.inf]

    def _weights(self) -> list[list[float]]:
        """By resource and broker: its share of the whole, for a broker that may hold more should."""
        weights = []
        for resource in Resource:
            sizes = [self.brokers[index].capacity.get(resource) for index in self.opened]
            known = [size for size in sizes if size]
            mean = sum(known) / len(known) if known else 1.0
            row = [0.0] * len(self.brokers)
            for index, size in zip(self.opened, sizes, strict=True):
                row[index] = (size or mean) / mean if len(known) == len(sizes) else 1.0
            weights.append(row)
        return weights

    def set_bands(self, goals: Goals) -> None:
        """The shares, and from where to where a broker may be. All that lies on brokers that are drained or down counts
        as well: it belongs to the others."""
        self.shares: list[list[float]] = [self._shares_of(each, goals.negligible.get(each, 0.0)) for each in Resource]
        self.bands: list[list[tuple[float, float]]] = [[] for _ in Resource]
        for resource in Resource:
            self.set_band(resource, goals.spread_max)
        sums = [sum(counts) for counts in self.topic_counts]
        opened = max(1, len(self.opened))
        self.topic_max = [math.ceil(each / opened) + 1 for each in sums]

    def set_band(self, resource: Resource, width: float) -> None:
        is_count = resource >= Resource.LEADERS
        self.bands[resource] = [_band(share, width, is_count=is_count) for share in self.shares[resource]]

    def _shares_of(self, resource: Resource, negligible: float) -> list[float]:
        """By weight, but a rack is not given more than it may have of the partitions; the other racks get the rest."""
        total = sum(load[resource] for load in self.loads)
        weights = self.weights[resource]
        shares = [0.0] * len(weights)
        brokers_of: dict[str | None, list[int]] = {}
        for index in self.opened:
            brokers_of.setdefault(self.brokers[index].rack, []).append(index)
        bound = self._rack_bound(resource) if len(brokers_of) > 1 else math.inf
        left = dict(brokers_of) if total > negligible * len(self.opened) else {}
        while left:
            weight = sum(weights[index] for indexes in left.values() for index in indexes) or 1.0
            part = total / weight
            over = [
                name for name, each in left.items() if part * sum(weights[index] for index in each) > bound * (1 + 1e-9)
            ]
            for name in over or left:
                here = sum(weights[index] for index in left[name])
                for index in left[name]:
                    shares[index] = weights[index] * (bound / here if over else part)
            if not over:
                break
            total -= bound * len(over)
            left = {name: each for name, each in left.items() if name not in over}
        return shares

    def _rack_bound(self, resource: Resource) -> float:
        """What one rack may carry: of each partition its part of the replicas, with the leader among them."""
        racks = self.domains.rack_count
        bound = 0.0
        for (leads, follows), held in zip(self.vectors, self.replicas, strict=True):
            if held:
                bound += leads[resource] + follows[resource] * (math.ceil(len(held) / racks) - 1)
        return bound

    # ---- changes

    def replace(self, number: int, giver: int, taker: int) -> None:
        held = self.replicas[number]
        place = held.index(giver)
        vector = self.vectors[number][place > 0]
        self._add(number, giver, vector, -1)
        self._add(number, taker, vector, 1)
        held[place] = taker

    def lead(self, number: int, leader: int) -> None:
        held = self.replicas[number]
        place, old = held.index(leader), held[0]
        difference = self.lead_vector(number)
        held[0], held[place] = leader, old
        for resource, amount in enumerate(difference):
            self.loads[old][resource] -= amount
            self.loads[leader][resource] += amount

    def grow(self, number: int, taker: int) -> None:
        self._recount(number, [*self.replicas[number], taker])

    def shrink(self, number: int, giver: int) -> None:
        self._recount(number, [each for each in self.replicas[number] if each != giver])

    def _recount(self, number: int, held: list[int]) -> None:
        """With another replication factor a leader sends more or less."""
        for place, broker in enumerate(self.replicas[number]):
            self._add(number, broker, self.vectors[number][place > 0], -1)
        self.replicas[number] = held
        self.vectors[number] = _vectors(self.partitions[number], len(held))
        for place, broker in enumerate(held):
            self._add(number, broker, self.vectors[number][place > 0], 1)

    def _add(self, number: int, broker: int, vector: Vector, sign: int) -> None:
        load = self.loads[broker]
        for resource, amount in enumerate(vector):
            load[resource] += sign * amount
        self.topic_counts[self.topic_of[number]][broker] += sign
        (self.held[broker].add if sign > 0 else self.held[broker].discard)(number)

    # ---- looks

    def lead_vector(self, number: int) -> Vector:
        """What goes to another broker with the lead."""
        leads, follows = self.vectors[number]
        return (0.0, 0.0, leads[2], leads[3] - follows[3], 1.0, 0.0)

    def vector_on(self, number: int, broker: int) -> Vector:
        return self.vectors[number][self.replicas[number][0] != broker]

    def penalty(self, resource: int, broker: int, amount: float) -> float:
        """Of a broker that carried this amount: squared, in parts of its share."""
        share = self.shares[resource][broker]
        if share <= _NOTHING:
            return 0.0
        low, high = self.bands[resource][broker]
        outside = amount - high if amount > high else low - amount if amount < low else 0.0
        return (outside / share) ** 2 if outside else 0.0

    def spread(self, resource: Resource) -> Spread:
        """Among the brokers that may be given replicas."""
        worst, node_id = 0.0, -1
        for index in self.opened:
            share = self.shares[resource][index]
            if share > _NOTHING:
                distance = abs(self.loads[index][resource] - share)
                if resource >= Resource.LEADERS and distance < 1.0:
                    distance = 0.0  # It cannot be more even.
                if distance / share > worst:
                    worst, node_id = distance / share, self.brokers[index].node_id
        return Spread(resource, worst, node_id)

    def spreads(self) -> tuple[Spread, ...]:
        return tuple(self.spread(each) for each in Resource if any(share > _NOTHING for share in self.shares[each]))

    def fits(self, broker: int, vector: Sequence[float]) -> bool:
        """Whether a broker could carry this too; nothing is added to one that carries too much already."""
        load, caps = self.loads[broker], self.caps[broker]
        return all(not amount or load[each] + amount <= caps[each] for each, amount in enumerate(vector))

    def node_ids(self, number: int) -> tuple[int, ...]:
        return tuple(self.brokers[index].node_id for index in self.replicas[number])


def _vectors(state: PartitionState, factor: int) -> tuple[Vector, Vector]:
    """What a leader carries, and what a follower does."""
    sent = state.out_rate + state.in_rate * max(0, factor - 1)
    leads = (state.size_bytes, state.in_rate, sent, state.leader_loop, 1.0, 1.0)
    follows = (state.size_bytes, state.in_rate, 0.0, state.follower_loop, 0.0, 1.0)
    return leads, follows


def _band(share: float, width: float, *, is_count: bool) -> tuple[float, float]:
    low, high = share * (1 - width), share * (1 + width)
    return (min(low, math.floor(share)), max(high, math.ceil(share))) if is_count else (low, high)
