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
from tests.sim.machine.streams import CHANGELOG, StreamsMember

_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "300",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
}
_ROUNDS = 250
_DISTURBANCE_CHANCE = 0.15
_GROWTH_CHANCE = 0.01
_COMPARISON_CHANCE = 0.03
_DELETION_CHANCE = 0.3
_MEMBERS_MAX = 5
# Sessions, rebalances of several rounds, and partitions that change hands one after the other.
_SETTLE_ROUNDS = 400
_SETTLE_STEP_MS = 100.0
# Longer than any deadline, but for those of offsets: expressions are looked at every ten minutes.
_LONGEST_MS = 700_000.0
_RETENTION_MS = 8 * 86_400_000.0

KINDS: dict[str, tuple[str, ...]] = {
    "range": ("range",),
    "cooperative": ("cooperative",),
    "consumer": ("consumer",),
    "range and consumer": ("range", "consumer"),
    "cooperative and consumer": ("cooperative", "consumer"),
    "streams": ("streams",),
}


class Play:
    def __init__(self, seed: int, kind: str, *, static_share: float = 0.4) -> None:
        self.random = SimRandom(seed)
        self.kinds = KINDS[kind]
        self.static_share = static_share
        self.counts = {"orders": 1 + self.random.randrange(4), "events": 1 + self.random.randrange(3)}
        self.has_streams = "streams" in self.kinds
        self.bench = GroupBench(self.random.fork(), self._topics(), _SETTINGS)
        self.checks = GroupChecks(lambda: self.bench.now_ms / 1000)
        self.copies = GroupChecks(lambda: self.bench.now_ms / 1000)
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
            if self.random.random() < _COMPARISON_CHANCE:
                self.compare()
            if self.random.random() < _GROWTH_CHANCE:
                self._grow()
        self.settle()
        if not self.has_streams and self.random.random() < _DELETION_CHANCE:
            self._delete()
            self.settle()
        self.end()

    def _go_round(self) -> None:
        """Somewhat in disorder. Who has stalled was about to commit."""
        for member in self._alive():
            if self.stalled.pop(member.name, None) is not None:
                member.commit()
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
        if kind == "streams":
            process = self.random.choice(("p-1", "p-2", "p-3"))
            self.members.append(StreamsMember(*facts[:-1], None, process=process, copies=self.copies))
            return
        if kind == "consumer":
            member = ConsumerMember(*facts)
            if self.random.random() < 0.3:
                member.regex = "(orders|even.s)"
            elif self.random.random() < 0.2 and len(self.kinds) == 1:
                member.topics = [self.random.choice(sorted(self.counts))]
            self.members.append(member)
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
        self.bench.change_image(self._topics())

    def _delete(self) -> None:
        del self.counts["events"]
        self.bench.change_image(self._topics())

    def _topics(self) -> dict[str, int]:
        """With those that an application has made for itself."""
        return {**self.counts, CHANGELOG: self.counts["events"]} if self.has_streams else dict(self.counts)

    # ---- what must hold

    def compare(self) -> None:
        size = len(self.bench.log)
        for compacted_to in (0, self.random.randrange(size + 1), size):
            found = differences(self.bench.machine, self.bench.replay(compacted_to=compacted_to))
            demand(not found, "the replay of the log gives the live state", compacted_to=compacted_to, found=found)

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

    def end(self) -> None:
        """Everybody leaves: nothing is left that would happen by itself, but for offsets, which expire one day."""
        for member in self._alive():
            member.leave()
        for _ in range(100):
            self._let_pass(_SETTLE_STEP_MS)
        self._let_pass(_LONGEST_MS)
        state = self.bench.machine.state
        group = state.groups.get("readers")
        demand(group is None or group.is_empty, "a group that all have left is empty", state=group and group.state_name)
        left = [due for due in state.deadlines._due if not due[1].startswith("offsets.")]
        demand(not left and not state.work, "an empty group has nothing to do", deadlines=left, work=list(state.work))
        demand(not self.bench.open_count, "everybody is answered", open=self.bench.open_count)
        self.compare()
        self._let_pass(_RETENTION_MS)
        self._let_pass(_LONGEST_MS)
        demand(not state.groups and not len(state.offsets), "groups and offsets expire", groups=list(state.groups))
        self.compare()

    def _let_pass(self, duration_ms: float) -> None:
        self.bench.advance(duration_ms)
        self.bench.finish_work()

    def _unsettled(self) -> list[str]:
        alive = self._alive()
        group: Group | None = self.bench.machine.state.groups.get("readers")
        found = [] if group is not None and group.state_name == "Stable" else [f"state {group and group.state_name}"]
        owners: dict[TopicPartition, list[str]] = {
            TopicPartition(name, PartitionIndex(index)): []
            for name, count in self.counts.items()
            for index in range(count)
            if any(name in member.topics for member in alive)
        }
        for member in alive:
            for partition in member.owned:
                owners.setdefault(partition, []).append(member.name)
        return found + [f"{partition}: {names}" for partition, names in owners.items() if len(names) != 1]
