"""When each broker was last heard, on the active controller. Soft state: a new controller begins with fresh sessions.

The end of a session fences its broker. When that is depends on what is known of a broker that falls silent:

    nothing            broker.session.timeout.ms after its last heartbeat: it may be stopped, starved or cut off
    its port refuses   broker.lease.ms after its last heartbeat: its process has hardly survived, but that is no proof
    its death          at once: who reports it has held the lock of its folders (`heartbeats.report_death`)

Without proof never before the lease is over. A broker counts that from when it sent the last heartbeat that was
answered, which is earlier than when it is heard here, and it counts less, by what clocks may differ.
The answer to a heartbeat grants a lease, so it is given only while a majority of the voters has fetched a moment ago:
no other controller was elected before that. A new controller's first sessions are longer by that moment, for what the
one before it may have granted meanwhile, which brokers may still reach when other controllers cannot.

A controller that was stopped itself (SIGSTOP, a paused machine) has not heard anybody meanwhile, though the heartbeats
may lie in its buffers: sessions grow by the time that it was away. It notices by ticks that stay out.

A broker that was fenced while it was stopped still believes in its leaderships. It is not taken back before it has
replayed what took them: the records that fenced it or, where an earlier controller may have done that, all that this
one found.

Times are those of the monotonic clock, in milliseconds.
"""

from collections.abc import Iterable
from math import inf

from tailrace.controller.brokers.flapping import Flapping
from tailrace.controller.brokers.pace import Pace
from tailrace.controller.image import MetadataImage
from tailrace.model.ids import NodeId

# How long ago a majority of the voters may have fetched from a controller that grants leases: at most this, and at most
# so much of controller.quorum.fetch.timeout.ms, of which they spend half waiting for news.
_GRANT_MS_MAX = 1500.0
_GRANT_SHARE = 0.75
# What clocks may differ by, two of them.
_CLOCK_ERROR = 1.03
# Ticks in the time of a lease: a shorter absence is not noticed.
_TICKS = 5
# Shares of a lease after which a broker that is not heard is looked for: more than one heartbeat is missing.
_SILENT_SHARE = 0.5


def grant_ms(fetch_timeout_ms: float) -> float:
    """How long after a majority has fetched leases are granted."""
    return min(_GRANT_MS_MAX, fetch_timeout_ms * _GRANT_SHARE)


class _Session:
    __slots__ = ("fenced_offset", "heard_ms", "is_refused", "metadata_offset", "shutdown_offset")

    def __init__(self, heard_ms: float, fenced_offset: int = -1) -> None:
        self.heard_ms = heard_ms
        self.is_refused = False  # Its port has refused a connection since.
        # The offset of the change that fenced it last, or of a later one.
        self.fenced_offset = fenced_offset
        # How far the broker has replayed the metadata log.
        self.metadata_offset = -1
        # The offset at which its controlled shutdown began; None if it has not, or before this controller's time.
        self.shutdown_offset: int | None = None


class Sessions:
    def __init__(self, timeout_ms: float, lease_ms: float, pace: Pace, *, flapping_pause_max_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._lease_ms = lease_ms
        self._pace = pace
        self._flapping = Flapping(flapping_pause_max_ms)
        self._tick_ms = lease_ms / _TICKS
        self._is_active = False
        self.now_ms = 0.0  # As it was told last.
        # The offset of the last change before this controller's time.
        self._first_offset = -1
        # One for each registered broker that was ever heard; pruned when they are looked through.
        self._sessions: dict[int, _Session] = {}

    def activate(self, monotonic_ms: float, brokers: Iterable[int], *, offset: int, granted_ms: float = 0.0) -> None:
        """`brokers` are not fenced; `offset` is that of the last record. For `granted_ms` more an earlier controller
        may grant leases."""
        self._is_active = True
        self.now_ms = monotonic_ms
        self._first_offset = offset
        first_ms = monotonic_ms + granted_ms * _CLOCK_ERROR
        self._sessions = {node_id: _Session(first_ms) for node_id in brokers}

    def deactivate(self) -> None:
        self._is_active = False
        self._sessions = {}

    def advance(self, monotonic_ms: float) -> None:
        """Tells the time. After an absence of more than two ticks all sessions grow by it."""
        gap_ms = monotonic_ms - self.now_ms
        if gap_ms > 2 * self._tick_ms:
            for session in self._sessions.values():
                session.heard_ms += gap_ms
        self.now_ms = max(self.now_ms, monotonic_ms)

    def begin(self, node_id: int) -> None:
        """A new incarnation was heard for the first time."""
        self._flapping.forget(node_id)
        self._sessions[node_id] = _Session(self.now_ms)

    def hear(self, node_id: int, metadata_offset: int) -> None:
        session = self._sessions.setdefault(node_id, _Session(self.now_ms, self._first_offset))
        session.heard_ms = max(session.heard_ms, self.now_ms)
        session.is_refused = False
        session.metadata_offset = metadata_offset

    def note_fenced(self, node_id: int, offset: int) -> None:
        self._sessions.setdefault(node_id, _Session(self.now_ms)).fenced_offset = offset

    def note_refused(self, node_id: int, since_ms: float) -> None:
        """Its port has refused a connection that was tried at `since_ms`. Whoever is heard later lives."""
        session = self._sessions.get(node_id)
        if session is not None and session.heard_ms < since_ms:
            session.is_refused = True

    def end(self, node_id: int) -> None:
        """Its process is dead. What it had sent may still come, and must not be taken for life."""
        self._sessions.setdefault(node_id, _Session(self.now_ms)).heard_ms = -inf

    def note_expired(self, node_id: int) -> None:
        self._flapping.note_silence(node_id, self.now_ms)

    def is_kept_out(self, node_id: int) -> bool:
        """It has come and gone too often of late, or had before and the metadata have changed too much since."""
        is_paced = self._flapping.is_repeated(node_id) and self._pace.wait_ms(self.now_ms) > 0
        return is_paced or self._flapping.must_wait(node_id, self.now_ms)

    def has_heard_of_fencing(self, node_id: int) -> bool:
        """Whether the broker knows who leads in its place: one that was stopped for a while must not be let in while it
        still takes itself for the leader."""
        session = self._sessions.get(node_id)
        return session is not None and session.metadata_offset >= session.fenced_offset

    def is_valid(self, node_id: int) -> bool:
        session = self._sessions.get(node_id)
        return session is not None and self.now_ms < self._ends_ms(session)

    def silent(self, image: MetadataImage) -> list[NodeId]:
        """The unfenced brokers that have missed heartbeats, and of which nothing else is known."""
        if not self._is_active or len(image.brokers) < 2:
            return []
        since_ms = self.now_ms - self._lease_ms * _SILENT_SHARE
        return [
            broker.node_id
            for node_id, broker in sorted(image.brokers.items())
            if not broker.fenced
            and (session := self._sessions.get(node_id))
            and session.heard_ms < since_ms
            and not session.is_refused
        ]

    def expired(self, image: MetadataImage) -> list[NodeId]:
        """The unfenced brokers that must be fenced. A broker that is alone is left: nobody could take over."""
        self._prune(image)
        if not self._is_active or len(image.brokers) < 2:
            return []
        ended = [
            broker.node_id
            for node_id, broker in sorted(image.brokers.items())
            if not broker.fenced and not self.is_valid(node_id)
        ]
        # All or none: whoever waits for its turn must not be made leader in place of the others.
        return ended if any(self.now_ms >= self._fenced_ms(node_id) for node_id in ended) else []

    def next_deadline_ms(self, image: MetadataImage) -> float | None:
        """When to look again. Never later than a tick: else an absence could not be told from a quiet time."""
        if not self._is_active or len(image.brokers) < 2:
            return None
        ends = [self._fenced_ms(node_id) for node_id, broker in image.brokers.items() if not broker.fenced]
        return min(*ends, self.now_ms + self._tick_ms) if ends else None

    def begin_shutdown(self, node_id: int, offset: int) -> None:
        self._sessions.setdefault(node_id, _Session(self.now_ms)).shutdown_offset = offset

    def has_shutdown_spread(self, image: MetadataImage, node_id: int) -> bool:
        """Whether all active brokers know the leaders that were elected when this one began to shut down, so that no
        client is sent to it any more."""
        session = self._sessions.get(node_id)
        if session is None or session.shutdown_offset is None:
            return True
        offsets = (
            self._sessions[other].metadata_offset if other in self._sessions else -1
            for other, broker in image.brokers.items()
            if broker.is_active
        )
        return min(offsets, default=session.shutdown_offset) >= session.shutdown_offset

    def _fenced_ms(self, node_id: int) -> float:
        """When a broker is to be fenced, if it is not heard. One that is not known to be dead, and has been silent and
        come back before, waits for its turn (`pace`)."""
        session = self._sessions.get(node_id)
        if session is None:
            return self.now_ms
        ends_ms = self._ends_ms(session)
        if session.is_refused or session.heard_ms == -inf or not self._flapping.was_silent(node_id, self.now_ms):
            return ends_ms
        return max(ends_ms, self.now_ms + self._pace.wait_ms(self.now_ms))

    def _ends_ms(self, session: _Session) -> float:
        return session.heard_ms + (self._lease_ms if session.is_refused else self._timeout_ms)

    def _prune(self, image: MetadataImage) -> None:
        gone = [node_id for node_id in self._sessions if node_id not in image.brokers]
        for node_id in gone:
            del self._sessions[node_id]
