"""`decide_plan`: the moves that a cluster needs, hard goals first.

    factors     replicas are added or taken away, as asked
    drains      what lies on brokers that are to be empty goes elsewhere
    domains     no rack, and no machine, has more of a partition than its part
    capacity    no broker carries more than it may
    spread      of load, then of leaders, replicas and topics
    bytes       a move that turned out not to be needed is taken back

What the hard goals need and the cluster does not have is told as a problem; then nobody should move anything. The same
picture gives the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.balance.plan.domains import Excess
from tailrace.balance.plan.picture import (
    LOADS,
    WORDS,
    Goals,
    Move,
    Picture,
    Plan,
    Resource,
    Spread,
    Wish,
)
from tailrace.balance.plan.search import Search, Step
from tailrace.balance.plan.table import Table

# A goal may leave work for one before it, so all of it is gone through again; then hardly anything is left.
_ROUNDS = 3
# A goal outside of its bound is balanced to a bit less: later goals have some room, and so has tomorrow.
_INNER = 0.8
# Problems and remarks that are told in full.
_TOLD_MAX = 10


def decide_plan(picture: Picture, goals: Goals, wish: Wish) -> Plan:
    return _Decision(picture, goals, wish).decide()


class _Decision:
    def __init__(self, picture: Picture, goals: Goals, wish: Wish) -> None:
        self._goals = goals
        self._wish = wish
        self._table = Table(picture, goals, wish)
        self._original = [list(held) for held in self._table.replicas]
        self._reasons: dict[int, str] = {}
        self._problems: list[str] = []
        self._remarks: list[str] = []
        self._fixed = self._find_fixed()

    def _find_fixed(self) -> set[int]:
        """Partitions that stay as they are: another reassignment has them, or they wait for a broker that is down."""
        table = self._table
        away = {index for index, broker in enumerate(table.brokers) if not broker.is_live}
        away -= {table.index[each] for each in self._wish.drained if each in table.index}
        fixed, waiting = set(), 0
        for number, state in enumerate(table.partitions):
            if state.pinned is not None:
                fixed.add(number)
                self._remarks.append(f"{state.partition} stays: {state.pinned}")
            elif len(table.replicas[number]) < len(state.replicas) or not away.isdisjoint(table.replicas[number]):
                fixed.add(number)
                waiting += 1
        if waiting:
            names = ", ".join(str(table.brokers[index].node_id) for index in sorted(away))
            self._remarks.append(f"{waiting} partitions stay: they have replicas on brokers that are down ({names})")
        return fixed

    def decide(self) -> Plan:
        table = self._table
        before = table.spreads()
        unknown = sorted((self._wish.drained | self._wish.added) - table.index.keys())
        if unknown:
            known = ", ".join(map(str, table.index))
            self._problems.append(f"there is no broker {unknown[0]}: the cluster has {known}")
        elif not table.opened:
            self._problems.append("no broker is left that could hold a replica")
        else:
            self._meet_factors()
            self._meet_drains()
            table.set_bands(self._goals)
            self._meet_domains()
            self._meet_capacity()
            if not self._problems and not self._wish.must_only:
                self._balance()
            self._find_overloaded()
        after = table.spreads()
        if not self._problems and not self._wish.must_only:
            self._tell_unmet(after)
        return Plan(
            tuple(self._moves()), before, after, tuple(self._problems[:_TOLD_MAX]), tuple(self._remarks[:_TOLD_MAX])
        )

    # ---- hard goals

    def _meet_factors(self) -> None:
        table = self._table
        for number, state in enumerate(table.partitions):
            wanted = self._wish.factors.get(state.partition.topic)
            if wanted is None or number in self._fixed:
                continue
            while len(table.replicas[number]) > max(1, wanted):
                table.shrink(number, self._least_needed(number))
                self._reasons[number] = f"{wanted} replicas"
            while len(table.replicas[number]) < wanted:
                taker = self._best_taker(number, None)
                if taker is None:
                    self._problems.append(self._no_room(number, f"cannot have {wanted} replicas"))
                    return
                table.grow(number, taker)
                self._reasons[number] = f"{wanted} replicas"

    def _least_needed(self, number: int) -> int:
        """A broker that is drained, then one that has another replica near it, then the fullest; never the leader."""
        table = self._table
        held = table.replicas[number]

        def need(each: int) -> tuple[bool, Excess, float]:
            rest = [other for other in held if other != each]
            return table.is_open[each], table.domains.excess(rest), -table.loads[each][Resource.DISK]

        return min(held[1:], key=need)

    def _meet_drains(self) -> None:
        table = self._table
        drained = [table.index[each] for each in sorted(self._wish.drained)]
        for giver in drained:
            numbers = sorted(table.held[giver], key=lambda each: (-table.partitions[each].size_bytes, each))
            for number in numbers:
                state = table.partitions[number]
                if number in self._fixed:
                    why = state.pinned or "another of its replicas is on a broker that is down"
                    self._problems.append(f"broker {_id(table, giver)} cannot be emptied: {state.partition}: {why}")
                    continue
                if len(table.replicas[number]) == 1 and not table.brokers[giver].is_live:
                    self._problems.append(
                        f"{state.partition} has its only replica on broker {_id(table, giver)}, which is down: "
                        "start it again first"
                    )
                    continue
                taker = self._best_taker(number, giver)
                if taker is None:
                    self._problems.append(self._no_room(number, f"cannot leave broker {_id(table, giver)}"))
                    continue
                table.replace(number, giver, taker)
                self._reasons[number] = f"broker {_id(table, giver)} is emptied"

    def _meet_domains(self) -> None:
        table = self._table
        for number in range(len(table.partitions)):
            while number not in self._fixed and any(table.domains.excess(table.replicas[number])):
                options = table.domains.options(table.replicas[number])
                if not options:
                    break  # There are too few brokers elsewhere: it cannot be better than this.
                fitting = [each for each in options if table.fits(each[1], table.vector_on(number, each[0]))]
                # One that is too full for it is relieved of others.
                giver, taker = min(fitting or options, key=lambda each: self._fullness(each[1]))
                where = table.domains.describe(table.replicas[number], giver)
                table.replace(number, giver, taker)
                self._reasons[number] = f"{where} had too many of its replicas"

    def _meet_capacity(self) -> None:
        """Largest first from the broker that is over its bound the most."""
        table = self._table
        for resource in LOADS:
            for giver in table.opened:
                bound = table.caps[giver][resource]
                if table.loads[giver][resource] <= bound:
                    continue
                for number in sorted(
                    table.held[giver] - self._fixed, key=lambda each: -table.vector_on(each, giver)[resource]
                ):
                    if table.loads[giver][resource] <= bound:
                        break
                    self._relieve(resource, number, giver)

    def _find_overloaded(self) -> None:
        table = self._table
        for resource in LOADS:
            for index in table.opened:
                if table.loads[index][resource] > table.caps[index][resource]:
                    self._problems.append(self._over(resource, index))

    def _relieve(self, resource: Resource, number: int, giver: int) -> None:
        table = self._table
        held = table.replicas[number]
        reason = f"broker {_id(table, giver)} is over its bound of {WORDS[resource]}"
        if held[0] == giver and table.lead_vector(number)[resource]:
            heirs = [each for each in held[1:] if table.is_open[each] and table.fits(each, table.lead_vector(number))]
            if heirs:
                table.lead(number, min(heirs, key=self._fullness))
                self._reasons[number] = reason
                return
        taker = self._best_taker(number, giver)
        if taker is not None and table.vector_on(number, giver)[resource]:
            table.replace(number, giver, taker)
            self._reasons[number] = reason

    def _best_taker(self, number: int, giver: int | None) -> int | None:
        """Who has room: not into fewer racks and machines if that can be helped, then the emptiest."""
        table = self._table
        held = table.replicas[number]
        vector = table.vectors[number][1] if giver is None else table.vector_on(number, giver)
        excess = table.domains.excess(held)
        options = [
            each
            for each in table.opened
            if each not in held
            and table.fits(each, vector)
            and (giver is None or not table.is_open[giver] or table.domains.excess_with(held, giver, each) <= excess)
        ]
        if not options:
            return None
        topic = table.topic_counts[table.topic_of[number]]

        def rank(each: int) -> tuple[Excess, float, int, int]:
            after = [*held, each] if giver is None else [each if other == giver else other for other in held]
            return table.domains.excess(after), self._fullness(each), topic[each], each

        return min(options, key=rank)

    def _fullness(self, broker: int) -> float:
        """The most that it carries of any of its shares, in steps that leave the choice to what comes next."""
        table = self._table
        parts = [table.loads[broker][each] / share for each in Resource if (share := table.shares[each][broker]) > 0]
        return round(max(parts, default=0.0), 2)

    def _no_room(self, number: int, what: str) -> str:
        table = self._table
        state = table.partitions[number]
        free = [each for each in table.opened if each not in table.replicas[number]]
        if not free:
            return (
                f"{state.partition} {what}: it has {len(table.replicas[number])} replicas, and of the "
                f"{len(table.opened)} brokers that may hold one no other is left. Add a broker first, or take a "
                "replica away"
            )
        vector = table.vectors[number][0]
        short = sorted(
            {
                WORDS[each]
                for each in LOADS
                for index in free
                if table.loads[index][each] + vector[each] > table.caps[index][each]
            }
        )
        return (
            f"{state.partition} {what}: no broker has the capacity for it ({', '.join(short)}; it has "
            f"{state.size_bytes:,.0f} bytes). Add a broker or disks, or raise the bound"
        )

    def _over(self, resource: Resource, broker: int) -> str:
        table = self._table
        total = sum(load[resource] for load in table.loads)
        room = sum(table.caps[each][resource] for each in table.opened)
        return (
            f"broker {_id(table, broker)} is over its bound of {WORDS[resource]}: {table.loads[broker][resource]:,.6g} "
            f"of {table.caps[broker][resource]:,.6g}, and no other broker can take enough of it (all brokers together "
            f"carry {total:,.6g}, and may carry {room:,.6g}). Add a broker, or raise the bound"
        )

    # ---- soft goals

    def _balance(self) -> None:
        table, search = self._table, Search(self._table, self._fixed, self._wish.added)
        for _ in range(_ROUNDS):
            changed = 0
            for resource in Resource:
                worst, bound = table.spread(resource).worst, self._goals.spread_max
                if worst > bound:
                    table.set_band(resource, bound * _INNER)
                    changed += self._note(search.balance(resource), f"{WORDS[resource]} {worst:.0%} from even")
                    table.set_band(resource, bound)
            changed += self._note(search.balance_topics(), "replicas of its topic")
            if not changed:
                break
        self._take_back(search)

    def _note(self, numbers: Iterator[int], reason: str) -> int:
        count = 0
        for number in numbers:
            self._reasons.setdefault(number, reason)
            count += 1
        return count

    def _take_back(self, search: Search) -> None:
        """Largest first: what no goal misses goes back to where it was, and is not copied."""
        table = self._table
        moved = [number for number, held in enumerate(table.replicas) if {*held} != {*self._original[number]}]
        for number in sorted(moved, key=lambda each: -table.partitions[each].size_bytes):
            old, held = self._original[number], table.replicas[number]
            for broker in [each for each in held if each not in old]:
                for home in [each for each in old if each not in held and table.is_open[each]]:
                    step = Step(number, broker, home)
                    if len(old) == len(held) and self._costs_nothing(step):
                        list(search.make([step]))
                        break

    def _costs_nothing(self, step: Step) -> bool:
        table = self._table
        number, giver, taker, _ = step
        vector = table.vector_on(number, giver)
        topic = table.topic_of[number]
        return (
            table.fits(taker, vector)
            and table.domains.keeps(table.replicas[number], giver, taker)
            and table.topic_counts[topic][taker] < table.topic_max[topic]
            and all(
                table.penalty(each, giver, table.loads[giver][each] - amount)
                + table.penalty(each, taker, table.loads[taker][each] + amount)
                <= table.penalty(each, giver, table.loads[giver][each])
                + table.penalty(each, taker, table.loads[taker][each])
                + 1e-12
                for each, amount in enumerate(vector)
                if amount
            )
        )

    def _tell_unmet(self, after: Iterable[Spread]) -> None:
        table = self._table
        for spread in after:
            if spread.worst <= self._goals.spread_max or spread.resource not in LOADS:
                continue
            largest = max(vectors[0][spread.resource] for vectors in table.vectors)
            share = table.shares[spread.resource][table.index[spread.node_id]]
            self._remarks.append(
                f"{WORDS[spread.resource]} stays {spread.worst:.0%} from even at broker {spread.node_id}: no allowed "
                f"move makes it better (the largest partition is {largest / share:.0%} of a broker's share)"
            )

    # ---- what comes of it

    def _moves(self) -> Iterator[Move]:
        table = self._table
        for number, state in enumerate(table.partitions):
            if number in self._fixed:
                continue
            new = self._in_old_order(number)
            if new != state.replicas:
                copied = round(state.size_bytes) * len({*new} - {*state.replicas})
                yield Move(state.partition, state.replicas, new, copied, self._reasons.get(number, "leaders"))

    def _in_old_order(self, number: int) -> tuple[int, ...]:
        """The leader first; the others where they were, and new ones in the places that are left."""
        new = self._table.node_ids(number)
        old = self._table.partitions[number].replicas
        followers = list(new[1:])
        places: list[int | None] = [node if node in followers else None for node in old[1 : len(new)]]
        places += [None] * (len(followers) - len(places))
        rest = [node for node in followers if node not in places]
        return (new[0], *(rest.pop(0) if node is None else node for node in places))


def _id(table: Table, index: int) -> int:
    return table.brokers[index].node_id
