"""One soft goal after the other: small changes of the table, each of which helps its goal and hurts none before it.

A change is one or two steps: a lead that goes to another replica, which copies nothing; a replica that goes to another
broker; two replicas that change places; or a lead that goes to a broker which gives one of its own to a third, as
brokers of one rack have no partition in common. For each broker outside of a goal's band a few promising changes are
compared, by what they do to all goals and by the bytes that they copy; the best is made. It ends when no broker is
outside, or no change helps one. The number of looks is bounded, so a plan always ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tailrace.balance.plan.picture import Resource
from tailrace.balance.plan.table import Table

# Brokers at the other end that are tried, and replicas that are tried with each.
_PARTNERS = 4
_TRIED = 8
_EPSILON = 1e-12
# What a byte that is copied counts for beside the goals, if it were all of a broker's share.
_COPY_COST = 0.02
# A later goal counts little: it has its own turn.
_LATER = 0.05
# A replica of a topic that the taker has more of than the giver counts still less.
_CROWDED = 0.0005
_OF_LEADERS = (Resource.NETWORK_OUT, Resource.LOOP, Resource.LEADERS)


class Step(NamedTuple):
    """A partition's replica goes from `giver` to `taker`; with `is_lead` only the lead does."""

    number: int
    giver: int
    taker: int
    is_lead: bool = False


Change = Sequence[Step]


class Search:
    """`added` are the only brokers that are given anything, if there are any, and then nothing is swapped."""

    def __init__(self, table: Table, fixed: set[int], added: frozenset[int]) -> None:
        self._table = table
        self._fixed = fixed
        self._takers = {table.index[each] for each in added if each in table.index} or set(table.opened)
        self._has_swaps = not added
        # Broker -> resource -> (amounts, partitions) in order.
        self._orders: list[dict[Resource, tuple[list[float], list[int]]]] = [{} for _ in table.brokers]

    def balance(self, resource: Resource) -> Iterator[int]:
        """Gives the partitions that it changes."""
        table = self._table
        stuck: set[int] = set()
        # Each look makes the goal better, or gives a broker up.
        for _ in range(4 * len(table.partitions) + 10 * len(table.brokers)):
            worst = max(
                (index for index in table.opened if index not in stuck),
                key=lambda index: table.penalty(resource, index, table.loads[index][resource]),
                default=None,
            )
            if worst is None or table.penalty(resource, worst, table.loads[worst][resource]) <= _EPSILON:
                return
            # The first partner with whom something helps will do.
            tried = (self._best(changes, resource) for changes in self._changes(resource, worst))
            change = next((each for each in tried if each is not None), None)
            if change is None:
                stuck.add(worst)
                continue
            yield from self.make(change)
            stuck.difference_update(*((step.giver, step.taker) for step in change))

    def balance_topics(self) -> Iterator[int]:
        """No broker has many more replicas of a topic than its share."""
        table = self._table
        numbers_of: list[list[int]] = [[] for _ in table.topics]
        for number, topic in enumerate(table.topic_of):
            numbers_of[topic].append(number)
        for topic, counts in enumerate(table.topic_counts):
            bound = table.topic_max[topic]
            for giver in [index for index in table.opened if counts[index] > bound]:
                for number in numbers_of[topic]:
                    if counts[giver] <= bound:
                        break
                    if giver in table.replicas[number] and number not in self._fixed:
                        change = self._best(self._changes_of_topic(number, giver, counts, bound), len(Resource))
                        yield from () if change is None else self.make(change)

    def make(self, change: Change) -> Iterator[int]:
        for number, giver, taker, is_lead in change:
            self._forget(number, giver)
            if is_lead:
                self._forget(number, taker)
                self._table.lead(number, taker)
                self._remember(number, giver)
            else:
                self._table.replace(number, giver, taker)
            self._remember(number, taker)
            yield number

    # ---- changes that may help

    def _changes(self, resource: Resource, worst: int) -> Iterator[Iterator[Change]]:
        """For each of its partners, those at the other end first."""
        table = self._table
        is_over = table.loads[worst][resource] > table.shares[resource][worst]
        partners = [index for index in table.opened if index != worst]
        partners.sort(key=lambda index: self._relative(resource, index), reverse=not is_over)
        if is_over:
            partners = [index for index in partners if index in self._takers]
        # Replicas go to other brokers of the rack, where racks are few; leads go to other racks.
        near = [index for index in partners if table.domains.racks[index] == table.domains.racks[worst]][:_PARTNERS]
        far = [index for index in partners if table.domains.racks[index] != table.domains.racks[worst]][:_PARTNERS]
        pairs = [(worst, each) if is_over else (each, worst) for each in near + far]
        for giver, taker in pairs if is_over or worst in self._takers else ():
            excess = table.loads[giver][resource] - table.shares[resource][giver]
            room = table.shares[resource][taker] - table.loads[taker][resource]
            if excess + room <= 0:
                continue
            yield self._changes_between(resource, giver, taker, max(min(excess, room), (excess + room) / 2))

    def _changes_between(self, resource: Resource, giver: int, taker: int, wanted: float) -> Iterator[Change]:
        if resource in _OF_LEADERS:
            yield from self._leads(giver, taker)
            if self._has_swaps:
                yield from self._leads_over_another(giver, taker)
                yield from self._lead_swaps(resource, giver, taker, wanted)
        yield from self._moves(resource, giver, taker, wanted)
        if self._has_swaps and resource < Resource.LEADERS:
            yield from self._swaps(resource, giver, taker, wanted)
        elif self._has_swaps and resource is Resource.REPLICAS:
            yield from self._two_for_one(giver, taker)

    def _relative(self, resource: Resource, index: int) -> float:
        share = self._table.shares[resource][index]
        return self._table.loads[index][resource] / share if share else 0.0

    def _leads(self, giver: int, taker: int) -> Iterator[Change]:
        shared = (number for number in self._led_by(giver) if taker in self._table.replicas[number])
        for number in islice(shared, 4 * _TRIED):
            yield (Step(number, giver, taker, is_lead=True),)

    def _leads_over_another(self, giver: int, taker: int) -> Iterator[Change]:
        replicas = self._table.replicas
        led = self._led_by(giver)
        for number in led[:: max(1, len(led) // _TRIED)]:
            for between in replicas[number][1:]:
                if between == taker or not self._table.is_open[between]:
                    continue
                own = (each for each in self._led_by(between) if taker in replicas[each] and each != number)
                for other in islice(own, 3):
                    yield Step(number, giver, between, is_lead=True), Step(other, between, taker, is_lead=True)

    def _lead_swaps(self, resource: Resource, giver: int, taker: int, wanted: float) -> Iterator[Change]:
        """One lead for another, or of counts two for one, so that what goes out stays nearly the same."""
        given = self._shared_leads(giver, taker)
        taken = self._shared_leads(taker, giver)
        if not given or not taken:
            return
        outs = [pair[0] for pair in given]
        for out, back in taken[:: max(1, len(taken) // _TRIED)]:
            returned = Step(back, taker, giver, is_lead=True)
            if resource is not Resource.LEADERS:
                place = bisect_left(outs, out + (wanted if resource is Resource.NETWORK_OUT else 0.0))
                for _, number in given[max(0, place - 3) : place + 3]:
                    yield Step(number, giver, taker, is_lead=True), returned
                continue
            for first, number in given[:: max(1, len(given) // _TRIED)]:
                place = min(bisect_left(outs, out - first), len(given) - 1)
                if (other := given[place][1]) != number:
                    steps = (Step(number, giver, taker, is_lead=True), Step(other, giver, taker, is_lead=True))
                    yield *steps, returned

    def _shared_leads(self, leader: int, follower: int) -> list[tuple[float, int]]:
        """What the one leads and the other follows, by what goes out."""
        outs, numbers = self._order(leader, Resource.LEADERS)
        replicas = self._table.replicas
        return [pair for pair in zip(outs, numbers, strict=True) if follower in replicas[pair[1]]]

    def _moves(self, resource: Resource, giver: int, taker: int, wanted: float) -> Iterator[Change]:
        held = self._table.held[taker]
        near = (number for number in self._near(giver, resource, wanted) if number not in held)
        for number in islice(near, _TRIED):
            yield (Step(number, giver, taker),)

    def _swaps(self, resource: Resource, giver: int, taker: int, wanted: float) -> Iterator[Change]:
        """A larger one for a smaller one, so that about `wanted` goes over."""
        replicas = self._table.replicas
        amounts, numbers = self._order(giver, resource)
        begin = bisect_left(amounts, wanted)
        for place in range(begin, len(numbers), max(1, (len(numbers) - begin) // _TRIED)):
            number = numbers[place]
            if taker not in replicas[number]:
                near = self._near(taker, resource, amounts[place] - wanted)
                for back in islice((each for each in near if giver not in replicas[each]), 3):
                    yield Step(number, giver, taker), Step(back, taker, giver)

    def _two_for_one(self, giver: int, taker: int) -> Iterator[Change]:
        """Two small replicas for a large one: a count that changes, and bytes that hardly do."""
        replicas = self._table.replicas
        sizes, numbers = self._order(giver, Resource.DISK)
        back_sizes, backs = self._order(taker, Resource.DISK)
        for size, back in list(zip(back_sizes, backs, strict=True))[:: max(1, len(backs) // _TRIED)]:
            if giver in replicas[back]:
                continue
            for place in range(0, len(numbers), max(1, len(numbers) // _TRIED)):
                number = numbers[place]
                near = islice(self._near(giver, Resource.DISK, size - sizes[place]), 6)
                other = next((each for each in near if each != number and taker not in replicas[each]), None)
                if other is not None and taker not in replicas[number]:
                    yield Step(number, giver, taker), Step(other, giver, taker), Step(back, taker, giver)

    def _changes_of_topic(self, number: int, giver: int, counts: list[int], bound: int) -> Iterator[Change]:
        table = self._table
        topic = table.topic_of[number]
        size = table.partitions[number].size_bytes
        takers = sorted((each for each in self._takers if counts[each] < bound), key=counts.__getitem__)[:_PARTNERS]
        for taker in takers:
            yield (Step(number, giver, taker),)
            if self._has_swaps:
                near = self._near(taker, Resource.DISK, size)
                others = (each for each in near if table.topic_of[each] != topic and giver not in table.replicas[each])
                for back in islice(others, 4):
                    yield Step(number, giver, taker), Step(back, taker, giver)

    def _led_by(self, broker: int) -> list[int]:
        return self._order(broker, Resource.LEADERS)[1]

    def _near(self, broker: int, resource: Resource, wanted: float) -> Iterator[int]:
        """The replicas of a broker whose load is next to an amount, nearest first; of counts in their order."""
        amounts, numbers = self._order(broker, resource)
        if resource >= Resource.LEADERS:
            yield from numbers
            return
        above = bisect_left(amounts, wanted)
        below = above - 1
        while below >= 0 or above < len(numbers):
            if above >= len(numbers) or (below >= 0 and wanted - amounts[below] <= amounts[above] - wanted):
                yield numbers[below]
                below -= 1
            else:
                yield numbers[above]
                above += 1

    def _order(self, broker: int, resource: Resource) -> tuple[list[float], list[int]]:
        """What a broker holds, or of leaders what it leads, by how much it is; kept in order from then on."""
        found = self._orders[broker].get(resource)
        if found is None:
            numbers = self._table.held[broker] - self._fixed
            keys = ((self._key(number, broker, resource), number) for number in numbers)
            pairs = sorted(pair for pair in keys if pair[0] is not None)
            found = self._orders[broker][resource] = [pair[0] or 0.0 for pair in pairs], [pair[1] for pair in pairs]
        return found

    def _key(self, number: int, broker: int, resource: Resource) -> float | None:
        """None for one that has no place in such an order."""
        is_led = self._table.replicas[number][0] == broker
        if resource is Resource.LEADERS and not is_led:
            return None
        if resource is Resource.REPLICAS:
            return self._table.places[number]
        # Of leads, those that weigh little on the goals before.
        return self._table.vectors[number][not is_led][
            Resource.NETWORK_OUT if resource is Resource.LEADERS else resource
        ]

    def _forget(self, number: int, broker: int) -> None:
        for resource, (amounts, numbers) in self._orders[broker].items():
            key = self._key(number, broker, resource)
            if key is not None:
                place = numbers.index(number, bisect_left(amounts, key))
                del amounts[place], numbers[place]

    def _remember(self, number: int, broker: int) -> None:
        for resource, (amounts, numbers) in self._orders[broker].items():
            key = self._key(number, broker, resource)
            if key is not None:
                place = bisect_left(amounts, key)
                amounts.insert(place, key)
                numbers.insert(place, number)

    # ---- which of them is best

    def _best(self, changes: Iterator[Change], resource: int) -> Change | None:
        best, best_score = None, float("inf")
        for change in changes:
            score = self._score(change, resource)
            if score is not None and score < best_score:
                best, best_score = change, score
        return best

    def _score(self, change: Change, resource: int) -> float | None:
        """Less is better; None if a hard goal or an earlier one would suffer, or this one does not gain."""
        table = self._table
        copied = crowded = 0.0
        sums: dict[int, list[float]] = {}
        for number, giver, taker, is_lead in change:
            if is_lead:
                vector = table.lead_vector(number)
            else:
                if not table.domains.keeps(table.replicas[number], giver, taker):
                    return None
                vector = table.vector_on(number, giver)
                copied += table.partitions[number].size_bytes
                topic = table.topic_of[number]
                counts = table.topic_counts[topic]
                crowded += (counts[taker] - counts[giver] + 1) / table.topic_max[topic]
            given, taken = sums.get(giver), sums.get(taker)
            lost = [-each for each in vector]
            sums[giver] = lost if given is None else [a - b for a, b in zip(given, vector, strict=True)]
            sums[taker] = list(vector) if taken is None else [a + b for a, b in zip(taken, vector, strict=True)]
        gains = [0.0] * len(Resource)
        for broker, difference in sums.items():
            load, caps = table.loads[broker], table.caps[broker]
            for each, amount in enumerate(difference):
                if amount:
                    old = load[each]
                    if amount > 0 and old + amount > caps[each]:
                        return None
                    gains[each] += table.penalty(each, broker, old + amount) - table.penalty(each, broker, old)
        if any(gain > _EPSILON for gain in gains[:resource]):
            return None
        if resource < len(Resource) and gains[resource] >= -_EPSILON:
            return None
        score = sum(gains[resource : resource + 1]) + _LATER * sum(gains[resource + 1 :])
        if copied:
            share = table.shares[Resource.DISK][change[0].taker]
            score += _COPY_COST * abs(score) * min(1.0, copied / share) if share else 0.0
        return score + _CROWDED * crowded
