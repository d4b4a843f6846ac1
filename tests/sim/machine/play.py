"""A play: members of groups come, go, stall and die, answers are lost, coordinators change, all as a seed decides; then
everybody behaves, and the groups have to settle."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.coordinator.groups import Group
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.checks.coordinators import differences
from tailrace.sim.checks.groups import GroupChecks
from tailrace.sim.checks.history import demand
from tailrace.sim.random import SimRandom
from tests.sim.machine.bench import GroupBench
from tests.sim.machine.members import ClassicMember, ConsumerMember, ModelMember

_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
_ROUNDS = 250
_DISTURBANCE_CHANCE = 0.15
_MEMBERS_MAX = 5
# Sessions, rebalances of several rounds, and partitions that change hands one after the other.
_SETTLE_ROUNDS = 400
_SETTLE_STEP_MS = 100.0

KINDS: dict[str, tuple[str, ...]] = {
    "range": ("range",),
    "cooperative": ("cooperative",),
    "consumer": ("consumer",),
    "range and consumer": ("range", "consumer"),
    "cooperative and consumer": ("cooperative", "consumer"),
}


class Play:
    def __init__(self, seed: int, kind: str, *, static_share: float = 0.4) -> None:
        self.random = SimRandom(seed)
        self.kinds = KINDS[kind]
        self.static_share = static_share
        self.counts = {"orders": 1 + self.random.randrange(4), "events": 1 + self.random.randrange(3)}
        self.bench = GroupBench(self.random.fork(), self.counts, _SETTINGS)
        self.checks = GroupChecks(lambda: self.bench.now_ms / 1000)
        self.checks.of("readers").has_lasting_epochs = len(self.kinds) == 1
        self.members: list[ModelMember] = []
        self.stalled: dict[str, float] = {}
        self._names = 0
        self.settle_ms = 0.0

    def run(self) -> None:
        disturbances: list[Callable[[], None]] = [
            *[self._join] * 3,
            self._leave,
            self._die,
            self._stall,
            self._stall,
            *[self._lose_answer] * 4,
            self._fail_over,
        ]
        for _ in range(_ROUNDS):
            self._go_round()
            if self.random.random() < _DISTURBANCE_CHANCE:
                self.random.choice(disturbances)()
            if self.random.random() < 0.1:
                self.compare()
        self._grow()
        self.settle()

    def _go_round(self) -> None:
        """Somewhat in disorder."""
        for member in self.random.shuffled(self._alive()):
            if self.random.random() < 0.7:
                member.step()
            chance = self.random.random()
            if chance < 0.1:
                member.commit()
            elif chance < 0.15:
                member.fetch_offsets()
        self.bench.advance(self.random.between(0, 200))
        while self.random.random() < 0.7 and self.bench.step_work():
            pass

    # ---- what happens

    def _alive(self) -> list[ModelMember]:
        self.members = [member for member in self.members if not member.is_over]
        return [member for member in self.members if self.stalled.get(member.name, 0.0) <= self.bench.now_ms]

    def _pick(self) -> ModelMember | None:
        alive = self._alive()
        return self.random.choice(alive) if alive else None

    def _join(self) -> None:
        if len(self._alive()) >= _MEMBERS_MAX:
            return
        self._names += 1
        instance_id = None
        if self.random.random() < self.static_share:
            taken = {member.instance_id for member in self.members}
            free = [each for each in ("i-1", "i-2", "i-3") if each not in taken]
            instance_id = self.random.choice(free) if free else None
        kind = self.random.choice(self.kinds)
        facts = (self.bench, self.checks, "readers", f"m-{self._names}", instance_id)
        if kind == "consumer":
            self.members.append(ConsumerMember(*facts))
        else:
            self.members.append(ClassicMember(*facts, is_cooperative=kind == "cooperative"))

    def _leave(self) -> None:
        if (member := self._pick()) is not None:
            member.leave()

    def _die(self) -> None:
        if (member := self._pick()) is not None:
            member.die()

    def _stall(self) -> None:
        if (member := self._pick()) is not None:
            self.stalled[member.name] = self.bench.now_ms + self.random.between(100, 6000)

    def _lose_answer(self) -> None:
        if (member := self._pick()) is not None:
            member.lose_answer()

    def _fail_over(self) -> None:
        self.compare()
        self.bench.fail_over()

    def _grow(self) -> None:
        self.counts["orders"] += 1
        self.bench.change_image(dict(self.counts))

    # ---- what must hold

    def compare(self) -> None:
        for is_compacted in (False, True):
            found = differences(self.bench.machine, self.bench.replay(is_compacted=is_compacted))
            demand(not found, "the replay of the log gives the live state", is_compacted=is_compacted, found=found)

    def settle(self) -> None:
        """Everybody asks and hears ten times a second: the group becomes stable, and every partition has its owner."""
        self.stalled.clear()
        # What was parked when a connection broke is answered or asked again.
        for member in self.members:
            member.lose_answer()
        begun = self.bench.now_ms
        for _ in range(_SETTLE_ROUNDS):
            if not self._alive():
                self._join()
            for member in self._alive():
                member.step()
            self.bench.finish_work()
            self.bench.advance(_SETTLE_STEP_MS)
            if not self._unsettled():
                break
        self.settle_ms = self.bench.now_ms - begun
        demand(not self._unsettled(), "a group settles once everybody behaves", missing=self._unsettled())
        self.compare()

    def _unsettled(self) -> list[str]:
        alive = self._alive()
        group: Group | None = self.bench.machine.state.groups.get("readers")
        found = [] if group is not None and group.state_name == "Stable" else [f"state {group and group.state_name}"]
        owners: dict[TopicPartition, list[str]] = {
            TopicPartition(name, PartitionIndex(index)): []
            for name, count in self.counts.items()
            for index in range(count)
        }
        for member in alive:
            for partition in member.owned:
                owners.setdefault(partition, []).append(member.name)
        return found + [f"{partition}: {names}" for partition, names in owners.items() if len(names) != 1]
