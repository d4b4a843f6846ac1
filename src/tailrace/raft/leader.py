"""What a leader knows of its replicas: how far each has synced the log, and when it last asked.

    high watermark   what a majority of the voters has synced, once that reaches into the leader's own epoch: an older
                     entry on a majority can still be replaced (Raft, 5.4.2)
    check quorum     a leader that a majority has not asked for a while does nothing any more: somebody else may lead by
                     now. If it is asked again in its epoch nobody does, and it goes on; after twice the time it resigns
    a fetch counts   from when the one before it was answered on the same connection: a network that held it back does
                     not make it newer than it is
Only what was synced is counted, the leader's own log included. A leader that removed itself does not count.
Times are those of the clock, not of patience: a leader that was held up for long may have been replaced. Only whether
it still waits to be asked goes by patience: what came while it was away for some seconds is read before it gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from tailrace.raft.types import OffsetAndEpoch, RaftLog, ReplicaKey, Voter, VoterSet

# An observer that has not fetched for this long is shown no more (Kafka's figure), nor kept if there are many.
OBSERVER_SESSION_MS = 300_000.0
_REPLICAS_MAX = 1000
# A leader is waited for up to so many fetch timeouts where leaders fall silent again and again: 8 s by default.
PATIENCE_MAX = 4


@dataclass(slots=True)
class Progress:
    # Everything below is synced there; -1 before its first valid fetch.
    end_offset: int = -1
    last_fetch_ms: float = -inf
    # When that was read, by patient time.
    asked_ms: float = -inf
    # At this moment it still followed, however long its last fetch was on its way.
    followed_ms: float = -inf
    last_caught_up_ms: float = -inf
    # The leader's log end at the last fetch: who has that at its next one was caught up then.
    leader_end_offset: int = -1
    # When to tell it again that we lead.
    next_begin_ms: float = -inf


@dataclass(slots=True)
class VoterChange:
    """A change that a client waits for."""

    token: int
    deadline_ms: float
    # To be added once it has caught up; None for a removal.
    added: Voter | None = None
    ack_when_committed: bool = True
    # The offset of the voters record, once it is written.
    offset: int | None = None


@dataclass(slots=True)
class Leader:
    since_ms: float
    # The same moment by patient time.
    waits_from_ms: float = -inf
    # As of the last step. Nothing is done in its name after this, whatever it has yet to read.
    ends_ms: float = inf
    # The offset of the batch that opens the epoch, once it is written.
    epoch_start_offset: int | None = None
    active_from_offset: int | None = None
    replicas: dict[ReplicaKey, Progress] = field(default_factory=dict)
    change: VoterChange | None = None
    # Whether a voters record was decided and is not written yet.
    is_writing_voters: bool = False

    def progress(self, key: ReplicaKey) -> Progress:
        found = self.replicas.get(key)
        if found is None:
            found = self.replicas[key] = Progress()
        return found

    def note_fetch(
        self,
        key: ReplicaKey,
        now_ms: float,
        *,
        patient_ms: float,
        offset: int | None,
        leader_end_offset: int,
        after_ms: float = inf,
    ) -> None:
        """Alive after `after_ms`; and with `offset`, its log is ours up to there. Lower than before: a late request."""
        if key not in self.replicas and len(self.replicas) >= _REPLICAS_MAX:
            self._forget_idle(now_ms)
        progress = self.progress(key)
        assert offset is None or offset <= leader_end_offset, "a log that is a prefix of ours is not longer"
        if offset is not None:
            if offset >= leader_end_offset:
                progress.last_caught_up_ms = now_ms
            elif 0 <= progress.leader_end_offset <= offset:
                progress.last_caught_up_ms = max(progress.last_fetch_ms, progress.last_caught_up_ms)
            progress.leader_end_offset = leader_end_offset
            progress.end_offset = offset
        progress.last_fetch_ms, progress.asked_ms = now_ms, patient_ms
        progress.followed_ms = max(progress.followed_ms, min(now_ms, after_ms))

    def decide_high_watermark(self, voters: VoterSet, own: ReplicaKey, synced_end_offset: int) -> int | None:
        """None while nothing of this epoch is on a majority."""
        if self.epoch_start_offset is None:
            return None
        offsets = sorted(
            synced_end_offset if voter.key.matches(own) else self._end_offset(voter.key) for voter in voters
        )
        candidate = offsets[len(offsets) - voters.majority]
        return candidate if candidate > self.epoch_start_offset else None

    def check_quorum_deadline_ms(self, voters: VoterSet, own: ReplicaKey, timeout_ms: float) -> float:
        """Until when it may act, if nobody fetches before."""
        return self._majority_ms(voters, own, self._followed_ms, self.since_ms) + timeout_ms

    def resign_deadline_ms(self, voters: VoterSet, own: ReplicaKey, timeout_ms: float) -> float:
        """Until when it waits to be asked again, by patient time: until then it does nothing. A fetch that may be old
        counts too: on a machine where all are late nobody could prove in time that his are new, and an election is one
        more thing to do."""
        return self._majority_ms(voters, own, self._asked_ms, self.waits_from_ms) + 2 * timeout_ms

    def replaced_ms(self, voters: VoterSet, own: ReplicaKey, timeout_ms: float) -> float:
        """Nobody waits for a leader beyond this moment of the clock, however patient he is."""
        return self._majority_ms(voters, own, self._last_fetch_ms, self.since_ms) + PATIENCE_MAX * timeout_ms

    @staticmethod
    def _majority_ms(
        voters: VoterSet, own: ReplicaKey, heard_ms: Callable[[ReplicaKey], float], since_ms: float
    ) -> float:
        """When a majority was last heard; itself counts."""
        others = [voter.key for voter in voters if not voter.key.matches(own)]
        needed = voters.majority - (1 if voters.contains(own) else 0)
        if needed <= 0:
            return inf
        heard = sorted(max(since_ms, heard_ms(key)) for key in others)
        return heard[len(heard) - needed]

    def successors(self, voters: VoterSet, own: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """The one with the longest log first."""
        others = [voter.key for voter in voters if not voter.key.matches(own)]
        return tuple(sorted(others, key=lambda key: (-self._end_offset(key), key.id)))

    def _end_offset(self, key: ReplicaKey) -> int:
        found = self.replicas.get(key)
        return -1 if found is None else found.end_offset

    def _last_fetch_ms(self, key: ReplicaKey) -> float:
        found = self.replicas.get(key)
        return -inf if found is None else found.last_fetch_ms

    def _asked_ms(self, key: ReplicaKey) -> float:
        found = self.replicas.get(key)
        return -inf if found is None else found.asked_ms

    def _followed_ms(self, key: ReplicaKey) -> float:
        found = self.replicas.get(key)
        return -inf if found is None else found.followed_ms

    def _forget_idle(self, now_ms: float) -> None:
        self.replicas = {
            key: progress
            for key, progress in self.replicas.items()
            if progress.last_fetch_ms > now_ms - OBSERVER_SESSION_MS
        }


def decide_fetch(log: RaftLog, *, offset: int, last_epoch: int) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
    """Whether a replica's log, which ends at `offset` in `last_epoch`, is a prefix of ours: (None, None). Else where it
    parts from ours, or the snapshot that it has to take since we no longer have what it lacks.

    A snapshot is safe: what the replica has beyond the end of ours, or of an older epoch, was never committed."""
    if offset == 0 and log.start_offset == 0:
        return None, None
    snapshot = log.latest_snapshot
    is_before = offset < log.start_offset or last_epoch < log.start_epoch
    if snapshot is not None and (is_before or (offset == log.start_offset and last_epoch != log.start_epoch)):
        return None, snapshot
    end = log.end_offset_for(last_epoch)
    if end.epoch != last_epoch or end.offset < offset:
        return end, None
    return None, None
