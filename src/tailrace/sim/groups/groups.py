"""The consumer groups of a run: who is in them, and what becomes of their members.

Members come, leave, stall and die at moments that chance picks, while brokers do too. Once everything is healed, the
groups have to be stable and to have processed everything within a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.coordinators import CoordinatorChecks
from tailrace.sim.checks.groups import GroupChecks
from tailrace.sim.checks.history import demand
from tailrace.sim.clients.workload import Clients, Ledger
from tailrace.sim.cluster import World
from tailrace.sim.groups.members import CONSUMER, HEARTBEAT_MS, SESSION_MS, Kind, Member
from tailrace.sim.random import SimRandom

_PAUSE_SECONDS_MAX = 3.0
_STALL_SECONDS_MAX = 6.0
_MEMBERS_MAX = 4
_OFFSETS_MS_MAX = 30_000

# What makes groups as quick as the rest of a run.
GROUP_SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "200",
}

_RANGE: Kind = ("range",)
_COOPERATIVE: Kind = ("cooperative-sticky",)
_EITHER: Kind = ("cooperative-sticky", "range")
_KINDS = (
    *((CONSUMER,), (CONSUMER,), (_RANGE,), (_COOPERATIVE,), (_COOPERATIVE,)),
    # While members are replaced by others, one by one.
    *((_RANGE, _EITHER), (_RANGE, CONSUMER), (_COOPERATIVE, CONSUMER)),
)


class GroupPlan(NamedTuple):
    """With several kinds of members a group changes its protocol while it works."""

    group_id: str = "readers"
    kinds: tuple[Kind, ...] = (CONSUMER,)
    members: int = 2
    is_static: bool = False

    @classmethod
    def of(cls, random: SimRandom, group_id: str) -> GroupPlan:
        return cls(group_id, random.choice(_KINDS), members=1 + random.randrange(3), is_static=random.random() < 0.3)

    def __str__(self) -> str:
        kinds = "/".join("+".join(kind) for kind in self.kinds)
        return f"{self.group_id} of {self.members} {'static ' if self.is_static else ''}{kinds}"


class Groups:
    def __init__(
        self,
        world: World,
        clients: Clients,
        ledger: Ledger,
        *,
        coordinators: CoordinatorChecks,
        plans: Sequence[GroupPlan],
        topics: Sequence[str],
    ) -> None:
        self.checks = GroupChecks(lambda: world.loop.now)
        self._world = world
        self._clients = clients
        self._ledger = ledger
        self._coordinators = coordinators
        self._plans = {plan.group_id: plan for plan in plans}
        self._topics = tuple(topics)
        self._random = world.random.fork()
        self._members: list[Member] = []
        self._stalls: list[asyncio.Task[None]] = []
        self._count = 0
        for plan in plans:
            has_one_protocol = CONSUMER not in plan.kinds or len(plan.kinds) == 1
            self.checks.of(plan.group_id).has_lasting_epochs = has_one_protocol

    def start(self) -> None:
        for plan in self._plans.values():
            for _ in range(plan.members):
                self._join(plan)

    # ---- what becomes of members

    async def disturb(self) -> None:
        """Until it is cancelled."""
        kinds: list[Callable[[GroupPlan], None]] = [self._join, self._join, self._leave, self._kill, self._stall]
        while self._plans:
            await asyncio.sleep(self._random.between(0, _PAUSE_SECONDS_MAX))
            self._random.choice(kinds)(self._random.choice(list(self._plans.values())))

    def heal(self) -> None:
        """Nobody stalls any more, and each group has a member."""
        for stall in self._stalls:
            stall.cancel()
        for member in self._alive():
            member.process.resume()
        self._fill_up()

    def _fill_up(self) -> None:
        """A member that was put out is started again, as a supervisor would."""
        for plan in self._plans.values():
            if all(member.is_leaving for member in self._alive(plan)):
                self._join(plan)

    def check(self) -> None:
        """A member that has found something wrong has ended."""
        for member in self._members:
            if member.task.done() and not member.is_gone:
                member.task.result()
        for stall in self._stalls:
            if stall.done() and not stall.cancelled():
                stall.result()

    def _alive(self, plan: GroupPlan | None = None) -> list[Member]:
        self._members = [member for member in self._members if not member.is_gone]
        return [member for member in self._members if plan is None or member.group_id == plan.group_id]

    def _join(self, plan: GroupPlan) -> None:
        alive = self._alive(plan)
        if len(alive) >= _MEMBERS_MAX:
            return
        self._count += 1
        instance_id = None
        if plan.is_static:
            taken = {member.instance_id for member in alive}
            free = [name for index in range(_MEMBERS_MAX) if (name := f"instance-{index}") not in taken]
            instance_id = self._random.choice(free)
        kind = self._random.choice(plan.kinds)
        process, cluster = self._clients.connect(f"member-{self._count}")
        self._note(process.name, f"joins {plan.group_id} as {instance_id or 'a member'}, {'+'.join(kind)}")
        self._members.append(
            Member(
                process,
                cluster,
                group_id=plan.group_id,
                kind=kind,
                is_mixed=len(plan.kinds) > 1,
                instance_id=instance_id,
                topics=self._topics,
                checks=self.checks,
                ledger=self._ledger,
                random=self._random.fork(),
            )
        )

    def _leave(self, plan: GroupPlan) -> None:
        if (member := self._pick(plan)) is not None:
            self._note(member.name, "leaves")
            member.leave()

    def _kill(self, plan: GroupPlan) -> None:
        if (member := self._pick(plan)) is not None:
            self._note(member.name, "dies")
            member.process.kill()
            self._world.network.end_process(member.process)
            member.note_death()

    def _stall(self, plan: GroupPlan) -> None:
        if (member := self._pick(plan)) is not None:
            self._stalls.append(asyncio.ensure_future(self._stall_for_a_while(member)))

    async def _stall_for_a_while(self, member: Member) -> None:
        self._note(member.name, "stalls")
        member.process.pause()
        await asyncio.sleep(self._random.between(0.2, _STALL_SECONDS_MAX))
        self._note(member.name, "goes on")
        member.process.resume()

    def _pick(self, plan: GroupPlan) -> Member | None:
        able = [each for each in self._alive(plan) if not each.is_leaving and not each.process.is_paused]
        return self._random.choice(able) if able else None

    def _note(self, name: str, text: str) -> None:
        self._world.trace.note(name, text)

    # ---- in the end

    def unstable(self) -> list[str]:
        """Groups that are not stable, or of which a partition does not have exactly one member that believes in it."""
        self._fill_up()
        partitions = self._coordinators.partitions_of(self._topics)
        found = []
        for plan in self._plans.values():
            alive = self._alive(plan)
            state = self._coordinators.state_of(plan.group_id)
            if state != ("Stable", len(alive)):
                found.append(f"{plan.group_id} is {state}, {len(alive)} members are alive")
            for partition in partitions:
                owners = [member.name for member in alive if partition in member.assignment]
                if len(owners) != 1:
                    found.append(f"{partition} of {plan.group_id} is owned by {owners}")
        return found

    def unprocessed(self) -> list[str]:
        return [each for group_id in self._plans for each in self.checks.unprocessed(group_id, self._ledger.acked)]

    async def stop(self, timeout_seconds: float) -> None:
        """All members leave."""
        alive = self._alive()
        for member in alive:
            member.leave()
        if alive:
            _done, pending = await asyncio.wait([member.task for member in alive], timeout=timeout_seconds)
            demand(not pending, "members leave in time", waiting=sorted(task.get_name() for task in pending))
        for member in alive:
            member.task.result()

    async def check_committed(self) -> None:
        """As somebody new is told."""
        for group_id in self._plans:
            self._count += 1
            process, cluster = self._clients.connect(f"auditor-{self._count}")
            coordinator = Coordinator(cluster, group_id)
            offsets = GroupOffsets(coordinator, timeout_ms=_OFFSETS_MS_MAX)
            found = await process.spawn(offsets.fetch(None), name=process.name)
            coordinator.close()
            cluster.close()
            told: Mapping[TopicPartition, int] = {partition: each.offset for partition, each in found.items()}
            self.checks.judge_committed(group_id, self.checks.of(group_id).committed, told)

    def story(self) -> str:
        if not self._plans:
            return ""
        checks = self.checks
        return f", {checks.assigned_count} assigned, {checks.processed_count} processed, {checks.commit_count} commits"
