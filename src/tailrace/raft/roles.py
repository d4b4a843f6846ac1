"""What a node is in its epoch: the roles, each with what only it needs, and how one becomes another.

Unattached   knows no leader of its epoch; a voter stands for election at its deadline, an observer asks around
Prospective  asks whether it would win (pre-vote); its epoch has not changed
Candidate    has a new epoch, its own vote, and asks for the others'
Leader       see `leader`
Resigned     was leader of this epoch and never will be again; tells the others
Follower     fetches from the leader

`Standing` alone changes role, epoch and vote: each event of the table below is one of its methods, and a change that is
not in the table fails. Whether an event has come is for `step` and `advance` to see.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf

from tailrace.model.config import Endpoint
from tailrace.raft.election import Tally
from tailrace.raft.leader import PATIENCE_MAX, Leader
from tailrace.raft.messages import NO_LEADER, QuorumState
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey

# "Stored" are the fields of QuorumState that are on the device before anything of the step leaves the node.
TRANSITIONS = """
from                                                             event         to           stored
Unattached                                                       stand         Prospective  -
Prospective                                                      win_pre_vote  Candidate    epoch, voted
Candidate                                                        win           Leader       leader_id
Prospective, Candidate                                           lose          Unattached   -
Prospective                                                      give_way      Unattached   -
Unattached, Prospective                                          grant         Unattached   voted
Unattached, Prospective, Candidate                               follow        Follower     leader_id
Unattached, Follower                                             lose_leader   Unattached   -
Leader                                                           resign        Resigned     -
Resigned                                                         retire        Unattached   -
Unattached, Prospective, Candidate, Leader, Resigned, Follower   see_epoch     Unattached   epoch, voted
"""
_ALLOWED = {
    (source, event): (target, frozenset(stored.split(", ")))
    for sources, event, target, stored in (re.split("  +", line) for line in TRANSITIONS.splitlines()[2:])
    for source in sources.split(", ")
}


@dataclass(slots=True)
class Unattached:
    election_deadline_ms: float


@dataclass(slots=True)
class Prospective:
    deadline_ms: float
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class Candidate:
    deadline_ms: float
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class Resigned:
    deadline_ms: float
    successors: tuple[ReplicaKey, ...]
    # Voters that have not answered yet.
    unaware: dict[int, None]


@dataclass(slots=True)
class Follower:
    leader_id: int
    endpoint: Endpoint
    # The next successful fetch, or piece of a snapshot, moves it.
    fetch_deadline_ms: float
    # An answer after this is late, even if it was waited for.
    late_ms: float = inf
    # Whether the leader has answered since it became known, and has not resigned.
    has_fetched: bool = False
    # The snapshot that the leader told us to take, until it is installed.
    snapshot: OffsetAndEpoch | None = None
    # As the leader last said; what of it is in our log is our high watermark.
    leader_high_watermark: int = 0
    # When to tell the leader that our addresses have changed, or that we want to vote; moved after each attempt.
    next_membership_ms: float = 0.0


Role = Unattached | Prospective | Candidate | Leader | Resigned | Follower


class Standing:
    def __init__(self, key: ReplicaKey, stored: QuorumState, *, last_epoch: int, election_deadline_ms: float) -> None:
        self._key = key
        self.role: Role = Unattached(election_deadline_ms)
        # No leader is taken from what was stored: nodes that start together elect one at once, and a node that joins a
        # running quorum is told who leads by the first pre-vote that it asks for.
        self.state = stored._replace(leader_id=NO_LEADER)
        if stored.epoch < last_epoch:
            # A record of an epoch proves that the epoch was, even if the vote in it was another node's.
            self.state = self.state._replace(epoch=last_epoch, voted=None)
        # As on the device, or on its way there before anyone is told.
        self._stored = stored
        # Since a leader was last heard.
        self.lost_elections = 0
        # Leaders that fell silent one after the other, and until when that is remembered.
        self._silences = 0
        self._silences_until_ms = -inf
        # The epoch and the leader that has stopped answering us in it, and until when nobody else's word for it counts.
        self._suspect = (-1, NO_LEADER)
        self._suspect_until_ms = -inf

    # ---- the events of the table

    def stand(self, deadline_ms: float) -> None:
        assert not self.state.must_catch_up, "who lost what it had synced could be elected without what was committed"
        self._change("stand", Prospective(deadline_ms, Tally({self._key.id: True})), self.state)

    def win_pre_vote(self, deadline_ms: float) -> None:
        """The epoch is new, and the first vote in it is our own."""
        state = self.state._replace(epoch=self.state.epoch + 1, voted=self._key)
        self._change("win_pre_vote", Candidate(deadline_ms, Tally({self._key.id: True})), state)

    def win(self, clock_ms: float, now_ms: float) -> None:
        self.lost_elections = 0
        self._change("win", Leader(clock_ms, waits_from_ms=now_ms), self.state._replace(leader_id=self._key.id))

    def lose(self, election_deadline_ms: float) -> None:
        self.lost_elections += 1
        self._change("lose", Unattached(election_deadline_ms), self.state)

    def give_way(self, election_deadline_ms: float) -> None:
        """Another one stands too, and goes first. It gets the time to win."""
        self._change("give_way", Unattached(election_deadline_ms), self.state)

    def grant(self, candidate: ReplicaKey, election_deadline_ms: float) -> None:
        assert not self.state.must_catch_up, "who lost what it had synced cannot tell whether the candidate has it"
        self._change("grant", Unattached(election_deadline_ms), self.state._replace(voted=candidate))

    def follow(self, leader_id: int, endpoint: Endpoint, fetch_deadline_ms: float) -> None:
        self._suspect_until_ms = -inf
        state = self.state._replace(leader_id=leader_id)
        self._change("follow", Follower(leader_id, endpoint, fetch_deadline_ms), state)

    def lose_leader(self, election_deadline_ms: float) -> None:
        """It is silent, or somebody says that it has stopped; who says so may have lost it before us."""
        self._change("lose_leader", Unattached(election_deadline_ms), self.state._replace(leader_id=NO_LEADER))

    def resign(self, deadline_ms: float, successors: tuple[ReplicaKey, ...]) -> None:
        role = Resigned(deadline_ms, successors, {key.id: None for key in successors})
        self._change("resign", role, self.state._replace(leader_id=NO_LEADER))

    def retire(self, election_deadline_ms: float) -> None:
        """The others had the time to hear of the resignation."""
        self._change("retire", Unattached(election_deadline_ms), self.state)

    def see_epoch(self, epoch: int, election_deadline_ms: float) -> None:
        state = self.state._replace(epoch=epoch, voted=None, leader_id=NO_LEADER)
        self._change("see_epoch", Unattached(election_deadline_ms), state)

    def _change(self, event: str, role: Role, state: QuorumState) -> None:
        source = type(self.role).__name__
        target, stored = _ALLOWED.get((source, event), (None, frozenset()))
        assert type(role).__name__ == target, f"{event} makes {target} of a node that is {source}, not {role}"
        assert _changes(self.state, state) <= stored, f"{event} changes {stored} alone, not {self.state} to {state}"
        assert (state.epoch > self.state.epoch) == ("epoch" in stored), f"{event}: {state} after {self.state}"
        self.role, self.state = role, state

    # ---- what else is remembered

    def catch_up(self) -> None:
        """All that it was ever counted for is there again: it has a voice."""
        assert isinstance(self.role, Follower), "only a leader's log shows that nothing is missing"
        self.state = self.state._replace(must_catch_up=False)

    def hear_leader(self) -> None:
        self.lost_elections = 0

    def note_silence(self, now_ms: float, until_ms: float) -> None:
        self._silences = min(self._silences + 1, PATIENCE_MAX) if now_ms < self._silences_until_ms else 1
        self._silences_until_ms = until_ms

    def note_lateness(self, now_ms: float, until_ms: float) -> None:
        """A leader was silent for longer than the setting says, and was waited for: it is too early to forget."""
        if now_ms < self._silences_until_ms:
            self._silences_until_ms = until_ms

    def patience(self, now_ms: float) -> int:
        """By how much longer a leader is waited for than the setting says. Where leaders fall silent again and again,
        machines are too slow for the timeout, and each election makes it worse."""
        silences = self._silences if now_ms < self._silences_until_ms else 0
        return min(1 << silences, PATIENCE_MAX)

    def mistrust(self, leader_id: int, until_ms: float) -> None:
        """Until then nobody but itself convinces us that it leads. It may be that only we are cut off from it, so not
        for longer."""
        self._suspect, self._suspect_until_ms = (self.state.epoch, leader_id), until_ms

    def trusts(self, leader_id: int, now_ms: float) -> bool:
        return (self.state.epoch, leader_id) != self._suspect or now_ms >= self._suspect_until_ms

    def take_unstored(self) -> QuorumState | None:
        """What the driver has to store before it tells anyone of this step, so that after a restart the node neither
        goes back to an earlier epoch nor votes in one a second time."""
        before, after = self._stored, self.state
        assert after.epoch >= before.epoch, f"a node that stored {before} would promise itself to {after} again"
        assert after.epoch > before.epoch or before.voted in (None, after.voted), f"a second vote: {before}, {after}"
        if not _changes(before, after):
            return None
        self._stored = self.state
        return self.state


def _changes(before: QuorumState, after: QuorumState) -> set[str]:
    """The fields that have to be stored. A leader that is forgotten has not: it may as well be remembered."""
    changed = {name for name, old, new in zip(QuorumState._fields, before, after, strict=True) if old != new}
    return changed - {"leader_id"} if after.leader_id == NO_LEADER else changed
