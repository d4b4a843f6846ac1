"""The state of one replica, and the ways it changes: roles, epochs, high watermark, requests to send.

`node.RaftNode` adds the inputs, `advance` what time and state demand, `membership` the changes of the voters; they all
work on this. An epoch rises in `become_unattached` and where a prospective candidate becomes one, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID
from tailrace.model.ports import Random
from tailrace.raft import membership
from tailrace.raft.leader import Leader
from tailrace.raft.messages import NO_LEADER, Answer, Fetch, Leadership, QuorumState, Ready, Reply, Request
from tailrace.raft.outgoing import Outgoing
from tailrace.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from tailrace.raft.types import OffsetAndEpoch, RaftLog, ReplicaKey, Voter, VoterSet
from tailrace.raft.voters import VoterHistory
from tailrace.wire.schema import Message

Role = Unattached | Prospective | Candidate | Leader | Resigned | Follower

# A share of the election timeout: the first election after a start, and the first pause after a lost one. On a
# loopback two round trips and a sync take some milliseconds; 50 ms at the defaults make a tie unlikely.
_FIRST_ELECTION_SHARE = 1 / 20


@dataclass(frozen=True, slots=True)
class Timing:
    """controller.quorum.*"""

    election_timeout_ms: int
    election_backoff_max_ms: int
    fetch_timeout_ms: int
    retry_backoff_ms: int


@dataclass(frozen=True, slots=True)
class Identity:
    key: ReplicaKey
    # Where other nodes reach this one; none on a node that never votes.
    endpoints: tuple[Endpoint, ...] = ()
    # By which listener it reaches others.
    listener_name: str = ""
    # Whom to ask for the leader.
    bootstrap: tuple[Endpoint, ...] = ()
    # Whether it asks to become a voter (controller.quorum.auto.join.enable).
    wants_to_vote: bool = False


class Replica:
    def __init__(
        self,
        identity: Identity,
        timing: Timing,
        log: RaftLog,
        random: Random,
        *,
        voters: VoterHistory,
        state: QuorumState,
        now_ms: float,
    ) -> None:
        self.identity = identity
        self.key = identity.key
        self.timing = timing
        self.log = log
        self.history = voters
        # A record of an epoch proves that the epoch was, even if the vote in it was another node's.
        is_behind = state.epoch < log.last_epoch
        self.epoch = log.last_epoch if is_behind else state.epoch
        self.voted = None if is_behind else state.voted
        self.must_catch_up = state.must_catch_up
        snapshot = log.latest_snapshot
        self.high_watermark = 0 if snapshot is None else snapshot.offset
        self.random = random
        self.persisted = state
        first_ms = timing.election_timeout_ms * _FIRST_ELECTION_SHARE * random.random()
        self.role: Role = Unattached(now_ms + first_ms)
        # The leader of this epoch that has stopped answering us: for a fetch timeout, whoever else still names it does
        # not convince us. It may be that only we are cut off from it, so not for longer.
        self.suspect = NO_LEADER
        self.suspect_until_ms = -inf
        self.lost_elections = 0
        self.outgoing = Outgoing(timing.retry_backoff_ms)
        # Whom to ask next who leads, and when.
        self.next_place = random.randrange(len(identity.bootstrap)) if identity.bootstrap else 0
        self.next_question_ms = -inf
        self.deadline_ms = -inf
        self.ready = Ready()

    # ---- what there is to know

    @property
    def voters(self) -> VoterSet:
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.voters.contains(self.key)

    @property
    def may_stand(self) -> bool:
        """A voter; or one that a record removes which may not be committed. It could be the only one that has that
        record, and the others could not win without it (Ongaro's thesis, 4.2.2). Its own vote does not count then. One
        that must catch up asks around for a leader instead, as observers do."""
        if self.must_catch_up:
            return False
        latest_offset = self.history.latest_offset
        return self.is_voter or (
            latest_offset >= self.high_watermark and self.history.at(latest_offset).contains(self.key)
        )

    @property
    def leader_id(self) -> int:
        if isinstance(self.role, Leader):
            return self.key.id
        return self.role.leader_id if isinstance(self.role, Follower) else NO_LEADER

    @property
    def leadership(self) -> Leadership:
        role = self.role
        if isinstance(role, Leader):
            return Leadership(self.epoch, self.key.id, self._own_endpoint(), role.active_from_offset)
        if isinstance(role, Follower):
            return Leadership(self.epoch, role.leader_id, role.endpoint)
        return Leadership(self.epoch)

    @property
    def snapshot_to_fetch(self) -> OffsetAndEpoch | None:
        return self.role.snapshot if isinstance(self.role, Follower) else None

    @property
    def next_deadline_ms(self) -> float:
        """When a Tick is due, if nothing comes before; infinite if none is."""
        return self.deadline_ms

    @property
    def is_told(self) -> bool:
        """Whether all voters know of a resignation."""
        return not (isinstance(self.role, Resigned) and self.role.unaware)

    # ---- what the driver is told

    def answer(self, token: int, reply: Reply) -> None:
        self.ready.answers.append(Answer(token, reply))

    def reply(self, error: ErrorCode = ErrorCode.NONE, message: str = "", *, is_granted: bool = False) -> Reply:
        leadership = self.leadership
        return Reply(leadership.epoch, leadership.leader_id, leadership.endpoint, error, message, is_granted)

    def append_control(self, records: Sequence[Message]) -> None:
        assert not self.ready.append_control, "one control batch a step"
        self.ready.append_control.extend(records)

    # ---- the high watermark

    def follow_high_watermark(self) -> None:
        if isinstance(self.role, Follower):
            committed = min(self.role.leader_high_watermark, self.log.end_offset)
            self.high_watermark = max(self.high_watermark, committed)

    def raise_high_watermark(self) -> None:
        if isinstance(self.role, Leader):
            decided = self.role.decide_high_watermark(self.voters, self.key, self.log.synced_end_offset)
            if decided is not None and decided > self.high_watermark:
                self.high_watermark = decided

    @property
    def last(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    # ---- changes of role

    def learn(self, epoch: int, leader_id: int, endpoint: Endpoint | None, now_ms: float, *, told_by: int) -> bool:
        """Of a newer epoch, or of the leader of ours. True if that has changed what we are."""
        if epoch < self.epoch:
            return False
        is_known = leader_id not in (NO_LEADER, self.key.id)
        endpoint = endpoint or self.endpoint_of(leader_id, ())
        if epoch > self.epoch:
            self.become_unattached(epoch, now_ms)
            if is_known and endpoint is not None:
                self.follow(leader_id, endpoint, now_ms)
            return True
        if not is_known or endpoint is None or isinstance(self.role, Leader | Resigned | Follower):
            return False
        if leader_id == self.suspect and told_by != leader_id and now_ms < self.suspect_until_ms:
            return False
        self.follow(leader_id, endpoint, now_ms)
        return True

    def follow(self, leader_id: int, endpoint: Endpoint, now_ms: float) -> None:
        self.suspect = NO_LEADER
        # Whatever failed before: it is counted anew from here.
        self.outgoing.succeed(leader_id, Fetch)
        self.role = Follower(leader_id, endpoint, now_ms + self.timing.fetch_timeout_ms)

    def mistrust(self, leader_id: int, now_ms: float) -> None:
        """Observers have nothing to decide: they may as well ask it again."""
        if self.may_stand:
            self.suspect = leader_id
            self.suspect_until_ms = now_ms + self.timing.fetch_timeout_ms

    def become_unattached(self, epoch: int, now_ms: float) -> None:
        assert epoch > self.epoch, "epochs rise"
        role = self.role
        self.epoch = epoch
        self.voted = None
        self.suspect = NO_LEADER
        self.role = Unattached(now_ms + self.election_timeout_ms())
        if isinstance(role, Leader):
            membership.fail_change(self, role)

    def resign(self, now_ms: float) -> None:
        role = self.role
        assert isinstance(role, Leader), "only a leader resigns"
        successors = role.successors(self.voters, self.key)
        unaware = {key.id: None for key in successors}
        self.role = Resigned(now_ms + self.election_timeout_ms(), successors, unaware)
        membership.fail_change(self, role)

    # ---- sending

    def send(self, node_id: int, endpoint: Endpoint | None, request: Request, now_ms: float) -> None:
        if endpoint is None:
            return
        send = self.outgoing.send(node_id, endpoint, request, now_ms)
        if send is not None:
            self.ready.sends.append(send)
        elif not self.outgoing.is_under_way(node_id, request):
            self.wake_at(self.outgoing.ready_ms(node_id, type(request)))

    def own_fetch(self) -> Fetch:
        """Only to be sent when all of the log is synced."""
        return Fetch(self.epoch, self.key, self.log.end_offset, self.log.last_epoch, self.high_watermark)

    def endpoint_of(self, leader_id: int, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        voter = Voter(ReplicaKey(leader_id, ZERO_UUID), endpoints) if endpoints else self.voters.find(leader_id)
        return None if voter is None else voter.endpoint(self.identity.listener_name)

    def _own_endpoint(self) -> Endpoint | None:
        return Voter(self.key, self.identity.endpoints).endpoint(self.identity.listener_name)

    def wake_at(self, deadline_ms: float) -> None:
        self.deadline_ms = min(self.deadline_ms, deadline_ms)

    def election_timeout_ms(self) -> float:
        return self.timing.election_timeout_ms * (1 + self.random.random())

    def first_pause_ms(self) -> float:
        return self.timing.election_timeout_ms * _FIRST_ELECTION_SHARE
