"""Votes: whether to give one, and whether enough were given. Pure functions and counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.raft.messages import Vote
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, VoterSet


def decide_vote(
    request: Vote, *, last: OffsetAndEpoch, voted: ReplicaKey | None, has_leader: bool, heard_leader: bool
) -> bool:
    """For a request of our own epoch. `has_leader`: we know who leads it; `heard_leader`: and have reason to think that
    it still does. A vote that was given is given again to the same candidate: its answer may have been lost."""
    is_up_to_date = request.last.rank >= last.rank
    if request.is_pre_vote:
        # A voter that still hears its leader keeps one that was cut off from disturbing the others (KIP-996).
        return is_up_to_date and not heard_leader
    if voted is not None:
        return voted == request.candidate
    return is_up_to_date and not has_leader


def goes_first(request: Vote, *, last: OffsetAndEpoch, own: ReplicaKey) -> bool:
    """Of two who stand in the same epoch and grant each other their pre-votes. Followers of one leader lose it at the
    same moment: if both went on, each would store a vote for itself and refuse the other's, again and again where a
    disk takes longer for that than their pauses differ by."""
    return request.is_pre_vote and (request.last.rank > last.rank or request.candidate.id < own.id)


@dataclass(slots=True)
class Tally:
    """The answers of one round, our own included; a voter that has not answered is not in it."""

    granted: dict[int, bool] = field(default_factory=dict)

    def is_won(self, voters: VoterSet) -> bool:
        return self._count(voters, given=True) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        return self._count(voters, given=False) > len(voters) - voters.majority

    def _count(self, voters: VoterSet, *, given: bool) -> int:
        return sum(1 for node_id in voters.ids if self.granted.get(node_id) is given)
