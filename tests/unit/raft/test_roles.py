"""The table of the roles: what it does not have is refused, and nobody changes the state of a node but its owner. What
must hold after every step is noticed when it does not."""

import ast
import re
from pathlib import Path

import pytest

from tailrace import raft
from tailrace.model.config import Endpoint
from tailrace.model.ids import Uuid
from tailrace.raft.messages import QuorumState, Tick, Written
from tailrace.raft.roles import TRANSITIONS, Candidate, Resigned, Standing, Unattached
from tailrace.raft.step import step
from tailrace.raft.types import ReplicaKey
from tests.unit.raft.test_elections import settled

OWN, OTHER = (ReplicaKey(node_id, Uuid(bytes([node_id]) * 16)) for node_id in (1, 2))


@pytest.fixture
def standing() -> Standing:
    return Standing(OWN, QuorumState(epoch=4), last_epoch=3, election_deadline_ms=0)


def test_what_is_not_in_the_table_is_refused(standing: Standing) -> None:
    with pytest.raises(AssertionError, match="win makes None of a node that is Unattached"):
        standing.win(0, 0)
    standing.stand(0)
    standing.win_pre_vote(0)
    with pytest.raises(AssertionError, match="grant makes None of a node that is Candidate"):
        standing.grant(OTHER, 0)
    standing.win(0, 0)
    for forbidden in (standing.stand, standing.lose, standing.lose_leader, standing.retire):
        with pytest.raises(AssertionError, match="of a node that is Leader"):
            forbidden(0)
    standing.resign(0, (OTHER,))
    with pytest.raises(AssertionError, match="follow makes None of a node that is Resigned"):
        standing.follow(OTHER.id, Endpoint("C", "b", 2), 0)
    assert isinstance(standing.role, Resigned)
    assert standing.state == QuorumState(epoch=5, voted=OWN), "what was refused has changed nothing"


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_epoch_that_does_not_rise_is_refused(standing: Standing, epoch: int) -> None:
    with pytest.raises(AssertionError, match="see_epoch"):
        standing.see_epoch(epoch, 0)


def test_an_event_changes_no_more_of_the_state_than_the_table_says(standing: Standing) -> None:
    standing.stand(0)
    with pytest.raises(AssertionError, match="lose changes"):
        standing._change("lose", Unattached(0), standing.state._replace(voted=OTHER))
    with pytest.raises(AssertionError, match="lose makes Unattached"):
        standing._change("lose", Candidate(0), standing.state)


def test_a_stored_state_is_given_out_once_and_a_forgotten_leader_not_at_all(standing: Standing) -> None:
    assert standing.take_unstored() is None
    standing.follow(OTHER.id, Endpoint("C", "b", 2), 0)
    assert standing.take_unstored() == QuorumState(epoch=4, leader_id=2)
    standing.lose_leader(0)
    assert standing.take_unstored() is None
    standing.grant(OTHER, 0)
    assert standing.take_unstored() == QuorumState(epoch=4, voted=OTHER)


def test_a_second_vote_of_an_epoch_and_an_older_epoch_are_never_stored(standing: Standing) -> None:
    standing.grant(OTHER, 0)
    standing.take_unstored()
    for wrong in (standing.state._replace(voted=OWN), standing.state._replace(voted=None), QuorumState(epoch=3)):
        standing.state = wrong
        with pytest.raises(AssertionError):
            standing.take_unstored()


def test_who_lost_what_it_had_synced_has_no_voice() -> None:
    standing = Standing(OWN, QuorumState(epoch=4, must_catch_up=True), last_epoch=3, election_deadline_ms=0)
    with pytest.raises(AssertionError, match="who lost what it had synced"):
        standing.stand(0)
    with pytest.raises(AssertionError, match="who lost what it had synced"):
        standing.grant(OTHER, 0)
    with pytest.raises(AssertionError, match="only a leader's log"):
        standing.catch_up()


def test_what_was_committed_is_neither_cut_nor_written_anew() -> None:
    _, leader = settled()
    node, log = leader.node, leader.log
    end_offset = log.end_offset
    assert node.high_watermark == end_offset
    with pytest.raises(AssertionError, match="written at 0"):
        step(node, Written(0), 0)
    log.truncate(end_offset - 1)
    with pytest.raises(AssertionError, match=f"committed up to {end_offset}|{end_offset} cannot be committed"):
        step(node, Tick(), leader.quorum.now_ms)


def test_a_record_of_an_epoch_to_come_is_noticed() -> None:
    quorum, leader = settled()
    leader.log.entries.append((leader.node.epoch + 1, 0))
    with pytest.raises(AssertionError, match="a record of epoch"):
        step(leader.node, Tick(), quorum.now_ms)


def test_every_event_of_the_table_is_a_method() -> None:
    events = [re.split("  +", line)[1] for line in TRANSITIONS.strip().splitlines()[1:]]
    assert len(events) == len(set(events))
    assert all(callable(getattr(Standing, event)) for event in events)


def test_a_field_is_assigned_by_its_owner_alone() -> None:
    """Fields of the node, of its standing and of its other parts: `self.field = …` is the only way they change."""
    owners = {"RaftNode", "Standing", "Outgoing", "VoterHistory"}
    assigned = [each for path in Path(raft.__path__[0]).glob("*.py") for each in _assignments(path)]
    owned = {name for owner, base, name in assigned if owner in owners and base == "self"}
    assert {"role", "state", "high_watermark", "history", "ready", "next_deadline_ms"} <= owned
    strangers = [each for each in assigned if each[2] in owned and each[1] != "self"]
    assert not strangers


def _assignments(path: Path) -> list[tuple[str, str, str]]:
    """(class or module, what the field belongs to, field) of every assignment to a field."""
    return [
        (getattr(scope, "name", path.stem), ast.unparse(node.value), node.attr)
        for scope in ast.parse(path.read_text()).body
        for node in ast.walk(scope)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]


def test_leaders_that_fall_silent_one_after_the_other_are_waited_for_longer(standing: Standing) -> None:
    assert standing.patience(0) == 1
    for now_ms, patience in ((1000, 2), (2000, 4), (3000, 4)):
        standing.note_silence(now_ms, now_ms + 30_000)
        assert standing.patience(now_ms) == patience
    standing.note_lateness(30_000, 60_000)
    assert standing.patience(59_999) == 4, "one that was late, and waited for, keeps it in memory"
    assert standing.patience(60_000) == 1, "it is forgotten"
    standing.note_lateness(61_000, 91_000)
    assert standing.patience(61_000) == 1, "and there is nothing to remember"
    standing.note_silence(70_000, 100_000)
    assert standing.patience(70_000) == 2, "and counted anew"
