"""Changes of the voters: one at a time, in force when written, gone when truncated."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.raft.leader import Leader
from tailrace.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from tailrace.raft.types import BOOTSTRAP_OFFSET, ReplicaKey, Voter, VoterSet
from tailrace.raft.voters import VoterHistory
from tests.unit.raft.quorum import Host, Quorum, endpoint
from tests.unit.raft.test_elections import ask, followers, settled


def add_of(host: Host, **other: object) -> AddVoter:
    return AddVoter(Voter(host.key, (endpoint(host.id),)), 1000)._replace(**other)


def committed_voters(quorum: Quorum) -> tuple[int, ...]:
    sets = [content for _, content in quorum.committed if isinstance(content, VoterSet)]
    return sets[-1].ids


def test_an_observer_that_has_caught_up_becomes_a_voter() -> None:
    quorum, leader = settled(observers=1)
    answers = quorum.ask(add_of(quorum.hosts[4]))
    assert answers == [], "answered once it is committed"
    assert quorum.run(1000, until=lambda: bool(answers))
    assert answers[0].error is ErrorCode.NONE
    assert committed_voters(quorum) == (1, 2, 3, 4)
    assert leader.node.voters.majority == 3
    assert quorum.run(1000, until=lambda: quorum.hosts[4].node.is_voter)


def test_one_that_has_not_caught_up_is_waited_for() -> None:
    quorum, leader = settled(observers=1)
    quorum.hosts[4].crash(power_loss=False)
    quorum.run(1000)
    answers = quorum.ask(add_of(quorum.hosts[4], timeout_ms=500))
    quorum.run(400)
    assert answers == []
    assert leader.node.voters.ids == (1, 2, 3)
    quorum.run(200)
    assert answers[0].error is ErrorCode.REQUEST_TIMED_OUT


def test_what_cannot_be_added() -> None:
    quorum, leader = settled(observers=1)
    new, old = quorum.hosts[4], quorum.hosts[1]
    assert ask(leader, add_of(old)).error is ErrorCode.DUPLICATE_VOTER
    other_disk = Voter(ReplicaKey(1, Uuid(b"x" * 16)), (endpoint(1),))
    assert ask(leader, add_of(new, voter=other_disk)).error is ErrorCode.DUPLICATE_VOTER
    assert ask(leader, add_of(new, voter=Voter(new.key))).error is ErrorCode.INVALID_REQUEST
    nowhere = Voter(ReplicaKey(4, ZERO_UUID), (endpoint(4),))
    assert ask(leader, add_of(new, voter=nowhere)).error is ErrorCode.INVALID_REQUEST
    assert ask(followers(quorum)[0], add_of(new)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_change_at_a_time() -> None:
    quorum, leader = settled(voters=5)
    first, second = followers(quorum)[:2]
    answers = quorum.ask(RemoveVoter(first.key))
    assert len(leader.node.voters) == 4, "in force when it is written"
    assert ask(leader, RemoveVoter(second.key)).error is ErrorCode.REQUEST_TIMED_OUT
    assert quorum.run(1000, until=lambda: bool(answers))
    assert answers[0].error is ErrorCode.NONE
    answers = quorum.ask(RemoveVoter(second.key))
    assert quorum.run(1000, until=lambda: bool(answers))
    assert answers[0].error is ErrorCode.NONE


def test_a_new_leader_changes_nothing_before_its_epoch_has_committed() -> None:
    """Else a change of its predecessor that it does not know of could have another majority."""
    quorum, leader = settled()
    first, second = followers(quorum)
    role = leader.node.role
    assert isinstance(role, Leader)
    role.active_from_offset = leader.log.end_offset + 1
    assert ask(leader, RemoveVoter(first.key)).error is ErrorCode.REQUEST_TIMED_OUT
    role.active_from_offset = leader.log.end_offset
    assert quorum.ask(RemoveVoter(second.key)) == []


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    quorum, leader = settled()
    answers = quorum.ask(RemoveVoter(leader.key))
    assert isinstance(leader.node.role, Leader)
    assert quorum.run(1000, until=lambda: bool(answers))
    assert answers[0].error is ErrorCode.NONE
    assert not isinstance(leader.node.role, Leader)
    assert quorum.run(2000, until=lambda: quorum.leader() not in (None, leader))
    assert quorum.run(5000, until=quorum.is_converged)
    assert leader.id not in leader.node.voters.ids, "it follows as an observer"


def test_the_last_voter_stays_and_a_stranger_is_not_found() -> None:
    _, leader = settled(voters=1)
    assert ask(leader, RemoveVoter(leader.key)).error is ErrorCode.INVALID_REQUEST
    stranger = ReplicaKey(1, Uuid(b"x" * 16))
    assert ask(leader, RemoveVoter(stranger)).error is ErrorCode.VOTER_NOT_FOUND


def test_a_change_that_was_truncated_is_no_longer_in_force() -> None:
    quorum, leader = settled()
    quorum.cut |= {(a, b) for a in quorum.hosts for b in quorum.hosts if leader.id in (a, b)}
    answers = quorum.ask(RemoveVoter(followers(quorum)[0].key))
    assert len(leader.node.voters) == 2
    assert quorum.run(5000, until=lambda: quorum.leader() not in (None, leader))
    quorum.cut.clear()
    assert quorum.run(5000, until=quorum.is_converged)
    assert leader.node.voters.ids == (1, 2, 3)
    assert answers[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_whose_removal_is_not_committed_can_still_be_elected() -> None:
    """It alone has the record of its removal: without it the others have no majority, nor can they vote it down."""
    quorum, leader = settled(voters=4)
    others = [host.id for host in followers(quorum)]
    for source in others:
        quorum.cut |= {(source, leader.id), (leader.id, source)}
    quorum.ask(RemoveVoter(leader.key))
    quorum.run(50)
    gone = quorum.hosts[others[0]]
    gone.crash(power_loss=True)
    quorum.cut.clear()
    assert not leader.node.is_voter
    assert quorum.run(10_000, until=lambda: committed_voters(quorum) == tuple(others))


def test_a_voter_with_a_new_address_tells_the_leader() -> None:
    quorum, leader = settled()
    follower = followers(quorum)[0]
    moved = Voter(follower.key, (endpoint(follower.id)._replace(host="elsewhere"),))
    epoch = leader.node.epoch
    assert ask(leader, UpdateVoter(epoch - 1, moved)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(leader, UpdateVoter(epoch, moved._replace(endpoints=()))).error is ErrorCode.INVALID_REQUEST
    assert ask(leader, UpdateVoter(epoch, moved)).error is ErrorCode.NONE
    quorum.run(2000)
    # It was not really there: the follower has set it right again.
    assert leader.node.voters.find(follower.id) == Voter(follower.key, (endpoint(follower.id),))
    addresses = [
        content.find(follower.id).endpoints[0].host for _, content in quorum.committed if isinstance(content, VoterSet)
    ]
    assert addresses == ["host", "elsewhere", "host"]


def test_the_first_leader_writes_the_voters_of_the_bootstrap_into_the_log() -> None:
    quorum, _ = settled()
    assert [content for _, content in quorum.committed if isinstance(content, VoterSet)] == [quorum.bootstrap_voters]


SETS = [VoterSet((Voter(ReplicaKey(number, Uuid(bytes(15) + b"\x02"))),)) for number in range(5)]


@pytest.fixture
def history() -> VoterHistory:
    history = VoterHistory(SETS[0])
    history.add(10, SETS[1])
    history.add(20, SETS[2])
    return history


def test_a_history_of_voters(history: VoterHistory) -> None:
    assert [history.at(offset) for offset in (0, 10, 11, 20, 21)] == [SETS[0], SETS[0], SETS[1], SETS[1], SETS[2]]
    history.truncate(20)
    assert (history.latest, history.latest_offset) == (SETS[1], 10)
    history.truncate(0)
    assert (history.latest, history.latest_offset) == (SETS[0], BOOTSTRAP_OFFSET)


def test_a_history_forgets_what_a_snapshot_holds(history: VoterHistory) -> None:
    history.forget_before(15)
    assert [history.at(offset) for offset in (15, 21)] == [SETS[1], SETS[2]]
    history.truncate(0)
    assert history.latest == SETS[1], "what was committed is never taken back"


def test_a_voter_set() -> None:
    keys = [ReplicaKey(number, Uuid(bytes([number]) * 16)) for number in (3, 1, 2)]
    voters = VoterSet()
    for key in keys:
        voters = voters.with_voter(Voter(key, (endpoint(key.id),)))
    assert voters.ids == (1, 2, 3)
    assert VoterSet.of_record(voters.to_record()) == voters
    assert not voters.contains(ReplicaKey(3, keys[1].directory_id))
    assert voters.contains(ReplicaKey(3, ZERO_UUID)), "old requests tell no directory"
    assert voters.without(keys[0]).ids == (1, 2)
    assert [VoterSet(voters.voters[:count]).majority for count in (1, 2, 3)] == [1, 2, 2]
