"""Changes of the voters (KIP-853): who may be added, removed or updated, and when the client is answered.

One change at a time: a change waits until the record of the last one is committed and until this epoch has committed
something (else two leaders could each know a majority of their own). A voter is added once it has caught up, so that it
does not hold the commits up; one is removed only if a majority of those that are left is heard. Works on
`node.RaftNode`; pure as that is.
"""

from __future__ import annotations

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID
from tailrace.raft.leader import Leader, VoterChange
from tailrace.raft.messages import AddVoter, RemoveVoter, Reply, UpdateVoter
from tailrace.raft.node import RaftNode
from tailrace.raft.types import KRAFT_VERSION, Voter, VoterSet
from tailrace.wire.apis.stored_records import KRaftVersionRecord
from tailrace.wire.schema import Message

# A removal has no timeout of its own on the wire; Kafka's clients wait so long by default.
_REMOVAL_TIMEOUT_MS = 30_000


def receive(node: RaftNode, token: int, request: AddVoter | RemoveVoter | UpdateVoter, now_ms: float) -> Reply | None:
    """None for a change that is answered once it is made."""
    leader = node.role
    if not isinstance(leader, Leader):
        return node.reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if not _is_settled(node, leader) or leader.change is not None:
        return node.reply(ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way. Try again.")
    if isinstance(request, AddVoter):
        return _add(node, leader, token, request, now_ms)
    if isinstance(request, RemoveVoter):
        return _remove(node, leader, token, request, now_ms)
    return _update(node, leader, request)


def _add(node: RaftNode, leader: Leader, token: int, request: AddVoter, now_ms: float) -> Reply | None:
    if node.voters.find(request.voter.key.id) is not None:
        return node.reply(
            ErrorCode.DUPLICATE_VOTER,
            f"Node {request.voter.key.id} is a voter. If its disk was replaced, remove the old voter first.",
        )
    if request.voter.key.directory_id == ZERO_UUID:
        return node.reply(ErrorCode.INVALID_REQUEST, "A voter needs the id of its directory: see meta.properties.")
    if not request.voter.endpoints:
        return node.reply(ErrorCode.INVALID_REQUEST, "A voter needs the address of its controller listener.")
    deadline_ms = now_ms + request.timeout_ms
    leader.change = VoterChange(token, deadline_ms, request.voter, request.ack_when_committed)
    return None


def _remove(node: RaftNode, leader: Leader, token: int, request: RemoveVoter, now_ms: float) -> Reply | None:
    if not node.voters.contains(request.key):
        return node.reply(ErrorCode.VOTER_NOT_FOUND, f"Node {request.key.id} with that directory is not a voter.")
    if len(node.voters) == 1:
        return node.reply(ErrorCode.INVALID_REQUEST, "The last voter cannot be removed.")
    left = node.voters.without(request.key)
    silent = [voter.key.id for voter in left if not _is_heard(node, leader, voter, now_ms)]
    if len(left) - len(silent) < left.majority:
        return node.reply(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Of the {len(left)} voters that would be left, {', '.join(map(str, silent))} cannot be heard: they would "
            "have no majority, and nothing could be changed any more. Start these first, or remove them instead.",
        )
    leader.change = VoterChange(token, now_ms + _REMOVAL_TIMEOUT_MS)
    _write(node, leader, left)
    return None


def _is_heard(node: RaftNode, leader: Leader, voter: Voter, now_ms: float) -> bool:
    progress = leader.replicas.get(voter.key)
    return voter.key == node.key or (
        progress is not None and progress.last_fetch_ms > now_ms - node.timing.fetch_timeout_ms
    )


def _update(node: RaftNode, leader: Leader, request: UpdateVoter) -> Reply:
    error = node.check_leading(request.epoch)
    if error is not ErrorCode.NONE:
        return node.reply(error)
    if not node.voters.contains(request.voter.key):
        return node.reply(ErrorCode.VOTER_NOT_FOUND, f"Node {request.voter.key.id} is not a voter.")
    if not request.voter.endpoints:
        return node.reply(ErrorCode.INVALID_REQUEST, "A voter needs the address of its controller listener.")
    if node.voters.find(request.voter.key.id) != request.voter:
        _write(node, leader, node.voters.with_voter(request.voter))
    return node.reply()


def advance(node: RaftNode, leader: Leader, now_ms: float) -> None:
    """Takes the change a step further, if there is one and it can go on."""
    change = leader.change
    if change is None:
        _update_own_endpoints(node, leader)
        return
    if change.added is not None and change.offset is None and not leader.is_writing_voters:
        progress = leader.replicas.get(change.added.key)
        if progress is not None and progress.last_caught_up_ms > node.clock_ms - node.timing.fetch_timeout_ms:
            _write(node, leader, node.voters.with_voter(change.added))
    if change.offset is not None and (not change.ack_when_committed or node.high_watermark > change.offset):
        node.answer_change(leader, node.reply())
    elif now_ms >= change.deadline_ms:
        node.answer_change(leader, node.reply(ErrorCode.REQUEST_TIMED_OUT, _describe_delay(change)))


def note_written(leader: Leader, offset: int) -> None:
    leader.is_writing_voters = False
    if leader.change is not None and leader.change.offset is None:
        leader.change.offset = offset


def _is_settled(node: RaftNode, leader: Leader) -> bool:
    """The last voters record is committed, and so is something of this epoch."""
    return (
        not leader.is_writing_voters
        and leader.active_from_offset is not None
        and node.high_watermark >= leader.active_from_offset
        and node.history.latest_offset < node.high_watermark
    )


def _update_own_endpoints(node: RaftNode, leader: Leader) -> None:
    """Followers tell the leader when their addresses have changed; a leader sees to its own."""
    own = Voter(node.key, node.identity.endpoints)
    known = node.voters.find(node.key.id)
    if known is None or not own.endpoints or known == own or not node.is_voter:
        return
    if _is_settled(node, leader):
        _write(node, leader, node.voters.with_voter(own))


def _write(node: RaftNode, leader: Leader, voters: VoterSet) -> None:
    assert len({voter.key for voter in node.voters} ^ {voter.key for voter in voters}) <= 1, (
        "only sets that differ by one voter have no majorities apart"
    )
    leader.is_writing_voters = True
    node.append_control(voters_records(voters, with_version=False))


def voters_records(voters: VoterSet, *, with_version: bool) -> list[Message]:
    records: list[Message] = [voters.to_record()]
    if with_version:
        records.insert(0, KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSION))
    return records


def _describe_delay(change: VoterChange) -> str:
    if change.offset is None:
        return "The new voter has not caught up with the log. Is it running, and does it reach the leader?"
    return "The change is written, but a majority of the voters has not taken it yet."
