"""The roles of a node, each with what only it needs. Changing from one to another is `node.RaftNode`'s alone.

Unattached   knows no leader of its epoch; a voter stands for election at its deadline, an observer asks around
Prospective  asks whether it would win (pre-vote); its epoch has not changed
Candidate    has a new epoch, its own vote, and asks for the others'
Leader       see `leader`
Resigned     was leader of this epoch and never will be again; tells the others
Follower     fetches from the leader
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.model.config import Endpoint
from tailrace.raft.election import Tally
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey


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
    # Whether the leader has answered since it became known, and has not resigned.
    has_fetched: bool = False
    # The snapshot that the leader told us to take, until it is installed.
    snapshot: OffsetAndEpoch | None = None
    # As the leader last said; what of it is in our log is our high watermark.
    leader_high_watermark: int = 0
    # When to tell the leader that our addresses have changed, or that we want to vote; moved after each attempt.
    next_membership_ms: float = 0.0
