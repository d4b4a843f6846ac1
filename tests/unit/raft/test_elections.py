"""Elections under chance, and the count of votes. Who stands, wins and keeps quiet in which situation is told in
`scenarios/`."""

import pytest

from tailrace.raft.election import Tally
from tailrace.raft.leader import Leader
from tailrace.raft.messages import Failed, Fetch, Received, Reply, Request, Tick, Vote
from tailrace.raft.node import Timing
from tailrace.raft.roles import Follower, Resigned
from tailrace.raft.step import step
from tests.unit.raft.quorum import TIMING, Host, Quorum


def settled(voters: int = 3, observers: int = 0, seed: int = 1) -> tuple[Quorum, Host]:
    """A quorum in which all follow one leader."""
    quorum = Quorum(seed, voters=voters, observers=observers)
    quorum.start()
    assert quorum.run(5000, until=quorum.is_converged)
    leader = quorum.leader()
    assert leader is not None
    return quorum, leader


def ask(host: Host, request: Request) -> Reply:
    """An answer that is given at once, or once the state is written."""
    answers: list[Reply] = []
    host.receive(request, answers.append)
    host.quorum.run(30, until=lambda: bool(answers))
    return answers[0]


def followers(quorum: Quorum) -> list[Host]:
    return [host for host in quorum.hosts.values() if not isinstance(host.node.role, Leader)]


def test_three_nodes_elect_within_a_tenth_of_a_second() -> None:
    times = []
    for seed in range(20):
        quorum = Quorum(seed, voters=3)
        quorum.start()
        assert quorum.run(2000, until=lambda quorum=quorum: quorum.leader() is not None)  # type: ignore[misc]
        times.append(quorum.now_ms)
    # Starts are up to 20 ms apart, messages take up to 5 ms and a write of the state up to 10 ms.
    assert sorted(times)[10] < 100, times
    assert max(times) < 500, times


def test_the_two_that_are_left_do_not_stand_in_each_others_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lose the leader at the same moment, and votes take about as long to store as an election may last: with the
    low-latency profile on a disk that is busy."""
    monkeypatch.setattr("tests.unit.raft.quorum.TIMING", Timing(200, 100, 400, 20))
    times = []
    for seed in range(20):
        quorum, leader = settled(seed=seed)
        quorum.run(500)
        others = followers(quorum)
        for host in others:
            host.persist_ms = (75.0, 225.0)
            quorum.cut |= {(leader.id, host.id), (host.id, leader.id)}
        cut_ms = quorum.now_ms
        assert quorum.run(20_000, until=lambda others=others: any(map(leads, others)))  # type: ignore[misc]
        times.append(quorum.now_ms - cut_ms)
    assert max(times) < 2000, sorted(times)


def leads(host: Host) -> bool:
    return isinstance(host.node.role, Leader)


def test_a_tally() -> None:
    quorum = Quorum(1, voters=3)
    voters = quorum.bootstrap_voters
    assert not Tally({1: True}).is_won(voters)
    assert Tally({1: True, 3: True}).is_won(voters)
    assert Tally({1: False, 3: False}).is_lost(voters)
    assert not Tally({1: False, 9: False}).is_lost(voters), "only voters count"


def test_a_request_is_answered_in_its_own_step() -> None:
    quorum, leader = settled()
    request = Vote(0, leader.key, leader.key, leader.node.last, is_pre_vote=False)
    ready = step(leader.node, Received(77, request), quorum.now_ms)
    assert [answer.token for answer in ready.answers] == [77]


def test_a_leader_goes_on_if_it_is_asked_again_before_it_resigns() -> None:
    """Its followers were slow and elected nobody: what it may do ends, and begins again in the same epoch."""
    quorum, leader = settled()
    quorum.run(200)  # Everything is synced by then.
    role = leader.node.role
    assert isinstance(role, Leader)
    fetch = followers(quorum)[0].node.own_fetch()
    now_ms = role.ends_ms + 100
    step(leader.node, Tick(), now_ms)
    assert role.ends_ms < now_ms
    assert leader.node.role is role
    step(leader.node, Received(77, fetch), now_ms, clock_ms=now_ms, looked_ms=now_ms - 1000)
    assert role.ends_ms < now_ms, "that fetch may have lain unread since before"
    step(leader.node, Received(78, fetch), now_ms, clock_ms=now_ms, looked_ms=now_ms - 50)
    assert role.ends_ms == now_ms - 50 + TIMING.fetch_timeout_ms
    resign_ms = now_ms + 2 * TIMING.fetch_timeout_ms
    step(leader.node, Tick(), resign_ms - 1, clock_ms=resign_ms + TIMING.fetch_timeout_ms)
    assert leader.node.role is role, "it was away, and has not looked yet at what was sent to it"
    assert role.ends_ms < resign_ms, "and it may do nothing until it is asked"
    other, other_leader = settled()
    other.run(200)
    step(leader.node, Tick(), resign_ms)
    assert isinstance(leader.node.role, Resigned)
    away_ms = other.now_ms + 4 * TIMING.fetch_timeout_ms
    step(other_leader.node, Tick(), other.now_ms, clock_ms=away_ms)
    assert isinstance(other_leader.node.role, Resigned), "nobody waits for so long"


def test_a_leader_that_was_replaced_waits_longer_for_its_successor() -> None:
    """Else it would be the first to give up the next one."""
    quorum, leader = settled()
    step(leader.node, Received(77, Vote(9, leader.key, leader.key, leader.node.last, is_pre_vote=False)), quorum.now_ms)
    assert leader.node.fetch_patience_ms(quorum.now_ms) == 2 * TIMING.fetch_timeout_ms


@pytest.mark.parametrize(("took_ms", "is_dead"), [(1, True), (TIMING.fetch_timeout_ms / 2, False)])
def test_a_leader_that_does_not_answer_is_not_taken_for_one_that_refuses(took_ms: float, *, is_dead: bool) -> None:
    """Leaders have fallen silent before, and this one is waited for longer than a request takes to fail."""
    quorum, _ = settled()
    node, now_ms = followers(quorum)[0].node, quorum.now_ms
    role = node.role
    assert isinstance(role, Follower)
    role.fetch_deadline_ms = now_ms + 100 * TIMING.fetch_timeout_ms
    for _ in range(3):
        (send_id,) = (each for each, sent in node.outgoing._sent.items() if isinstance(sent.request, Fetch))
        now_ms = max(now_ms, node.outgoing._sent[send_id].sent_ms) + took_ms
        step(node, Failed(send_id), now_ms)
        now_ms = max(now_ms, node.outgoing.ready_ms(role.leader_id, Fetch))
        step(node, Tick(), now_ms)
    assert (node.role is not role) == is_dead
