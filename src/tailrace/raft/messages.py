"""What goes into the machine and what comes out of it.

Requests and replies are those of the wire without its envelopes (`translation` converts); a `Reply` always carries the
epoch and the leader that its sender knows, which is how nodes learn of each other's. Values only: no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode
from tailrace.model.ports import Bytes, FileSlice
from tailrace.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tailrace.wire.schema import Message

NO_LEADER = -1

# ---- between nodes


class Vote(NamedTuple):
    """With `is_pre_vote` only a question (KIP-996): would you, in the next epoch?"""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last: OffsetAndEpoch
    is_pre_vote: bool


class BeginEpoch(NamedTuple):
    epoch: int
    leader_id: int
    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]


class EndEpoch(NamedTuple):
    epoch: int
    leader_id: int
    # Best first: the order in which they are to stand for election.
    successors: tuple[ReplicaKey, ...]
    endpoints: tuple[Endpoint, ...]


class Fetch(NamedTuple):
    """Tells that everything below `offset` is synced, so the leader may count it."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int


class FetchPiece(NamedTuple):
    """A fetch of a piece of a snapshot. The driver reads the piece; the machine says whether it may, and takes the
    fetch as a sign of life."""

    epoch: int
    replica: ReplicaKey


class AddVoter(NamedTuple):
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    key: ReplicaKey


class UpdateVoter(NamedTuple):
    epoch: int
    voter: Voter


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchPiece | AddVoter | RemoveVoter | UpdateVoter


class Fetched(NamedTuple):
    """The answer to a valid Fetch: at most one of the four tells something."""

    high_watermark: int
    # The log parts from the leader's: the leader's epoch up to the one asked for, and where it ended.
    diverging: OffsetAndEpoch | None = None
    # The log lacks what the leader has no more: take this snapshot.
    snapshot: OffsetAndEpoch | None = None
    records: Bytes | FileSlice = b""


class Reply(NamedTuple):
    epoch: int
    leader_id: int = NO_LEADER
    # The leader's, if the sender knows it.
    endpoint: Endpoint | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    is_granted: bool = False
    fetched: Fetched | None = None


# ---- inputs


class Tick(NamedTuple):
    """Time has passed; the first one is the start."""


class Received(NamedTuple):
    """The answer comes with the same token, in this step or a later one."""

    token: int
    request: Request
    # It was sent after this moment, when the one before it was answered on its connection; -inf if nothing is known.
    after_ms: float = inf


class Waited(NamedTuple):
    """A fetch that found nothing new is looked at again. It is no new sign of life."""

    token: int
    request: Fetch


class Replied(NamedTuple):
    send_id: int
    reply: Reply


class Failed(NamedTuple):
    """No answer came in time, or none that could be read. Every Send ends as Replied or as Failed."""

    send_id: int


class Written(NamedTuple):
    """The log has changed as a Ready told: at its end, or cut. `voters` are the voter records that were written, with
    their offsets."""

    base_offset: int
    voters: tuple[tuple[int, VoterSet], ...] = ()


class Unwritable(NamedTuple):
    """What the leader sent is damaged, and was not written."""


class Synced(NamedTuple):
    """`synced_end_offset` of the log has risen."""


class SnapshotProgress(NamedTuple):
    """A piece of the snapshot came: the leader is alive."""


class SnapshotInstalled(NamedTuple):
    """The log starts at the snapshot's end."""

    snapshot: OffsetAndEpoch
    voters: VoterSet


class SnapshotFailed(NamedTuple):
    snapshot: OffsetAndEpoch


class Resign(NamedTuple):
    """A leader gives up its epoch, for the node stops."""


Input = (
    Tick
    | Received
    | Waited
    | Replied
    | Failed
    | Written
    | Unwritable
    | Synced
    | SnapshotProgress
    | SnapshotInstalled
    | SnapshotFailed
    | Resign
)

# ---- outputs


class QuorumState(NamedTuple):
    """What a voter must not forget: by it one epoch gets one vote."""

    epoch: int = 0
    voted: ReplicaKey | None = None
    leader_id: int = NO_LEADER
    # Records that it had synced are missing, and may have been counted: it has no voice until it has them again.
    must_catch_up: bool = False


class Send(NamedTuple):
    id: int
    # Below -1 for an address whose node is not known: a bootstrap server.
    node_id: int
    endpoint: Endpoint
    request: Request


class Answer(NamedTuple):
    token: int
    reply: Reply


@dataclass(slots=True)
class Ready:
    """What the driver has to do, in this order. If a step of it fails, none of the later ones may be done: answers and
    requests tell others of what was to be stored and written before them."""

    # To be on the device before anything below: a vote that others know of must not be forgotten in a crash, or its
    # epoch could get a second one.
    persist: QuorumState | None = None
    # Then tell `Written`.
    truncate_to: int | None = None
    # Batches from the leader, or control records of our own in one batch; then tell `Written`. Never both, nor beside a
    # truncation, so that each `Written` tells of one change.
    append_fetched: Bytes | FileSlice | None = None
    append_control: list[Message] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)


class Leadership(NamedTuple):
    """Who leads, as far as this node knows."""

    epoch: int
    leader_id: int = NO_LEADER
    endpoint: Endpoint | None = None
    # Where this node leads: the end of the batch that opened its epoch. Once that is committed, so is all before it.
    active_from_offset: int | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return () if self.endpoint is None else (self.endpoint,)
