"""One replica: what it is made of, what there is to know of it, and what it does with what it is told.

Owns the high watermark, which voters are in force, and what this step gives out (`ready`); its parts own the rest:
`roles.Standing` role, epoch and vote, `outgoing` the requests under way. `step` takes the inputs, `advance` sees what
time and state demand, `membership` changes the voters; they all work on this, and assign none of its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import ZERO_UUID
from tailrace.model.ports import Random
from tailrace.raft.leader import Leader
from tailrace.raft.messages import NO_LEADER, Answer, Fetch, Leadership, QuorumState, Ready, Reply, Request
from tailrace.raft.outgoing import Outgoing
from tailrace.raft.roles import Follower, Resigned, Role, Standing
from tailrace.raft.types import OffsetAndEpoch, RaftLog, ReplicaKey, Voter, VoterSet
from tailrace.raft.voters import VoterHistory
from tailrace.wire.schema import Message

# A share of the election timeout: the first election after a start, and the first pause after a lost one. On a
# loopback two round trips and a sync take some milliseconds; 50 ms at the defaults make a tie unlikely.
_FIRST_ELECTION_SHARE = 1 / 20
# Fetch timeouts for which a leader that fell silent is remembered: a minute by default.
_SILENCE_MEMORY = 30


@dataclass(frozen=True, slots=True)
class Timing:
    """controller.quorum.*"""

    election_timeout_ms: int
    election_backoff_max_ms: int
    fetch_timeout_ms: int
    retry_backoff_ms: int


@dataclass(frozen=True, slots=True)
class RaftIdentity:
    key: ReplicaKey
    # Where other nodes reach this one; none on a node that never votes.
    endpoints: tuple[Endpoint, ...] = ()
    # By which listener it reaches others.
    listener_name: str = ""
    # Whom to ask for the leader.
    bootstrap: tuple[Endpoint, ...] = ()
    # Whether it asks to become a voter (controller.quorum.auto.join.enable).
    wants_to_vote: bool = False


class RaftNode:
    def __init__(
        self,
        identity: RaftIdentity,
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
        snapshot = log.latest_snapshot
        self.high_watermark = 0 if snapshot is None else snapshot.offset
        self.random = random
        deadline_ms = now_ms + self.first_pause_ms() * random.random()
        self.standing = Standing(self.key, state, last_epoch=log.last_epoch, election_deadline_ms=deadline_ms)
        self.outgoing = Outgoing(timing.retry_backoff_ms)
        # Whom to ask next who leads, and when.
        self._next_place = random.randrange(len(identity.bootstrap)) if identity.bootstrap else 0
        self._next_question_ms = -inf
        # When a Tick is due, if nothing comes before; infinite if none is.
        self.next_deadline_ms = -inf
        self.ready = Ready()
        # The time of this step by the clock, and the moment since when what it was given may have lain unread.
        self.clock_ms = self.looked_ms = now_ms
        self._check()

    def _check(self) -> None:
        """What replay, the driver and every decision may assume, after each step and from the start on."""
        log = self.log
        assert log.start_offset <= self.high_watermark <= log.end_offset, (
            f"committed up to {self.high_watermark}, but the log has {log.start_offset} to {log.end_offset}"
        )
        assert log.last_epoch <= self.epoch, f"a record of epoch {log.last_epoch} in epoch {self.epoch}"

    # ---- what there is to know

    @property
    def role(self) -> Role:
        return self.standing.role

    @property
    def epoch(self) -> int:
        return self.standing.state.epoch

    @property
    def must_catch_up(self) -> bool:
        return self.standing.state.must_catch_up

    @property
    def leader_id(self) -> int:
        return self.standing.state.leader_id

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
    def is_told(self) -> bool:
        """Whether all voters know of a resignation."""
        return not (isinstance(self.role, Resigned) and self.role.unaware)

    def check_leading(self, epoch: int) -> ErrorCode:
        if not isinstance(self.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch == self.epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    # ---- what the driver is told

    def begin_step(self, clock_ms: float, looked_ms: float) -> None:
        self.clock_ms, self.looked_ms = clock_ms, looked_ms
        self.ready = Ready()
        self.next_deadline_ms = inf

    def end_step(self) -> Ready:
        ready = self.ready
        assert (ready.truncate_to is not None) + (ready.append_fetched is not None) + bool(ready.append_control) <= 1, (
            "one change of the log a step, so that each Written tells of one"
        )
        ready.persist = self.standing.take_unstored()
        self._check()
        return ready

    def answer(self, token: int, reply: Reply) -> None:
        self.ready.answers.append(Answer(token, reply))

    def reply(self, error: ErrorCode = ErrorCode.NONE, message: str = "", *, is_granted: bool = False) -> Reply:
        leadership = self.leadership
        return Reply(leadership.epoch, leadership.leader_id, leadership.endpoint, error, message, is_granted)

    def append_control(self, records: Sequence[Message]) -> None:
        assert not self.ready.append_control, "one control batch a step"
        self.ready.append_control.extend(records)

    def answer_change(self, role: Role, reply: Reply) -> None:
        """To the client that waits for a change of the voters, if one does."""
        if isinstance(role, Leader) and role.change is not None:
            self.answer(role.change.token, reply)
            role.change = None

    # ---- the high watermark and the voters

    def raise_high_watermark(self) -> None:
        role, decided = self.role, None
        if isinstance(role, Leader):
            # Its own log counts only as far as it is synced: else, if it lost power, fewer voters would have a record
            # than were counted.
            decided = role.decide_high_watermark(self.voters, self.key, self.log.synced_end_offset)
        elif isinstance(role, Follower):
            decided = min(role.leader_high_watermark, self.log.end_offset)
        self._raise_to(decided or 0)

    def take_snapshot(self, snapshot: OffsetAndEpoch, voters: VoterSet) -> None:
        """The log starts at its end, and all before that is committed."""
        self.history = VoterHistory(voters, snapshot.offset - 1)
        self._raise_to(snapshot.offset)

    def _raise_to(self, offset: int) -> None:
        """Never lower: who has heard of a commit may have acted on it."""
        assert offset <= self.log.end_offset, f"{offset} cannot be committed, the log ends at {self.log.end_offset}"
        self.high_watermark = max(self.high_watermark, offset)

    @property
    def last(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    # ---- changes of role

    def learn(self, epoch: int, leader_id: int, endpoint: Endpoint | None, now_ms: float, *, told_by: int) -> bool:
        """Takes note of a newer epoch, or of the leader of ours. True if that has changed what we are."""
        if epoch < self.epoch:
            return False
        is_known = leader_id not in (NO_LEADER, self.key.id)
        endpoint = endpoint or self.endpoint_of(leader_id, ())
        if epoch > self.epoch:
            self.see_epoch(epoch, now_ms)
            if is_known and endpoint is not None:
                self._follow(leader_id, endpoint, now_ms)
            return True
        if not is_known or endpoint is None or isinstance(self.role, Leader | Resigned | Follower):
            return False
        if told_by != leader_id and not self.standing.trusts(leader_id, now_ms):
            return False
        self._follow(leader_id, endpoint, now_ms)
        return True

    def _follow(self, leader_id: int, endpoint: Endpoint, now_ms: float) -> None:
        # Whatever failed before: it is counted anew from here.
        self.outgoing.succeed(leader_id, Fetch)
        self.standing.follow(leader_id, endpoint, now_ms + self.fetch_patience_ms(now_ms))

    def lose_leader(self, leader_id: int, now_ms: float, *, pause_ms: float = 0.0) -> None:
        """Observers have nothing to decide: they may as well ask it again."""
        if self.may_stand:
            self.standing.mistrust(leader_id, now_ms + self.timing.fetch_timeout_ms)
        self.standing.lose_leader(now_ms + pause_ms)

    def see_epoch(self, epoch: int, now_ms: float) -> None:
        role = self.role
        if isinstance(role, Leader):
            # The others have waited for it in vain, and it waits for its successor as they would.
            self.note_silence(now_ms)
        self.standing.see_epoch(epoch, now_ms + self.election_timeout_ms())
        # If it led: nobody knows what will become of the change.
        self.answer_change(role, self.reply(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def resign(self, now_ms: float) -> None:
        role = self.role
        assert isinstance(role, Leader), "only a leader resigns"
        self.standing.resign(now_ms + self.election_timeout_ms(), role.successors(self.voters, self.key))
        self.answer_change(role, self.reply(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # ---- sending

    def send(self, node_id: int, endpoint: Endpoint | None, request: Request, now_ms: float) -> None:
        if endpoint is None:
            return
        send = self.outgoing.send(node_id, endpoint, request, now_ms)
        if send is not None:
            self.ready.sends.append(send)
        elif not self.outgoing.is_under_way(node_id, request):
            self.wake_at(self.outgoing.ready_ms(node_id, type(request)))

    def ask_around(self, now_ms: float) -> None:
        """One after the other: a fetch, though we follow nobody, is answered with who leads."""
        places = [
            *((-2 - index, endpoint) for index, endpoint in enumerate(self.identity.bootstrap)),
            *((voter.key.id, voter.endpoint(self.identity.listener_name)) for voter in self.voters),
        ]
        others = [(node_id, endpoint) for node_id, endpoint in places if node_id not in (self.key.id, self.leader_id)]
        if self.log.synced_end_offset < self.log.end_offset:
            # A fetch is a promise, to whoever gets it.
            return
        if not others or any(self.outgoing.is_under_way(node_id, self.own_fetch()) for node_id, _ in others):
            return
        if now_ms < self._next_question_ms:
            self.wake_at(self._next_question_ms)
            return
        node_id, endpoint = others[self._next_place % len(others)]
        self._next_place += 1
        self._next_question_ms = now_ms + self.timing.retry_backoff_ms
        self.wake_at(self._next_question_ms)
        self.send(node_id, endpoint, self.own_fetch(), now_ms)

    def own_fetch(self) -> Fetch:
        """A promise to have all below the offset on the device."""
        assert self.log.synced_end_offset >= self.log.end_offset, "what is not synced is not promised"
        return Fetch(self.epoch, self.key, self.log.end_offset, self.log.last_epoch, self.high_watermark)

    def endpoint_of(self, leader_id: int, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        voter = Voter(ReplicaKey(leader_id, ZERO_UUID), endpoints) if endpoints else self.voters.find(leader_id)
        return None if voter is None else voter.endpoint(self.identity.listener_name)

    def _own_endpoint(self) -> Endpoint | None:
        return Voter(self.key, self.identity.endpoints).endpoint(self.identity.listener_name)

    def wake_at_clock(self, deadline_ms: float, now_ms: float) -> None:
        """The same for a time of the clock."""
        self.wake_at(deadline_ms + (now_ms - self.clock_ms))

    def wake_at(self, deadline_ms: float) -> None:
        self.next_deadline_ms = min(self.next_deadline_ms, deadline_ms)

    def fetch_patience_ms(self, now_ms: float) -> float:
        """How long a leader is waited for: the fetch timeout or, where leaders fall silent all the time, more."""
        return self.timing.fetch_timeout_ms * self.standing.patience(now_ms)

    def note_silence(self, now_ms: float) -> None:
        self.standing.note_silence(now_ms, now_ms + _SILENCE_MEMORY * self.timing.fetch_timeout_ms)

    def hear_leader(self, role: Follower, now_ms: float) -> None:
        """From now on it is waited for again."""
        if now_ms > role.late_ms:
            self.standing.note_lateness(now_ms, now_ms + _SILENCE_MEMORY * self.timing.fetch_timeout_ms)
        role.late_ms = now_ms + self.timing.fetch_timeout_ms
        role.fetch_deadline_ms = now_ms + self.fetch_patience_ms(now_ms)
        self.standing.hear_leader()

    def election_timeout_ms(self) -> float:
        return self.timing.election_timeout_ms * (1 + self.random.random())

    def first_pause_ms(self) -> float:
        return self.timing.election_timeout_ms * _FIRST_ELECTION_SHARE
