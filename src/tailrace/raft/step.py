"""The machine of one replica: `step(node, input, now_ms) -> Ready`. Pure: the same inputs give the same outputs.

`now_ms` is the patient time (`model.attention`): what others have to do in time is judged by it. A leader judges its
own lead by the clock, `clock_ms`, and counts a fetch as of `looked_ms`, since when it may have lain unread. Both are
as `now_ms` where nobody is ever held up.

Owns nothing: the state is `node.RaftNode`, which only a step changes. Reads the log, never writes it: `Ready` says what
to persist, write, send and answer, in which order, and the driver tells when that is done (`Written`, `Synced`).

Rules, each of which the safety of the quorum hangs on:
  - one vote an epoch: epoch and vote are persisted before anything that depends on them leaves the node;
  - a follower fetches from the end of its log, and only when all of it is synced: a fetch is its promise to have it;
  - the high watermark never falls, and nothing below it is ever truncated: who has heard of a commit may have acted on
    it;
  - a voters record counts from when it is written until it is truncated; the next one waits until it is committed, else
    two leaders could each know a majority of their own;
  - a leader never leads its epoch again once it has stopped: a restart may have cost it records of that epoch which it
    had not synced yet and a follower has. Others in their place would have the same offsets and the same epoch, and
    logs are told apart by these alone;
  - who lost what it had synced neither votes nor stands until it has fetched to the end of a leader's log. A record
    that it was counted for may be missing on it, but is on another voter of every majority that it is not part of: each
    leader elected without it has that record, and so has one that led before. Its fetches count: they tell what it has.
The roles and their changes are in `roles`, membership in `membership`, the arithmetic in `leader` and `election`.
"""

from __future__ import annotations

from tailrace.model.errors import ErrorCode
from tailrace.raft import membership
from tailrace.raft.advance import advance
from tailrace.raft.election import decide_vote, goes_first
from tailrace.raft.leader import Leader, decide_fetch
from tailrace.raft.messages import (
    NO_LEADER,
    BeginEpoch,
    EndEpoch,
    Failed,
    Fetch,
    Fetched,
    FetchPiece,
    Input,
    Ready,
    Received,
    Replied,
    Reply,
    Resign,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotProgress,
    Unwritable,
    Vote,
    Waited,
    Written,
)
from tailrace.raft.node import RaftNode
from tailrace.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from tailrace.raft.types import OffsetAndEpoch

_UNKNOWN_OFFSET = -1


def step(
    node: RaftNode, event: Input, now_ms: float, *, clock_ms: float | None = None, looked_ms: float | None = None
) -> Ready:
    clock_ms = now_ms if clock_ms is None else clock_ms
    node.begin_step(clock_ms, clock_ms if looked_ms is None else looked_ms)
    if isinstance(event, Received):
        _receive(node, event, now_ms)
    elif isinstance(event, Waited):
        node.answer(event.token, answer_fetch(node, event.request))
    elif isinstance(event, Replied):
        _take_reply(node, event, now_ms)
    elif isinstance(event, Failed):
        _take_failure(node, event, now_ms)
    elif isinstance(event, Written):
        _take_written(node, event)
    elif isinstance(event, Unwritable):
        _pause_fetching(node, now_ms)
    elif isinstance(event, SnapshotProgress | SnapshotInstalled | SnapshotFailed):
        _take_snapshot(node, event, now_ms)
    elif isinstance(event, Resign) and isinstance(node.role, Leader):
        node.resign(now_ms)
    advance(node, now_ms)
    return node.end_step()


def _receive(node: RaftNode, event: Received, now_ms: float) -> None:
    token, request = event.token, event.request
    reply: Reply | None
    if isinstance(request, Vote):
        reply = _receive_vote(node, request, now_ms)
    elif isinstance(request, BeginEpoch):
        reply = _receive_begin(node, request, now_ms)
    elif isinstance(request, EndEpoch):
        reply = _receive_end(node, request, now_ms)
    elif isinstance(request, Fetch):
        reply = _receive_fetch(node, request, event.after_ms, now_ms)
    elif isinstance(request, FetchPiece):
        reply = _receive_fetch_piece(node, request, event.after_ms, now_ms)
    else:
        reply = membership.receive(node, token, request, now_ms)
    if reply is not None:
        node.answer(token, reply)


# ---- requests


def _receive_vote(node: RaftNode, request: Vote, now_ms: float) -> Reply:
    if not request.voter.matches(node.key):
        # Meant for the disk that this node had before.
        return node.reply(ErrorCode.INVALID_VOTER_KEY)
    if request.epoch < node.epoch:
        return node.reply(ErrorCode.FENCED_LEADER_EPOCH)
    if request.epoch > node.epoch:
        node.see_epoch(request.epoch, now_ms)
    role = node.role
    is_granted = not node.must_catch_up and decide_vote(
        request,
        last=node.last,
        voted=node.standing.state.voted,
        has_leader=node.leader_id != NO_LEADER,
        heard_leader=isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched),
    )
    if is_granted and not request.is_pre_vote and node.standing.state.voted is None:
        # It gets the time to win.
        node.standing.grant(request.candidate, now_ms + node.election_timeout_ms())
    if is_granted and isinstance(role, Prospective) and goes_first(request, last=node.last, own=node.key):
        node.standing.give_way(now_ms + node.election_timeout_ms())
    assert not is_granted or request.is_pre_vote or node.standing.state.voted == request.candidate, (
        "a vote is granted if it is stored with this step, or was before"
    )
    return node.reply(is_granted=is_granted)


def _receive_begin(node: RaftNode, request: BeginEpoch, now_ms: float) -> Reply:
    if not request.voter.matches(node.key):
        return node.reply(ErrorCode.INVALID_VOTER_KEY)
    if request.epoch < node.epoch:
        return node.reply(ErrorCode.FENCED_LEADER_EPOCH)
    endpoint = node.endpoint_of(request.leader_id, request.endpoints)
    node.learn(request.epoch, request.leader_id, endpoint, now_ms, told_by=request.leader_id)
    return node.reply()


def _receive_end(node: RaftNode, request: EndEpoch, now_ms: float) -> Reply:
    if request.epoch < node.epoch:
        return node.reply(ErrorCode.FENCED_LEADER_EPOCH)
    if request.epoch > node.epoch:
        node.see_epoch(request.epoch, now_ms)
    if isinstance(node.role, Follower | Unattached) and request.leader_id != node.key.id:
        ids = [key.id for key in request.successors if key.id in node.voters.ids]
        place = ids.index(node.key.id) if node.key.id in ids else len(ids)
        # The first stands at once; the others give those before them the time to win.
        pause_ms = 0.0 if place == 0 else node.first_pause_ms() * (2 * place + node.random.random())
        node.lose_leader(request.leader_id, now_ms, pause_ms=pause_ms)
    return node.reply()


def _receive_fetch(node: RaftNode, request: Fetch, after_ms: float, now_ms: float) -> Reply:
    reply = answer_fetch(node, request)
    role = node.role
    if isinstance(role, Leader) and reply.fetched is not None and request.replica.id >= 0:
        is_prefix = reply.fetched.diverging is None and reply.fetched.snapshot is None
        offset = request.offset if is_prefix else None
        role.note_fetch(
            request.replica,
            node.looked_ms,
            patient_ms=now_ms,
            after_ms=after_ms,
            offset=offset,
            leader_end_offset=node.log.end_offset,
        )
        node.raise_high_watermark()
        # It may be this very fetch that has committed something.
        reply = answer_fetch(node, request)
    return reply


def _receive_fetch_piece(node: RaftNode, request: FetchPiece, after_ms: float, now_ms: float) -> Reply:
    error = node.check_leading(request.epoch)
    if error is ErrorCode.NONE and isinstance(node.role, Leader):
        node.role.note_fetch(
            request.replica,
            node.looked_ms,
            patient_ms=now_ms,
            after_ms=after_ms,
            offset=None,
            leader_end_offset=node.log.end_offset,
        )
    return node.reply(error)


def answer_fetch(node: RaftNode, request: Fetch) -> Reply:
    """Looks only: a fetch that waits for records is answered so again when there are some. Whether there are any is
    for the driver to see."""
    error = node.check_leading(request.epoch)
    if error is not ErrorCode.NONE:
        return node.reply(error)
    diverging, snapshot = decide_fetch(node.log, offset=request.offset, last_epoch=request.last_epoch)
    return node.reply()._replace(fetched=Fetched(_told_high_watermark(node), diverging, snapshot))


def _told_high_watermark(node: RaftNode) -> int:
    """What replicas are told. A new leader's is unknown until something of its epoch is committed: as a follower it may
    have heard of less than others did, and they hold that it never falls."""
    if isinstance(node.role, Leader) and node.role.epoch_start_offset is not None:
        return node.high_watermark if node.high_watermark > node.role.epoch_start_offset else _UNKNOWN_OFFSET
    return _UNKNOWN_OFFSET


# ---- replies


def _take_reply(node: RaftNode, event: Replied, now_ms: float) -> None:
    sent = node.outgoing.finish(event.send_id)
    if sent is None:
        return
    node_id, request = sent.node_id, sent.request
    reply = event.reply
    if reply.error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
        node.outgoing.succeed(node_id, type(request))
    else:
        node.outgoing.back_off(node_id, type(request), now_ms)
    if node.learn(reply.epoch, reply.leader_id, reply.endpoint, now_ms, told_by=node_id):
        return
    if isinstance(request, Vote):
        _take_vote(node, request, reply, now_ms)
    elif isinstance(request, Fetch):
        _take_fetched(node, node_id, request, reply, now_ms)
    elif isinstance(request, BeginEpoch) and isinstance(node.role, Leader):
        # Until it fetches it is told again, though not at once.
        node.role.progress(request.voter).next_begin_ms = node.clock_ms + node.timing.fetch_timeout_ms / 2
    elif isinstance(request, EndEpoch) and isinstance(node.role, Resigned):
        node.role.unaware.pop(node_id, None)


def _take_failure(node: RaftNode, event: Failed, now_ms: float) -> None:
    sent = node.outgoing.finish(event.send_id)
    if sent is None:
        return
    took_ms = now_ms - sent.sent_ms
    if isinstance(sent.request, Fetch) and node.may_stand and took_ms >= node.timing.fetch_timeout_ms / 2:
        # Nobody refused: it may be stopped or starved, and is waited for until the deadline.
        node.outgoing.pause(sent.node_id, Fetch, now_ms + node.timing.retry_backoff_ms)
    else:
        node.outgoing.back_off(sent.node_id, type(sent.request), now_ms)
    if isinstance(sent.request, EndEpoch) and isinstance(node.role, Resigned):
        # It will notice; a node that stops does not wait for one that is gone.
        node.role.unaware.pop(sent.node_id, None)


def _take_vote(node: RaftNode, request: Vote, reply: Reply, now_ms: float) -> None:
    role = node.role
    wanted = Prospective if request.is_pre_vote else Candidate
    if not isinstance(role, wanted) or request.epoch != node.epoch or reply.error is not ErrorCode.NONE:
        return
    role.tally.granted[request.voter.id] = reply.is_granted
    if not reply.is_granted:
        # The votes are split, or this one is not needed yet: a new round soon, not after the whole timeout, which
        # is for voters that do not answer.
        soon_ms = node.first_pause_ms() * (1 + node.random.random())
        role.deadline_ms = min(role.deadline_ms, now_ms + soon_ms)


def _take_fetched(node: RaftNode, node_id: int, request: Fetch, reply: Reply, now_ms: float) -> None:
    role = node.role
    if not isinstance(role, Follower) or role.leader_id != node_id or request.epoch != node.epoch:
        node.outgoing.back_off(node_id, Fetch, now_ms)
        return
    fetched = reply.fetched
    if fetched is None:
        node.outgoing.back_off(node_id, Fetch, now_ms)
        if reply.epoch == node.epoch and reply.leader_id == NO_LEADER:
            # It has resigned or was restarted, and never leads this epoch again: no need to wait for the timeout.
            node.lose_leader(node_id, now_ms, pause_ms=node.first_pause_ms() * node.random.random())
        return
    role.has_fetched = True
    node.hear_leader(role, now_ms)
    if request.offset != node.log.end_offset:
        return  # The answer to a question of long ago: the log has moved on.
    if fetched.diverging is not None:
        _truncate(node, fetched.diverging)
    elif fetched.snapshot is not None:
        _want_snapshot(node, role, fetched.snapshot, now_ms)
    else:
        role.leader_high_watermark = fetched.high_watermark
        if len(fetched.records):
            node.ready.append_fetched = fetched.records
        else:
            # All that the leader had when it answered is here, and synced: else this fetch were not sent.
            node.standing.catch_up()
            node.raise_high_watermark()


def _truncate(node: RaftNode, diverging: OffsetAndEpoch) -> None:
    """To where the leader's log and ours part for certain; the next fetch may find that it is further down."""
    local = node.log.end_offset_for(diverging.epoch)
    truncate_to = min(local.offset, diverging.offset)
    assert truncate_to >= node.high_watermark, (
        f"the leader of epoch {node.epoch} lacks what was committed: it ends at {diverging}, "
        f"the high watermark is {node.high_watermark}"
    )
    node.ready.truncate_to = truncate_to


def _want_snapshot(node: RaftNode, role: Follower, snapshot: OffsetAndEpoch, now_ms: float) -> None:
    if snapshot.offset < node.high_watermark:
        # It would take back what was committed: no leader asks for that. Ask again.
        node.outgoing.back_off(role.leader_id, Fetch, now_ms)
    else:
        role.snapshot = snapshot


# ---- the log


def _take_written(node: RaftNode, event: Written) -> None:
    base_offset, end_offset = event.base_offset, node.log.end_offset
    assert node.high_watermark <= base_offset <= end_offset, (
        f"written at {base_offset}: committed is {node.high_watermark}, the log ends at {end_offset}"
    )
    node.history.truncate(base_offset)
    for offset, voters in event.voters:
        assert base_offset <= offset < end_offset, f"voters at {offset} are not in what was written"
        node.history.add(offset, voters)
    node.history.forget_before(node.log.start_offset)
    role = node.role
    if isinstance(role, Leader):
        if role.epoch_start_offset is None:
            role.epoch_start_offset = event.base_offset
            role.active_from_offset = node.log.end_offset
        for offset, _ in event.voters:
            membership.note_written(role, offset)
    else:
        node.raise_high_watermark()


def _take_snapshot(node: RaftNode, event: SnapshotProgress | SnapshotInstalled | SnapshotFailed, now_ms: float) -> None:
    if isinstance(event, SnapshotInstalled):
        node.take_snapshot(event.snapshot, event.voters)
    role = node.role
    if not isinstance(role, Follower):
        return
    if isinstance(event, SnapshotProgress):
        node.hear_leader(role, now_ms)
    elif role.snapshot == event.snapshot:
        role.snapshot = None
        if isinstance(event, SnapshotFailed):
            _pause_fetching(node, now_ms)


def _pause_fetching(node: RaftNode, now_ms: float) -> None:
    """The leader lives, and our disk may be full: soon enough not to lose it, seldom enough to do no harm."""
    if isinstance(node.role, Follower):
        node.outgoing.pause(node.role.leader_id, Fetch, now_ms + node.timing.fetch_timeout_ms / 4)
