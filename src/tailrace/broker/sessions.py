"""Fetch sessions (KIP-227): a client names its partitions once, then only what has changed; the broker answers only
with what is new.

    request             session id, epoch     what happens
    full, sessionless   any, -1               the session, if named, ends; nothing is remembered
    full, new session   any, 0                the session, if named, ends; a new one is made if there is room
    incremental         id, n                 the epoch must be the one expected; the session's partitions are read

A session belongs to nobody and survives its connection; an id that is unknown or an epoch out of step is answered
with an error, on which clients start anew with a full fetch. Sessions are bounded by
`max.incremental.fetch.session.cache.slots`, and since a client may name partitions that do not exist, what they
remember by `max.incremental.fetch.session.partitions`: when all is taken, one that was not used for two minutes makes
room, else the client goes on with full fetches. Followers come first, as in Kafka: for them any consumer's session
makes room, the least recently used one first.

A follower's session is watched: of a thousand partitions only those are read that it asked for anew, or that were
appended to, confirmed or led anew since they were read last. Each request of a session is sent after the answer to the
one before: so it proves when the follower still followed in all its partitions, which a leader past its lease goes by.
A partition that is dropped from the session is proven no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.model.ports import Clock, Random
from tailrace.model.settings import LONG_MAX
from tailrace.replica.isr import FollowingProof
from tailrace.wire.apis.data import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tailrace.replica.partition import Partition

NO_SESSION = 0
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFFFFFF
_FIRST_VERSION_WITH_TOPIC_IDS = 13
# Kafka's min.incremental.fetch.session.eviction.ms.
_EVICTABLE_AFTER_MS = 120_000

FetchPartition = FetchRequest.FetchPartition
PartitionData = FetchResponse.PartitionData


class FetchKey(NamedTuple):
    """A partition as the client names it: by name or, from version 13 on, by topic id."""

    topic: str
    topic_id: bytes
    partition: int


class Watch:
    """Which partitions of a follower's session are to be read, and when it still followed in all of them."""

    __slots__ = ("due", "node_id", "proof", "wake")

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.proof = FollowingProof()
        self.due: dict[FetchKey, None] = {}  # In the order in which they are read.
        self.wake: Callable[[], None] | None = None  # Tells the fetch that is parked.


class _Mark:
    """Stands among the readers of a partition until it is told. A new high watermark alone does not end a wait: it goes
    with the next answer."""

    __slots__ = ("_key", "_wakes", "_watch")

    def __init__(self, watch: Watch, key: FetchKey, *, wakes: bool) -> None:
        self._watch = watch
        self._key = key
        self._wakes = wakes

    def on_readable(self) -> None:
        watch = self._watch
        watch.due[self._key] = None
        if self._wakes and watch.wake is not None:
            watch.wake()


class SessionPartition:
    """What is remembered of one partition: what to read, and what the client was told last."""

    __slots__ = ("_marks", "_watched", "fetch", "high_watermark", "log_start_offset")

    def __init__(self, fetch: FetchPartition) -> None:
        self.fetch = fetch
        self.high_watermark = -1
        self.log_start_offset = -1
        self._marks: tuple[_Mark, _Mark] | None = None
        self._watched: Partition | None = None

    def watch_over(self, partition: Partition, watch: Watch, key: FetchKey) -> None:
        if self._marks is None:
            self._marks = _Mark(watch, key, wakes=True), _Mark(watch, key, wakes=False)
        if self._watched is not partition:
            self.end_watch()
            self._watched = partition
        partition.replica_readers.add(self._marks[0])
        partition.readers.add(self._marks[1])

    def end_watch(self) -> None:
        if self._watched is not None and self._marks is not None:
            self._watched.replica_readers.discard(self._marks[0])
            self._watched.readers.discard(self._marks[1])

    def end_following(self, watch: Watch) -> None:
        """The follower has dropped the partition. Where records are synced before they are confirmed it does so for
        each sync."""
        partition = self._watched
        if partition is None or watch.node_id not in partition.followers:
            return
        follower = partition.followers[watch.node_id]
        if partition.flush_messages == LONG_MAX:
            follower.end_following(watch.proof)
        else:
            follower.pause_following(watch.proof)

    def take_news(self, answer: PartitionData) -> bool:
        """Remembers what the client is about to be told; whether it is anything new."""
        is_diverging = answer.diverging_epoch.epoch >= 0
        is_new = (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or is_diverging
            # Told every time: a client that comes back has forgotten it, and is answered at once.
            or answer.preferred_read_replica >= 0
        )
        # After an error the next answer counts as news even if it is empty: it tells that the error is over. So does it
        # after a divergence, of which a follower takes only where to cut, and not the high watermark beside it.
        self.high_watermark = -1 if answer.error_code or is_diverging else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return is_new


class FetchSession:
    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids", "watch")

    def __init__(self, session_id: int, *, uses_topic_ids: bool, now_ms: float, watch: Watch | None = None) -> None:
        self.id = session_id
        self.epoch = _INITIAL_EPOCH + 1  # What the next request must say.
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.watch = watch  # Set for a follower's session.
        # In the order in which they are read; see `FetchPlan.settle`.
        self.partitions: dict[FetchKey, SessionPartition] = {}

    def change(self, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget(FetchKey(forgotten.topic, forgotten.topic_id, index))
        for key, fetch in _partitions(request):
            self.take(key, fetch)

    def take(self, key: FetchKey, fetch: FetchPartition) -> None:
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = SessionPartition(fetch)
        else:
            known.fetch = fetch
        if self.watch is not None:
            self.watch.due[key] = None

    def _forget(self, key: FetchKey) -> None:
        known = self.partitions.pop(key, None)
        if known is not None and self.watch is not None:
            known.end_watch()
            known.end_following(self.watch)
            self.watch.due.pop(key, None)

    def end(self, kept: Collection[FetchKey]) -> None:
        """`kept` are in the next session of the same client."""
        if self.watch is not None:
            for key, known in self.partitions.items():
                known.end_watch()
                if key not in kept:
                    known.end_following(self.watch)


class FetchPlan:
    """What one request reads, and how its answer is cut down to what is new."""

    __slots__ = ("_partitions", "_settled", "count", "incremental", "new_session", "watch")

    def __init__(
        self,
        partitions: list[tuple[FetchKey, FetchPartition]],
        *,
        incremental: FetchSession | None = None,
        new_session: FetchSession | None = None,
    ) -> None:
        self._partitions = partitions
        self.incremental = incremental
        self.new_session = new_session
        session = incremental or new_session
        self.watch = session.watch if session is not None else None
        self.count = len(partitions) if session is None else len(session.partitions)  # All that it is about.
        self._settled: list[FetchKey] = []  # Read, and not to be read again before there is news.

    def partitions(self) -> list[tuple[FetchKey, FetchPartition]]:
        """To be read now: all, or in a watched session those that may have news."""
        self._settled.clear()
        session = self.incremental
        if session is None or session.watch is None:
            return self._partitions
        known = session.partitions
        return [(key, known[key].fetch) for key in session.watch.due if key in known]

    def watch_over(self, key: FetchKey, partition: Partition) -> None:
        session = self.incremental or self.new_session
        if session is not None and session.watch is not None and key in session.partitions:
            session.partitions[key].watch_over(partition, session.watch, key)

    def note_read(self, key: FetchKey) -> None:
        self._settled.append(key)

    def settle(self, answers: list[tuple[FetchKey, PartitionData]]) -> tuple[int, list[tuple[FetchKey, PartitionData]]]:
        """The session id to tell, and the answers to send. Called once, when the answer goes out."""
        if self.watch is not None:
            for key in self._settled:
                self.watch.due.pop(key, None)
        if self.new_session is not None:
            for key, answer in answers:
                self.new_session.partitions[key].take_news(answer)
            return self.new_session.id, answers
        session = self.incremental
        if session is None:
            return NO_SESSION, answers
        news = []
        for key, answer in answers:
            known = session.partitions.get(key)
            if known is None or not known.take_news(answer):
                continue
            news.append((key, answer))
            if answer.records:
                # Those that had records go to the end, so that a busy partition does not starve the others.
                session.partitions[key] = session.partitions.pop(key)
        return session.id, news


class FetchSessions:
    def __init__(self, clock: Clock, random: Random, *, slots_max: int, partitions_max: int) -> None:
        self._clock = clock
        self._random = random
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._partition_count = 0  # In all sessions.
        self._sessions: dict[int, FetchSession] = {}  # The least recently used first.

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, version: int, *, follower_id: NodeId | None = None) -> FetchPlan:
        """`follower_id` is None for a consumer. Raises KafkaError for a session that is unknown or out of step."""
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            # What is named twice is read once, and as it was named last.
            named = dict(_partitions(request))
            self._end(request.session_id, kept=named)
            partitions = list(named.items())
            wants_session = request.session_epoch == _INITIAL_EPOCH and partitions
            watch = None if follower_id is None else Watch(follower_id)
            return FetchPlan(
                partitions, new_session=self._create(partitions, version, watch) if wants_session else None
            )
        session = self._find(request, version)
        self._partition_count -= len(session.partitions)
        session.change(request)
        self._partition_count += len(session.partitions)
        if not self._make_room(slots=0, partitions=0, is_follower=session.watch is not None):
            self._end(session.id)
            raise _not_found(session.id)
        if not session.partitions:
            self._end(session.id)
            return FetchPlan([])
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        if session.watch is not None:
            # It was sent after the answer to the last one, and that was not before this.
            session.watch.proof.sent_ms = session.last_used_ms
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)
        if session.watch is not None:
            return FetchPlan([], incremental=session)
        return FetchPlan([(key, known.fetch) for key, known in session.partitions.items()], incremental=session)

    def decline(self, plan: FetchPlan) -> int:
        """The session id to tell in an answer that tells nothing: the session, if it is no new one, goes on from what
        its client knows. A new one would have to tell of all its partitions, and so there is none (KIP-219)."""
        if plan.new_session is not None:
            self._end(plan.new_session.id)
        return plan.incremental.id if plan.incremental is not None else NO_SESSION

    def _find(self, request: FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise _not_found(request.session_id)
        if session.epoch != request.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"Fetch session {session.id} expects epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_topic_ids != (version >= _FIRST_VERSION_WITH_TOPIC_IDS):
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"Fetch session {session.id} was made with topic {'ids' if session.uses_topic_ids else 'names'}",
            )
        return session

    def _create(
        self, partitions: list[tuple[FetchKey, FetchPartition]], version: int, watch: Watch | None
    ) -> FetchSession | None:
        if not self._make_room(slots=1, partitions=len(partitions), is_follower=watch is not None):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(_EPOCH_MAX) + 1
        uses_topic_ids = version >= _FIRST_VERSION_WITH_TOPIC_IDS
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, now_ms=self._clock.monotonic_ms(), watch=watch
        )
        for key, fetch in partitions:
            session.take(key, fetch)
        self._sessions[session_id] = session
        self._partition_count += len(session.partitions)
        return session

    def _make_room(self, *, slots: int, partitions: int, is_follower: bool) -> bool:
        if slots > self._slots_max or partitions > self._partitions_max:
            return False
        while (
            len(self._sessions) + slots > self._slots_max or self._partition_count + partitions > self._partitions_max
        ):
            session = self._find_evictable(is_follower=is_follower)
            if session is None:
                return False
            self._end(session.id)
        return True

    def _find_evictable(self, *, is_follower: bool) -> FetchSession | None:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and self._clock.monotonic_ms() - oldest.last_used_ms > _EVICTABLE_AFTER_MS:
            return oldest
        if not is_follower:
            return None
        return next((session for session in self._sessions.values() if session.watch is None), None)

    def _end(self, session_id: int, *, kept: Collection[FetchKey] = ()) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end(kept)
            self._partition_count -= len(session.partitions)


def _not_found(session_id: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        f"There is no fetch session {session_id}: it has ended or made room for others",
    )


def _partitions(request: FetchRequest) -> Iterable[tuple[FetchKey, FetchPartition]]:
    for topic in request.topics:
        for fetch in topic.partitions:
            yield FetchKey(topic.topic, topic.topic_id, fetch.partition), fetch
