"""Quorums of pure nodes under random schedules: delay, loss, partitions, crashes, power losses, wiped disks, snapshots
and changes of the voters. `tests.unit.raft.quorum` checks at every step; here is what happens, and that each check can
fail."""

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.raft import advance as advance_module
from tailrace.raft import step as step_module
from tailrace.raft.leader import Leader
from tailrace.raft.messages import AddVoter, RemoveVoter, Resign
from tailrace.raft.node import RaftNode
from tailrace.raft.roles import Follower, Standing
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tests.unit.raft import quorum as quorum_module
from tests.unit.raft.quorum import Host, Quorum, endpoint

STEPS = 60


class Schedule:
    """One seed: a step a few times a second of virtual time, each a fault, a healing or a change."""

    def __init__(
        self, seed: int, *, voters: int, observers: int = 0, is_changing: bool = False, is_damaging: bool = False
    ) -> None:
        self.quorum = Quorum(seed, voters=voters, observers=observers)
        self.random = self.quorum.random
        self.story: list[str] = []
        self.actions: list[Callable[[Host], None]] = [
            self.crash,
            self.lose_power,
            self.isolate,
            self.cut_one_way,
            self.heal_network,
            self.heal_network,
            self.be_lossy,
            self.be_slow,
            self.snapshot,
            self.snapshot,
            self.resign,
            self.pause,
            self.slow_down_disk,
            self.slow_down_disk,
        ]
        if is_changing:
            self.actions += [self.add_voter, self.remove_voter] * 5 + [self.wipe]
        if is_damaging:
            self.actions += [self.damage] * 10

    def run(self) -> None:
        quorum = self.quorum
        quorum.start()
        quorum.later(10, self.write)
        for _ in range(STEPS):
            quorum.run(20 + self.random.random() * 250)
            action = self.actions[self.random.randrange(len(self.actions))]
            host = list(quorum.hosts.values())[self.random.randrange(len(quorum.hosts))]
            self.story.append(f"{quorum.now_ms:.0f} {action.__name__} {host.id}")
            action(host)
        self.recover()

    def recover(self) -> None:
        """All is well again: within a bound there is one leader, who commits, and all have the same."""
        quorum = self.quorum
        quorum.heal()
        committed_before = len(quorum.committed)
        is_alive = quorum.run(10_000, until=lambda: len(quorum.committed) > committed_before + 3)
        assert is_alive, f"nothing was committed within 10 s: {self.roles()}"
        self.is_writing = False
        assert quorum.run(10_000, until=quorum.is_converged), f"not equal within 10 s: {self.roles()}"
        for host in quorum.hosts.values():
            for offset in range(host.log.start_offset, host.log.end_offset):
                assert host.log.at(offset) == quorum.committed[offset]

    is_writing = True

    def write(self) -> None:
        for host in self.quorum.hosts.values():
            if self.random.random() < 0.7:
                host.append()
        if self.is_writing:
            self.quorum.later(5 + self.random.random() * 20, self.write)

    def roles(self) -> list[str]:
        return [
            f"{host.id} {type(host.node.role).__name__} epoch {host.node.epoch} voters {host.node.voters.ids} "
            f"high watermark {host.high_watermark} of {host.log.end_offset}"
            for host in self.quorum.hosts.values()
        ]

    # ---- what may happen

    def crash(self, host: Host, *, power_loss: bool = False) -> None:
        if host.is_up:
            host.crash(power_loss=power_loss)
            self.quorum.later(self.random.random() * 600, lambda: None if host.is_up else host.start())

    def lose_power(self, host: Host) -> None:
        if self.random.random() < 0.2:
            for each in self.quorum.hosts.values():
                self.crash(each, power_loss=True)
        self.crash(host, power_loss=True)

    def isolate(self, host: Host) -> None:
        for other in self.quorum.hosts:
            self.quorum.cut |= {(host.id, other), (other, host.id)} - {(host.id, host.id)}

    def cut_one_way(self, host: Host) -> None:
        others = [other for other in self.quorum.hosts if other != host.id]
        self.quorum.cut.add((host.id, others[self.random.randrange(len(others))]))

    def heal_network(self, _host: Host) -> None:
        self.quorum.cut.clear()
        self.quorum.loss, self.quorum.delay_ms = 0.0, 5.0

    def be_lossy(self, _host: Host) -> None:
        self.quorum.loss = 0.2
        self.quorum.crash_at_persist = 0.05

    def be_slow(self, _host: Host) -> None:
        self.quorum.delay_ms = 150.0

    def slow_down_disk(self, host: Host) -> None:
        host.sync_ms = 500.0 if host.sync_ms < 100 else 15.0

    def snapshot(self, host: Host) -> None:
        self.quorum.snapshot(host, is_cut=self.random.random() < 0.7)

    def resign(self, host: Host) -> None:
        if host.is_up:
            host.feed(Resign())

    def pause(self, host: Host) -> None:
        """Stands still while the others go on: its messages and timers come late."""
        if host.is_up and not host.is_busy:
            host.is_busy = True
            host.later(self.random.random() * 1500, lambda: self.resume(host))

    def resume(self, host: Host) -> None:
        host.is_busy = False
        host.drain()

    def add_voter(self, host: Host) -> None:
        self.quorum.ask(AddVoter(Voter(host.key, (endpoint(host.id),)), 1000))

    def remove_voter(self, host: Host) -> None:
        leader = self.quorum.leader()
        voter = None if leader is None else leader.node.voters.find(host.id)
        if leader is not None and voter is not None and len(leader.node.voters) > 3:
            self.quorum.ask(RemoveVoter(voter.key))

    def wipe(self, host: Host) -> None:
        """Its disk is emptied, and it comes back as another replica. One voter may be lost so at a time: what it had is
        on a majority of the others only if no other is missing."""
        keys = {each.key for each in self.all()}
        known = [each.node.voters for each in self.all() if hasattr(each, "node")]
        is_one_lost = any(voter.key not in keys for voters in known for voter in voters)
        if is_one_lost and any(voters.contains(host.key) for voters in known):
            return
        if host.is_up:
            host.crash(power_loss=True)
        host.wipe()
        host.start()

    def damage(self, host: Host) -> None:
        """What it had synced is gone. A minority of the voters may be without their records at a time."""
        voters = self.quorum.bootstrap_voters
        ours = [each for each in self.all() if voters.contains(each.key)]
        whole = [each for each in ours if each.is_whole()]
        if host in whole and len(whole) > voters.majority:
            if host.is_up:
                host.crash(power_loss=True)
            host.damage()
            self.quorum.later(self.random.random() * 300, lambda: None if host.is_up else host.start())

    def all(self) -> list[Host]:
        return list(self.quorum.hosts.values())


def _run(schedule: Schedule) -> None:
    try:
        schedule.run()
    except BaseException as error:
        error.add_note("\n".join(schedule.story))
        raise


@pytest.mark.parametrize("seed", range(16))
def test_three_voters_agree(seed: int) -> None:
    _run(Schedule(seed, voters=3, observers=1))


@pytest.mark.parametrize("seed", range(100, 108))
def test_five_voters_agree(seed: int) -> None:
    _run(Schedule(seed, voters=5))


@pytest.mark.parametrize("seed", range(200, 220))
def test_changing_voters_agree(seed: int) -> None:
    _run(Schedule(seed, voters=3, observers=2, is_changing=True))


@pytest.mark.parametrize("seed", range(300, 330))
def test_voters_with_damaged_logs_agree(seed: int) -> None:
    _run(Schedule(seed, voters=3 + 2 * (seed % 2), observers=1, is_damaging=True))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000, 3000))
def test_many_seeds_with_damaged_logs_agree(seed: int) -> None:
    _run(Schedule(seed, voters=3 + 2 * (seed % 2), observers=1, is_damaging=True))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_many_seeds_agree(seed: int) -> None:
    _run(Schedule(seed, voters=3 + 2 * (seed % 2), observers=1 + seed % 2, is_changing=seed % 3 == 0))


# ---- each check can fail: the same schedules, with a bug planted in the node


def forget_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    step = step_module.step

    def step_without_state(node: RaftNode, event: Any, now_ms: float) -> Any:
        ready = step(node, event, now_ms)
        ready.persist = None
        return ready

    monkeypatch.setattr(quorum_module, "step", step_without_state)


def vote_for_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    decide_vote = step_module.decide_vote
    shortest = OffsetAndEpoch(0, 0)
    monkeypatch.setattr(
        step_module, "decide_vote", lambda request, **facts: decide_vote(request, **{**facts, "last": shortest})
    )


def count_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Leader.decide_high_watermark

    def decide_alone(leader: Leader, _voters: VoterSet, own: ReplicaKey, synced: int) -> int | None:
        return decide(leader, VoterSet((Voter(own),)), own, synced)

    monkeypatch.setattr(Leader, "decide_high_watermark", decide_alone)


def count_what_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_high_watermark = RaftNode.raise_high_watermark

    def raise_at_once(node: RaftNode) -> None:
        log: Any = node.log
        synced = log.synced_end_offset
        if isinstance(node.role, Leader):
            log.synced_end_offset = log.end_offset
        raise_high_watermark(node)
        log.synced_end_offset = synced

    monkeypatch.setattr(RaftNode, "raise_high_watermark", raise_at_once)


def promise_what_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    advance_follower = advance_module._advance_follower

    def advance_at_once(node: Any, role: Any, now_ms: float) -> None:
        synced, node.log.synced_end_offset = node.log.synced_end_offset, node.log.end_offset
        advance_follower(node, role, now_ms)
        node.log.synced_end_offset = synced

    monkeypatch.setattr(advance_module, "_advance_follower", advance_at_once)


def overlook_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    decide_fetch = step_module.decide_fetch

    def decide_by_offset(log: Any, *, offset: int, last_epoch: int) -> Any:
        if log.start_offset <= offset <= log.end_offset:
            return None, None
        return decide_fetch(log, offset=offset, last_epoch=last_epoch)

    monkeypatch.setattr(step_module, "decide_fetch", decide_by_offset)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (forget_votes, range(6, 60)),
        (vote_for_short_logs, range(10)),
        (count_nobody_else, range(10)),
        (count_what_is_not_synced, range(60)),
        (promise_what_is_not_synced, range(42, 90)),
        (overlook_divergence, range(10)),
    ],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], seeds: range
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        _run_all(seeds)


def _run_all(seeds: range) -> None:
    for seed in seeds:
        Schedule(seed, voters=3, observers=1).run()


# ---- a voter that lost what it had synced: why it must have no voice


def let_damaged_voters_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Standing.__init__

    def start_with_a_voice(standing: Standing, key: ReplicaKey, stored: Any, **options: Any) -> None:
        start(standing, key, stored._replace(must_catch_up=False), **options)

    monkeypatch.setattr(Standing, "__init__", start_with_a_voice)


def forget_the_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    step = step_module.step

    def step_and_forget(node: RaftNode, event: Any, now_ms: float) -> Any:
        ready = step(node, event, now_ms)
        if ready.persist is not None:
            ready.persist = ready.persist._replace(must_catch_up=False)
        return ready

    monkeypatch.setattr(quorum_module, "step", step_and_forget)


def vote_from_the_first_records_on(monkeypatch: pytest.MonkeyPatch) -> None:
    take_fetched = step_module._take_fetched

    def take_and_vote(node: RaftNode, node_id: int, request: Any, reply: Any, now_ms: float) -> None:
        take_fetched(node, node_id, request, reply, now_ms)
        if reply.fetched is not None and isinstance(node.role, Follower):
            node.standing.catch_up()

    monkeypatch.setattr(step_module, "_take_fetched", take_and_vote)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (let_damaged_voters_vote, range(300, 310)),
        (forget_the_damage, range(300, 340)),
        (vote_from_the_first_records_on, range(300, 320)),
    ],
)
def test_a_damaged_voter_with_a_voice_loses_what_was_committed(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], seeds: range
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"lacks what was committed|was .*, now|has another entry"):
        _damage_all(seeds)


def _damage_all(seeds: range) -> None:
    for seed in seeds:
        Schedule(seed, voters=3 + 2 * (seed % 2), observers=1, is_damaging=True).run()
