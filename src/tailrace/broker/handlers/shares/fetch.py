"""ShareFetch: records for a member of a share group, each with a lock, and acknowledgements of earlier ones.

Acknowledgements that ride on the request are stored first. Then the partitions of the session are read, each time from
another one on, until enough records are acquired; a request that finds too little waits as a Fetch does. What is
acquired is acquired: an answer that nobody receives costs one delivery, as in Kafka.

v2 limits records strictly (KIP-1206), and renews locks (KIP-1222): a request that renews fetches nothing.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop, sleep
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.broker.context import Pending
from tailrace.broker.handlers.leader_hints import hint_leader, node_endpoints
from tailrace.broker.handlers.shares.acknowledging import (
    Acknowledging,
    acknowledgements_of,
    begin_acknowledging,
    may_read,
    session_key,
)
from tailrace.broker.shares.reading import Taken, Wanted, readable_bytes, take
from tailrace.broker.shares.sessions import CLOSE_EPOCH, OPEN_EPOCH, Place, SessionKey, ShareSession
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.shares import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.broker.shares.share_partition import SharePartition

_log = events.logger("shares")

_RECORD_LIMIT_MODE = 1
# Members ask for a deleted topic until their metadata is refreshed, and would spin meanwhile.
_UNREADABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


def handle_share_fetch(
    services: Services, context: RequestContext, request: ShareFetchRequest
) -> Coroutine[Any, Any, ShareFetchResponse | PendingShareFetch]:
    services.shares.check_enabled()
    key = session_key(request)
    if request.share_acquire_mode not in (0, _RECORD_LIMIT_MODE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Acquire mode {request.share_acquire_mode} is unknown.")
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A request that renews locks must have no maximum of bytes, records and time."
        )
    acknowledged = acknowledgements_of(request)
    session = _find_session(services, context, key, request, has_acknowledgements=bool(acknowledged))
    acknowledging = begin_acknowledging(services, context, key, acknowledged, is_renewal=request.is_renew_ack)
    is_last = request.share_session_epoch == CLOSE_EPOCH
    if is_last:
        services.shares.sessions.close(key)
        services.shares.release(session)
    attempt = ShareFetchAttempt(services, context, request, session, acknowledging)
    if is_last or request.is_renew_ack:
        attempt.places = []
    return _fetch(attempt)


def _find_session(
    services: Services,
    context: RequestContext,
    key: SessionKey,
    request: ShareFetchRequest,
    *,
    has_acknowledgements: bool,
) -> ShareSession:
    sessions, epoch = services.shares.sessions, request.share_session_epoch
    if epoch == CLOSE_EPOCH:
        return sessions.find(key)
    if epoch == OPEN_EPOCH:
        if has_acknowledgements:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A new share session has nothing to acknowledge.")
        session, old = sessions.open(key, sessions_max=services.config.group_share_max_share_sessions)
        if old is not None:
            services.shares.replace(old)
    else:
        session = sessions.next(key, epoch)
    services.shares.update(
        session,
        (Place(Uuid(topic.topic_id), each.partition_index) for topic in request.topics for each in topic.partitions),
        (Place(Uuid(topic.topic_id), each) for topic in request.forgotten_topics_data for each in topic.partitions),
        peer=context.peer,
        departures=services.departures,
    )
    return session


async def _fetch(attempt: ShareFetchAttempt) -> ShareFetchResponse | PendingShareFetch:
    await attempt.prepare()
    attempt.read(is_last=False)
    return attempt.respond() if attempt.is_enough else PendingShareFetch(attempt, attempt.wait_ms)


class ShareFetchAttempt:
    """Reads what one request asks for; as often as it takes, until it is enough or the time is over."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
        acknowledging: Acknowledging,
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._key, self._session = session.key, session
        self._acknowledging = acknowledging
        # Each request begins with another partition.
        places = list(session.places)
        begin = session.epoch % len(places) if places else 0
        self.places = places[begin:] + places[:begin]
        self._taken: dict[Place, Taken] = {}
        self._errors: dict[Place, KafkaError] = {}
        self.waits_for: list[SharePartition] = []
        self.is_enough = False

    @property
    def wait_ms(self) -> int:
        return self._request.max_wait_ms

    async def prepare(self) -> None:
        """Until acknowledgements are stored, and the share-partitions know their state."""
        await self._acknowledging.wait()
        for place in self.places:
            try:
                share_partition = self._find(place)
                problem = await share_partition.wait_ready()
                if problem is not None:
                    raise problem
            except KafkaError as error:
                self._errors[place] = error
        if self._errors and len(self._errors) == len(self.places):
            # Whoever is told at once that there is nothing asks again at once.
            await sleep(min(self.wait_ms, self._services.config.replica_fetch_wait_max_ms) / 1000)

    def _find(self, place: Place) -> SharePartition:
        services = self._services
        if not may_read(services, self._context, place.topic_id):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return services.shares.find(self._key.group_id, place)

    def read(self, *, is_last: bool) -> None:
        self.waits_for = []
        if not self._services.shares.sessions.holds(self._session):
            # Its member has left or lost its connection while this waited, or goes on by another one: nobody would hear
            # of what was acquired now, until the locks run out.
            self.places = []
        request, config = self._request, self._services.config
        toll = self._context.toll
        left_bytes = min(request.max_bytes, config.fetch_max_bytes)
        if toll is not None:
            # What is acquired goes out: so it is not acquired while it would be too much.
            left_bytes = int(min(left_bytes, toll.fetch_max_bytes)) if toll.may_fetch() else 0
            is_last = is_last or not left_bytes
        left_records = request.max_records
        found = self._find_readable(is_last=is_last)
        if found is None:
            return
        for place, share_partition in found:
            if left_records <= 0 or left_bytes <= 0:
                break
            try:
                wanted = Wanted(
                    self._key.member_id,
                    left_bytes,
                    left_records,
                    max(1, request.batch_size),
                    request.share_acquire_mode == _RECORD_LIMIT_MODE,
                )
                taken = take(share_partition, wanted, now_ms=self._services.ports.clock.patient_ms())
            except KafkaError as error:
                self._errors[place] = error
                continue
            if taken is not None:
                self._taken[place] = taken
                share_partition.partition.traffic.bytes_out += len(taken.records)
                left_bytes -= len(taken.records)
                left_records -= taken.record_count
        is_told = any(error.code not in _UNREADABLE for error in self._errors.values())
        self.is_enough = is_last or bool(self._taken) or is_told or not self.waits_for

    def _find_readable(self, *, is_last: bool) -> list[tuple[Place, SharePartition]] | None:
        """The share-partitions to take from; None if they have less than `min_bytes`, for which it may wait."""
        found: list[tuple[Place, SharePartition]] = []
        readable = 0
        for place in self.places:
            if place in self._errors:
                continue
            try:
                share_partition = self._find(place)
                if not share_partition.is_ready:
                    raise share_partition.partition.not_leader()
                if self._request.min_bytes > 1 and not is_last:
                    readable += readable_bytes(share_partition, self._request.min_bytes)
            except KafkaError as error:
                self._errors[place] = error
                continue
            found.append((place, share_partition))
        self.waits_for = [share_partition for _, share_partition in found]
        is_too_little = self._request.min_bytes > 1 and not is_last and readable < self._request.min_bytes
        return None if is_too_little and not self._errors and found else found

    def wait(self, reader: PendingShareFetch) -> None:
        for share_partition in self.waits_for:
            share_partition.readers.add(reader)
            share_partition.partition.readers.add(reader)

    def stop_waiting(self, reader: PendingShareFetch) -> None:
        for share_partition in self.waits_for:
            share_partition.readers.discard(reader)
            share_partition.partition.readers.discard(reader)

    def respond(self) -> ShareFetchResponse:
        topics: dict[Uuid, ShareFetchResponse.ShareFetchableTopicResponse] = {}
        leaders: set[int] = set()
        for place in {**self._acknowledging.results, **dict.fromkeys(self._taken), **dict.fromkeys(self._errors)}:
            if place.topic_id not in topics:
                topics[place.topic_id] = ShareFetchResponse.ShareFetchableTopicResponse(topic_id=place.topic_id)
            topics[place.topic_id].partitions.append(self._answer(place, leaders))
        if self._context.toll is not None:
            self._context.toll.charge_fetched(sum(len(each.records) for each in self._taken.values()))
        config = self._services.shares.config(self._key.group_id)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=[
                ShareFetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in node_endpoints(self._services, self._context.listener.name, leaders)
            ],
        )

    def _answer(self, place: Place, leaders: set[int]) -> ShareFetchResponse.PartitionData:
        answer = ShareFetchResponse.PartitionData(partition_index=place.partition, records=b"")
        told, error = self._acknowledging.results.get(place), self._errors.get(place)
        if told is not None:
            answer.acknowledge_error_code = int(told.code)
            answer.acknowledge_error_message = told.message or None
        if error is not None:
            error = self._services.replicas.lease.soften(error)
            answer.error_code, answer.error_message = int(error.code), error.message or None
        taken = self._taken.get(place)
        if taken is not None:
            answer.records = taken.records
            answer.acquired_records = [
                ShareFetchResponse.AcquiredRecords(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_count=each.delivery_count,
                )
                for each in taken.acquired
            ]
        for problem in (told, error):
            leader = None if problem is None else hint_leader(
                self._services, problem, "", place.topic_id, place.partition
            )  # fmt: skip
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader
                leaders.add(leader[0])
        return answer

    def fail(self, error: Exception) -> ShareFetchResponse:
        """Our own bug, met outside of dispatch."""
        _log.error("a parked fetch failed", trace=True, client=self._context.client_id, peer=self._context.peer)
        self._services.judge_bug(error)
        return ShareFetchResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))


class PendingShareFetch(Pending[ShareFetchResponse]):
    """A parked fetch. News only mark it; it reads again once a turn."""

    __slots__ = ("_attempt", "_is_scheduled", "_loop", "_timer")

    holds_next = True

    def __init__(self, attempt: ShareFetchAttempt, max_wait_ms: int) -> None:
        super().__init__()
        self._attempt = attempt
        self._loop = get_running_loop()
        self._is_scheduled = False
        self._timer: TimerHandle = self._loop.call_later(max(0, max_wait_ms) / 1000, self.hurry)
        self._attempt.wait(self)

    def on_readable(self) -> None:
        if not self._is_scheduled and not self.is_over:
            self._is_scheduled = True
            self._loop.call_soon(self._try_again)

    def _try_again(self) -> None:
        self._is_scheduled = False
        if self.is_over:
            return
        self._attempt.stop_waiting(self)
        self._read(is_last=False)
        if not self.is_over:
            self._attempt.wait(self)

    def hurry(self) -> None:
        if not self.is_over:
            self._attempt.stop_waiting(self)
            self._read(is_last=True)

    def _read(self, *, is_last: bool) -> None:
        """Whatever fails, the client is answered: it would wait for ever, and its connection with it."""
        answer: ShareFetchResponse | None = None
        try:
            self._attempt.read(is_last=is_last)
            if is_last or self._attempt.is_enough:
                answer = self._attempt.respond()
        except Exception as error:
            answer = self._attempt.fail(error)
        if answer is not None:
            self._timer.cancel()
            self.complete(answer)

    def abandon(self) -> None:
        super().abandon()
        self._timer.cancel()
        self._attempt.stop_waiting(self)
