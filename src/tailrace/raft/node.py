"""The machine of one replica: `step(input, now_ms) -> Ready`. Pure: the same inputs give the same outputs.

Owns: epoch, vote, role, voter history and high watermark of the node. Reads the log, never writes it: `Ready` says what
to persist, write, send and answer, in which order, and the driver tells when that is done (`Written`, `Synced`).

Rules, each of which the safety of the quorum hangs on:
  - one vote an epoch: epoch and vote are persisted before anything that depends on them leaves the node;
  - a follower fetches from the end of its log, and only when all of it is synced: a fetch is its promise to have it;
  - the high watermark never falls, and nothing below it is ever truncated;
  - a voters record counts from when it is written until it is truncated; the next one waits until it is committed;
  - a leader never leads its epoch again once it has stopped;
  - who lost what it had synced neither votes nor stands until it has fetched to the end of a leader's log. A record
    that it was counted for may be missing on it, but is on another voter of every majority that it is not part of: each
    leader elected without it has that record, and so has one that led before. Its fetches count: they tell what it has.
Membership is in `membership`, the arithmetic in `leader` and `election`.
"""

from __future__ import annotations

from tailrace.model.errors import ErrorCode
from tailrace.raft import membership
from tailrace.raft.advance import advance
from tailrace.raft.core import Replica
from tailrace.raft.election import decide_vote
from tailrace.raft.leader import Leader, decide_fetch
from tailrace.raft.messages import (
    NO_LEADER,
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Failed,
    Fetch,
    Fetched,
    FetchPiece,
    Input,
    QuorumState,
    Ready,
    Received,
    RemoveVoter,
    Replied,
    Reply,
    Request,
    Resign,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotProgress,
    Unwritable,
    Vote,
    Waited,
    Written,
)
from tailrace.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from tailrace.raft.types import OffsetAndEpoch
from tailrace.raft.voters import VoterHistory

_UNKNOWN_OFFSET = -1


class RaftNode(Replica):
    # ---- the step

    def step(self, event: Input, now_ms: float) -> Ready:
        self.ready = Ready()
        if isinstance(event, Received):
            self._receive(event.token, event.request, now_ms)
        elif isinstance(event, Waited):
            self.answer(event.token, self.answer_fetch(event.request))
        elif isinstance(event, Replied):
            self._take_reply(event, now_ms)
        elif isinstance(event, Failed):
            self._take_failure(event, now_ms)
        elif isinstance(event, Written):
            self._take_written(event)
        elif isinstance(event, Unwritable):
            self._pause_fetching(now_ms)
        elif isinstance(event, SnapshotProgress | SnapshotInstalled | SnapshotFailed):
            self._take_snapshot(event, now_ms)
        elif isinstance(event, Resign) and isinstance(self.role, Leader):
            self.resign(now_ms)
        advance(self, now_ms)
        state = QuorumState(self.epoch, self.voted, self.leader_id, self.must_catch_up)
        has_forgotten_leader = state == self.persisted._replace(leader_id=NO_LEADER)
        if state != self.persisted and not has_forgotten_leader:
            self.persisted = self.ready.persist = state
        return self.ready

    def _receive(self, token: int, request: Request, now_ms: float) -> None:
        reply: Reply | None
        if isinstance(request, Vote):
            reply = self._receive_vote(request, now_ms)
        elif isinstance(request, BeginEpoch):
            reply = self._receive_begin(request, now_ms)
        elif isinstance(request, EndEpoch):
            reply = self._receive_end(request, now_ms)
        elif isinstance(request, Fetch):
            reply = self._receive_fetch(request, now_ms)
        elif isinstance(request, FetchPiece):
            reply = self._receive_fetch_piece(request, now_ms)
        elif isinstance(request, AddVoter):
            reply = membership.receive_add(self, token, request, now_ms)
        elif isinstance(request, RemoveVoter):
            reply = membership.receive_remove(self, token, request, now_ms)
        else:
            reply = membership.receive_update(self, request)
        if reply is not None:
            self.answer(token, reply)

    # ---- requests

    def _receive_vote(self, request: Vote, now_ms: float) -> Reply:
        if not request.voter.matches(self.key):
            # Meant for the disk that this node had before.
            return self.reply(ErrorCode.INVALID_VOTER_KEY)
        if request.epoch < self.epoch:
            return self.reply(ErrorCode.FENCED_LEADER_EPOCH)
        if request.epoch > self.epoch:
            self.become_unattached(request.epoch, now_ms)
        role = self.role
        is_granted = not self.must_catch_up and decide_vote(
            request,
            last=self.last,
            voted=self.voted,
            has_leader=self.leader_id != NO_LEADER,
            heard_leader=isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched),
        )
        if is_granted and not request.is_pre_vote and self.voted is None:
            self.voted = request.candidate
            # It gets the time to win.
            self.role = Unattached(now_ms + self.election_timeout_ms())
        return self.reply(is_granted=is_granted)

    def _receive_begin(self, request: BeginEpoch, now_ms: float) -> Reply:
        if not request.voter.matches(self.key):
            return self.reply(ErrorCode.INVALID_VOTER_KEY)
        if request.epoch < self.epoch:
            return self.reply(ErrorCode.FENCED_LEADER_EPOCH)
        endpoint = self.endpoint_of(request.leader_id, request.endpoints)
        self.learn(request.epoch, request.leader_id, endpoint, now_ms, told_by=request.leader_id)
        return self.reply()

    def _receive_end(self, request: EndEpoch, now_ms: float) -> Reply:
        if request.epoch < self.epoch:
            return self.reply(ErrorCode.FENCED_LEADER_EPOCH)
        if request.epoch > self.epoch:
            self.become_unattached(request.epoch, now_ms)
        if isinstance(self.role, Follower | Unattached) and request.leader_id != self.key.id:
            ids = [key.id for key in request.successors if key.id in self.voters.ids]
            place = ids.index(self.key.id) if self.key.id in ids else len(ids)
            self.mistrust(request.leader_id, now_ms)
            # The first stands at once; the others give those before them the time to win.
            pause_ms = 0.0 if place == 0 else self.first_pause_ms() * (2 * place + self.random.random())
            self.role = Unattached(now_ms + pause_ms)
        return self.reply()

    def _receive_fetch(self, request: Fetch, now_ms: float) -> Reply:
        reply = self.answer_fetch(request)
        role = self.role
        if isinstance(role, Leader) and reply.fetched is not None and request.replica.id >= 0:
            is_prefix = reply.fetched.diverging is None and reply.fetched.snapshot is None
            offset = request.offset if is_prefix else None
            role.note_fetch(request.replica, now_ms, offset=offset, leader_end_offset=self.log.end_offset)
            self.raise_high_watermark()
            # It may be this very fetch that has committed something.
            reply = self.answer_fetch(request)
        return reply

    def _receive_fetch_piece(self, request: FetchPiece, now_ms: float) -> Reply:
        error = self._check_leading(request.epoch)
        if error is ErrorCode.NONE and isinstance(self.role, Leader):
            self.role.note_fetch(request.replica, now_ms, offset=None, leader_end_offset=self.log.end_offset)
        return self.reply(error)

    def _check_leading(self, epoch: int) -> ErrorCode:
        if not isinstance(self.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch == self.epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def answer_fetch(self, request: Fetch) -> Reply:
        """Looks only: a fetch that waits for records is answered so again when there are some. Whether there are any is
        for the driver to see."""
        error = self._check_leading(request.epoch)
        if error is not ErrorCode.NONE:
            return self.reply(error)
        diverging, snapshot = decide_fetch(self.log, offset=request.offset, last_epoch=request.last_epoch)
        return self.reply()._replace(fetched=Fetched(self._told_high_watermark(), diverging, snapshot))

    def _told_high_watermark(self) -> int:
        """Of a new leader unknown until something of its epoch is committed: as a follower it may have heard of less
        than others did, and they hold that it never falls."""
        if isinstance(self.role, Leader) and self.role.epoch_start_offset is not None:
            return self.high_watermark if self.high_watermark > self.role.epoch_start_offset else _UNKNOWN_OFFSET
        return _UNKNOWN_OFFSET

    # ---- replies

    def _take_reply(self, event: Replied, now_ms: float) -> None:
        sent = self.outgoing.finish(event.send_id)
        if sent is None:
            return
        node_id, request = sent
        reply = event.reply
        if reply.error in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH):
            self.outgoing.succeed(node_id, type(request))
        else:
            self.outgoing.back_off(node_id, type(request), now_ms)
        if self.learn(reply.epoch, reply.leader_id, reply.endpoint, now_ms, told_by=node_id):
            return
        if isinstance(request, Vote):
            self._take_vote(request, reply, now_ms)
        elif isinstance(request, Fetch):
            self._take_fetched(node_id, request, reply, now_ms)
        elif isinstance(request, BeginEpoch) and isinstance(self.role, Leader):
            # Until it fetches it is told again, though not at once.
            self.role.progress(request.voter).next_begin_ms = now_ms + self.timing.fetch_timeout_ms / 2
        elif isinstance(request, EndEpoch) and isinstance(self.role, Resigned):
            self.role.unaware.pop(node_id, None)

    def _take_failure(self, event: Failed, now_ms: float) -> None:
        sent = self.outgoing.finish(event.send_id)
        if sent is None:
            return
        self.outgoing.back_off(sent.node_id, type(sent.request), now_ms)
        if isinstance(sent.request, EndEpoch) and isinstance(self.role, Resigned):
            # It will notice; a node that stops does not wait for one that is gone.
            self.role.unaware.pop(sent.node_id, None)

    def _take_vote(self, request: Vote, reply: Reply, now_ms: float) -> None:
        role = self.role
        wanted = Prospective if request.is_pre_vote else Candidate
        if not isinstance(role, wanted) or request.epoch != self.epoch or reply.error is not ErrorCode.NONE:
            return
        role.tally.granted[request.voter.id] = reply.is_granted
        if not reply.is_granted:
            # The votes are split, or this one is not needed yet: a new round soon, not after the whole timeout, which
            # is for voters that do not answer.
            soon_ms = self.first_pause_ms() * (1 + self.random.random())
            role.deadline_ms = min(role.deadline_ms, now_ms + soon_ms)

    def _take_fetched(self, node_id: int, request: Fetch, reply: Reply, now_ms: float) -> None:
        role = self.role
        is_ours = isinstance(role, Follower) and role.leader_id == node_id and request.epoch == self.epoch
        if not is_ours or not isinstance(role, Follower):
            self.outgoing.back_off(node_id, Fetch, now_ms)
            return
        fetched = reply.fetched
        if fetched is None:
            self.outgoing.back_off(node_id, Fetch, now_ms)
            if reply.epoch == self.epoch and reply.leader_id == NO_LEADER:
                # It has resigned or was restarted, and never leads this epoch again: no need to wait for the timeout.
                self.mistrust(node_id, now_ms)
                self.role = Unattached(now_ms + self.first_pause_ms() * self.random.random())
            return
        role.has_fetched = True
        role.fetch_deadline_ms = now_ms + self.timing.fetch_timeout_ms
        self.lost_elections = 0
        if request.offset != self.log.end_offset:
            return  # The answer to a question of long ago: the log has moved on.
        if fetched.diverging is not None:
            self._truncate(fetched.diverging)
        elif fetched.snapshot is not None:
            self._want_snapshot(role, fetched.snapshot, now_ms)
        else:
            role.leader_high_watermark = fetched.high_watermark
            if len(fetched.records):
                self.ready.append_fetched = fetched.records
            else:
                # All that the leader had when it answered is here, and synced: else this fetch were not sent.
                self.must_catch_up = False
                self.follow_high_watermark()

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """To where the leader's log and ours part for certain; the next fetch may find that it is further down."""
        local = self.log.end_offset_for(diverging.epoch)
        truncate_to = min(local.offset, diverging.offset)
        assert truncate_to >= self.high_watermark, (
            f"the leader of epoch {self.epoch} lacks what was committed: it ends at {diverging}, "
            f"the high watermark is {self.high_watermark}"
        )
        self.ready.truncate_to = truncate_to

    def _want_snapshot(self, role: Follower, snapshot: OffsetAndEpoch, now_ms: float) -> None:
        if snapshot.offset < self.high_watermark:
            # It would take back what was committed: no leader asks for that. Ask again.
            self.outgoing.back_off(role.leader_id, Fetch, now_ms)
        else:
            role.snapshot = snapshot

    # ---- the log

    def _take_written(self, event: Written) -> None:
        self.history.truncate(min(event.base_offset, self.log.end_offset))
        for offset, voters in event.voters:
            self.history.add(offset, voters)
        self.history.forget_before(self.log.start_offset)
        role = self.role
        if isinstance(role, Leader):
            if role.epoch_start_offset is None:
                role.epoch_start_offset = event.base_offset
                role.active_from_offset = self.log.end_offset
            for offset, _ in event.voters:
                membership.note_written(role, offset)
        else:
            self.follow_high_watermark()

    def _take_snapshot(self, event: SnapshotProgress | SnapshotInstalled | SnapshotFailed, now_ms: float) -> None:
        if isinstance(event, SnapshotInstalled):
            self.history = VoterHistory(event.voters, event.snapshot.offset - 1)
            self.high_watermark = max(self.high_watermark, event.snapshot.offset)
        role = self.role
        if not isinstance(role, Follower):
            return
        if isinstance(event, SnapshotProgress):
            role.fetch_deadline_ms = now_ms + self.timing.fetch_timeout_ms
        elif role.snapshot == event.snapshot:
            role.snapshot = None
            if isinstance(event, SnapshotFailed):
                self._pause_fetching(now_ms)

    def _pause_fetching(self, now_ms: float) -> None:
        """The leader lives, and our disk may be full: soon enough not to lose it, seldom enough to do no harm."""
        if isinstance(self.role, Follower):
            self.outgoing.pause(self.role.leader_id, Fetch, now_ms + self.timing.fetch_timeout_ms / 4)
