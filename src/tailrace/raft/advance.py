"""What time and state demand of a replica, looked at after every input: timeouts, elections, and the requests that
its role makes. Asked again and again until it is so; `outgoing` keeps that from becoming a flood.
"""

from __future__ import annotations

from tailrace.raft import membership
from tailrace.raft.leader import Leader
from tailrace.raft.messages import (
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Fetch,
    RemoveVoter,
    Request,
    UpdateVoter,
    Vote,
)
from tailrace.raft.node import RaftNode
from tailrace.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from tailrace.raft.types import BOOTSTRAP_OFFSET, ReplicaKey, Voter
from tailrace.wire.apis.stored_records import LeaderChangeMessage
from tailrace.wire.schema import Message

# A leader whose process has died refuses connections: after so many in a row a voter does not wait for the timeout.
# If the leader is there after all, those who hear it say so (pre-vote), and nothing has changed.
_FETCH_FAILURES_MAX = 3
# The pause after lost elections doubles up to controller.quorum.election.backoff.max.ms; this only bounds the number.
_PAUSE_DOUBLINGS_MAX = 16
# Eight times controller.quorum.election.timeout.ms: 8 s by default.
_CANDIDATE_DOUBLINGS_MAX = 3


def advance(node: RaftNode, now_ms: float) -> None:
    """Runs at the end of every step: timeouts, then the requests that the role makes."""
    _advance_standing(node, now_ms)
    role = node.role
    if isinstance(role, Leader):
        _advance_leader(node, role, now_ms)
    elif isinstance(role, Follower):
        _advance_follower(node, role, now_ms)
    if isinstance(node.role, Resigned):
        _advance_resigned(node, node.role, now_ms)


def _advance_standing(node: RaftNode, now_ms: float) -> None:
    """Without a leader: a node that stands may win in the same step."""
    if isinstance(node.role, Unattached):
        _advance_unattached(node, node.role, now_ms)
    if isinstance(node.role, Prospective | Candidate):
        _advance_election(node, now_ms)


def _advance_unattached(node: RaftNode, role: Unattached, now_ms: float) -> None:
    is_alone = node.is_voter and len(node.voters) == 1
    if node.may_stand and (now_ms >= role.election_deadline_ms or is_alone):
        node.standing.stand(now_ms + node.election_timeout_ms())
        return
    if node.may_stand:
        node.wake_at(role.election_deadline_ms)
    if not node.may_stand or node.standing.lost_elections:
        # Voters that cannot win may have been left behind by changes of the voters: others know who leads.
        node.ask_around(now_ms)


def _advance_election(node: RaftNode, now_ms: float) -> None:
    role = node.role
    if isinstance(role, Prospective) and role.tally.is_won(node.voters):
        # Two votes are stored in this time, one after the other: a candidate that was too slow gets more the next time.
        patience = 1 << min(node.standing.lost_elections, _CANDIDATE_DOUBLINGS_MAX)
        node.standing.win_pre_vote(now_ms + node.election_timeout_ms() * patience)
        role = node.role
    if isinstance(role, Candidate) and role.tally.is_won(node.voters):
        _lead(node, role, now_ms)
        return
    assert isinstance(role, Prospective | Candidate), "nothing else stands for election"
    if role.tally.is_lost(node.voters) or now_ms >= role.deadline_ms or not node.may_stand:
        doublings = min(node.standing.lost_elections + 1, _PAUSE_DOUBLINGS_MAX)
        pause_ms = min(node.first_pause_ms() * 2**doublings, node.timing.election_backoff_max_ms)
        deadline_ms = now_ms + pause_ms * node.random.random()
        node.standing.lose(deadline_ms)
        node.wake_at(deadline_ms)
        return
    node.wake_at(role.deadline_ms)
    is_pre_vote = isinstance(role, Prospective)
    for voter in node.voters:
        if voter.key.id not in role.tally.granted:
            request = Vote(node.epoch, node.key, voter.key, node.last, is_pre_vote)
            node.send(voter.key.id, voter.endpoint(node.identity.listener_name), request, now_ms)


def _advance_leader(node: RaftNode, role: Leader, now_ms: float) -> None:
    node.raise_high_watermark()
    if not node.is_voter and node.history.latest_offset < node.high_watermark:
        # It has removed itself, and that is committed.
        membership.advance(node, role, now_ms)
        node.resign(now_ms)
        return
    # As long as its followers wait for it at least, who count from its later answer: it stops acting before they elect
    # another, and what it granted to brokers (leases) ends before the other's time for them. It resigns later: where
    # all are slow they still follow it, and an election is one more thing to do. Kafka resigns after one and a half.
    role.ends_ms = role.check_quorum_deadline_ms(node.voters, node.key, node.timing.fetch_timeout_ms)
    resign_ms = role.resign_deadline_ms(node.voters, node.key, node.timing.fetch_timeout_ms)
    replaced_ms = role.replaced_ms(node.voters, node.key, node.timing.fetch_timeout_ms)
    if now_ms >= resign_ms or node.clock_ms >= replaced_ms:
        node.note_silence(now_ms)
        node.resign(now_ms)
        return
    node.wake_at(resign_ms)
    membership.advance(node, role, now_ms)
    if role.change is not None:
        node.wake_at(role.change.deadline_ms)
    interval_ms = node.timing.fetch_timeout_ms / 2
    for voter in node.voters:
        if voter.key == node.key:
            continue
        progress = role.progress(voter.key)
        begin_ms = max(progress.next_begin_ms, progress.last_fetch_ms + interval_ms)
        if node.clock_ms >= begin_ms:
            request = BeginEpoch(node.epoch, node.key.id, voter.key, node.identity.endpoints)
            node.send(voter.key.id, voter.endpoint(node.identity.listener_name), request, now_ms)
        else:
            node.wake_at_clock(begin_ms, now_ms)


def _advance_follower(node: RaftNode, role: Follower, now_ms: float) -> None:
    failures = node.outgoing.failures(role.leader_id, Fetch)
    is_silent = now_ms >= role.fetch_deadline_ms
    if is_silent or (node.may_stand and failures >= _FETCH_FAILURES_MAX):
        if is_silent:
            node.note_silence(now_ms)
        node.lose_leader(role.leader_id, now_ms)
        _advance_standing(node, now_ms)
        return
    node.wake_at(role.fetch_deadline_ms)
    if failures and not node.may_stand:
        node.ask_around(now_ms)
    if role.snapshot is None and node.log.synced_end_offset >= node.log.end_offset and not _is_writing(node):
        node.send(role.leader_id, role.endpoint, node.own_fetch(), now_ms)
    _advance_membership(node, role, now_ms)


def _advance_membership(node: RaftNode, role: Follower, now_ms: float) -> None:
    """Tells the leader new addresses of this voter, or that this node wants to be one."""
    own = Voter(node.key, node.identity.endpoints)
    known = node.voters.find(node.key.id)
    request: Request | None = None
    if not own.endpoints or not role.has_fetched:
        return
    if node.is_voter:
        request = UpdateVoter(node.epoch, own) if known != own else None
    elif node.identity.wants_to_vote:
        # A voter with this id and another directory is this node before it got a new disk.
        add = AddVoter(own, node.timing.fetch_timeout_ms, ack_when_committed=False)
        request = add if known is None else RemoveVoter(known.key)
    if request is None:
        return
    if now_ms >= role.next_membership_ms:
        role.next_membership_ms = now_ms + node.timing.fetch_timeout_ms
        node.send(role.leader_id, role.endpoint, request, now_ms)
    node.wake_at(role.next_membership_ms)


def _advance_resigned(node: RaftNode, role: Resigned, now_ms: float) -> None:
    if now_ms >= role.deadline_ms:
        node.standing.retire(now_ms)
        node.wake_at(now_ms)
        return
    node.wake_at(role.deadline_ms)
    for voter in node.voters:
        if voter.key.id in role.unaware:
            request = EndEpoch(node.epoch, node.key.id, role.successors, node.identity.endpoints)
            node.send(voter.key.id, voter.endpoint(node.identity.listener_name), request, now_ms)


def _lead(node: RaftNode, won: Candidate, now_ms: float) -> None:
    node.standing.win(node.clock_ms, now_ms)
    change = LeaderChangeMessage(
        version=0,
        leader_id=node.key.id,
        voters=[_leader_change_voter(voter.key) for voter in node.voters],
        granting_voters=[
            _leader_change_voter(voter.key) for voter in node.voters if won.tally.granted.get(voter.key.id)
        ],
    )
    records: list[Message] = [change]
    if node.history.latest_offset == BOOTSTRAP_OFFSET:
        # From now on the log itself tells its voters, to observers too.
        records += membership.voters_records(node.voters, with_version=True)
    node.append_control(records)
    node.wake_at(now_ms)


def _is_writing(node: RaftNode) -> bool:
    return node.ready.append_fetched is not None or node.ready.truncate_to is not None


def _leader_change_voter(key: ReplicaKey) -> LeaderChangeMessage.Voter:
    return LeaderChangeMessage.Voter(voter_id=key.id, voter_directory_id=key.directory_id)
