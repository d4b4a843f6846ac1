"""Changes of the voters: what is refused, new addresses, and the sets themselves. How a change comes about is told in
`scenarios/`."""

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.raft.leader import Leader
from tailrace.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from tailrace.raft.types import BOOTSTRAP_OFFSET, ReplicaKey, Voter, VoterSet
from tailrace.raft.voters import VoterHistory
from tests.unit.raft.quorum import TIMING, Host, endpoint
from tests.unit.raft.test_elections import ask, followers, settled


def add_of(host: Host, **other: object) -> AddVoter:
    return AddVoter(Voter(host.key, (endpoint(host.id),)), 1000)._replace(**other)


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


def test_the_last_voter_stays_and_a_stranger_is_not_found() -> None:
    _, leader = settled(voters=1)
    assert ask(leader, RemoveVoter(leader.key)).error is ErrorCode.INVALID_REQUEST
    stranger = ReplicaKey(1, Uuid(b"x" * 16))
    assert ask(leader, RemoveVoter(stranger)).error is ErrorCode.VOTER_NOT_FOUND


def test_no_removal_leaves_a_quorum_without_a_majority() -> None:
    """Of three voters one is dead: the two that live need each other, whoever of them leads."""
    quorum, leader = settled()
    living, dead = followers(quorum)
    dead.crash(power_loss=False)
    quorum.run(3 * TIMING.fetch_timeout_ms)
    assert quorum.leader() is leader
    for key in (living.key, leader.key):
        refused = ask(leader, RemoveVoter(key))
        assert refused.error is ErrorCode.REQUEST_TIMED_OUT
        assert f"Of the 2 voters that would be left, {dead.id} cannot be heard" in refused.message
    assert quorum.ask(RemoveVoter(dead.key)) == []
    quorum.run(1000)
    assert leader.node.voters.ids == tuple(sorted((leader.id, living.id)))
    assert quorum.ask(RemoveVoter(living.key)) == [], "whom nobody needs any more may go"


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
