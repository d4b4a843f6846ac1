"""Members that do anything at any time: whatever happens, the group stays consistent, nobody waits forever, and a group
that is left alone becomes empty.
"""

from collections import Counter

import pytest

from tailrace.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup
from tailrace.model.errors import ErrorCode
from tailrace.sim.random import SimRandom
from tests.unit.coordinator.classic.scene import GROUP, RANGE, REBALANCE_MS, ROUNDROBIN, Scene, subscription
from tests.unit.coordinator.scene import Asked

STEPS = 250
PROTOCOLS = ((RANGE,), (RANGE, ROUNDROBIN), (ROUNDROBIN, RANGE), (("range", subscription("u")),))
LONGEST_MS = 5 * REBALANCE_MS + 300_000  # A new member may wait for five minutes.


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = SimRandom(seed)
        self.scene = Scene(group_max_size=5)
        self.asked: list[Asked] = []
        self.ids: list[tuple[str, str | None]] = [("stranger", None)]
        self.unheard: list[tuple[Asked, str | None]] = []

    def step(self) -> None:
        choice = self.random.randrange(12)
        member_id, instance = self.random.choice(self.ids[-8:])
        group = self.scene.machine.state.groups.get(GROUP)
        generation = group.generation if isinstance(group, ClassicGroup) else 0
        if choice < 3:
            self.join("", self.random.choice((None, None, "i", "j")))
        elif choice < 6:
            self.join(member_id, instance)
        elif choice < 8 and isinstance(group, ClassicGroup):
            assignments = {each: each.encode() for each in group.members}
            self.asked.append(self.scene.sync(member_id, generation, assignments, group_instance_id=instance))
        elif choice < 9:
            self.scene.heartbeat(member_id, generation, instance)
        elif choice < 10:
            self.scene.leave((member_id, instance))
        elif choice < 11:
            self.scene.pass_ms(self.random.between(0, REBALANCE_MS / 4))
        elif self.random.randrange(10) == 0:
            # Whoever waits is told by the runtime.
            self.asked = [asked for asked in self.asked if not asked.is_waiting]
            self.unheard.clear()
            self.scene.fail_over()
        self.learn()

    def join(self, member_id: str, instance: str | None) -> None:
        version = self.random.choice((1, 4, 9)) if instance is None else 9
        protocols = self.random.choice(PROTOCOLS)
        asked = self.scene.join(member_id, *protocols, version=version, group_instance_id=instance)
        self.asked.append(asked)
        self.unheard.append((asked, instance))

    def learn(self) -> None:
        for asked, instance in self.unheard:
            if not asked.is_waiting and asked.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids.append((asked.answer.member_id, instance))
        self.unheard = [each for each in self.unheard if each[0].is_waiting]

    def check(self) -> None:
        group = self.scene.machine.state.groups.get(GROUP)
        if not isinstance(group, ClassicGroup):
            return
        members, due = group.members, self.scene.machine.state.deadlines.get
        assert list(members) == [member.member_id for member in members.values()]
        assert group.joining_count == sum(member.join_caller is not None for member in members.values())
        assert group.static_member_ids == {m.instance_id: m.member_id for m in members.values() if m.instance_id}
        known = Counter(name for member in members.values() for name in {each.name for each in member.protocols})
        assert group._supporters == dict(known)
        assert (group.leader_id in members) if members else group.leader_id is None
        assert not group.pending_joins.keys() & set(members)
        assert group.pending_syncs <= set(members)
        assert group.joining_count <= 5
        # Something will happen by itself: nobody waits forever.
        for member in members.values():
            assert member.is_excused_from_heartbeats or due((GROUP, SESSION, member.member_id)) is not None
            assert member.join_caller is None or group.state == "PreparingRebalance"
            assert member.sync_caller is None or group.state == "CompletingRebalance"
        assert all(due((GROUP, SESSION, member_id)) is not None for member_id in group.pending_joins)
        assert (due((GROUP, JOIN, "")) is not None) == (group.state == "PreparingRebalance")
        assert not group.pending_syncs or due((GROUP, SYNC, "")) is not None
        if group.is_empty:
            assert not members
        assert not group.unreplayed


@pytest.mark.parametrize("seed", range(25))
def test_a_group_survives_whatever_its_members_do(seed):
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()
    walk.scene.work_is_held = True  # Or the group, which is empty in the end, would expire.
    walk.scene.pass_ms(LONGEST_MS)
    walk.check()
    group = walk.scene.machine.state.groups.get(GROUP)
    assert group is not None
    assert group.is_empty
    assert not [due for due in walk.scene.machine.state.deadlines._due if due[0] == GROUP]
    # Each was answered, and once.
    assert all(len(asked.answers) == 1 for asked in walk.asked)


def test_the_walks_reach_every_state():
    states: Counter[str] = Counter()
    for seed in range(5):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
            group = walk.scene.machine.state.groups.get(GROUP)
            states[group.state_name if group else "none"] += 1
    assert set(states) >= {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}
    assert states["Stable"] > 20
