"""Fetch: records from the logs of partitions, as slices of their files.

A request is answered at once if it finds `min_bytes` or an error, else it is parked until enough has been appended or
`max_wait_ms` is over. Topics that do not exist are told of in time, but do not cut the wait for the others short:
consumers ask for a deleted topic until their metadata is refreshed, and would spin meanwhile. Partitions are read in
their order until `max_bytes` are found; the first one that has records always yields a whole batch, however large, so
that a consumer can never get stuck. A consumer sees nothing above the high watermark (read_uncommitted) or the last
stable offset (read_committed).

Version notes: 4 is the first with isolation levels; sessions from 7 (KIP-227); leader epochs from 9 (KIP-320); zstd
from 10; a preferred read replica from 11, never named here; diverging epochs from 12 (KIP-595); topic ids from 13
(KIP-516); leader hints from 16 (KIP-951).
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from typing import TYPE_CHECKING

from tailrace.broker.context import Pending
from tailrace.broker.handlers.hints import hint_leader, node_endpoints
from tailrace.broker.sessions import FetchKey, FetchPlan
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext
    from tailrace.replica.partition import Partition

_log = events.logger("fetch")

FetchPartition = FetchRequest.FetchPartition
PartitionData = FetchResponse.PartitionData

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_READ_COMMITTED = 1
_CONSUMER = -1
_FIRST_VERSION_WITH_ZSTD = 10
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITH_REPLICA_STATE = 15
_FIRST_VERSION_WITH_HINTS = 16
# A parked fetch may spend a twentieth of the loop's time on reads that find too little.
_REST_PER_READ = 19


def handle_fetch(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchResponse | PendingFetch:
    replica_id = request.replica_id
    if context.api_version >= _FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id = request.replica_state.replica_id
    if replica_id > _CONSUMER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {replica_id} is no replica of anything on this broker")
    attempt = FetchAttempt(broker, context, request, broker.sessions.plan(request, context.api_version))
    attempt.read()
    if attempt.is_enough or request.max_wait_ms <= 0:
        return attempt.respond()
    return PendingFetch(attempt, request.max_wait_ms)


class FetchAttempt:
    """Reads what one request asks for; as often as it takes, until it is enough or the time is over."""

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._plan = plan
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._answers: list[tuple[FetchKey, PartitionData]] = []
        self._leaders: set[int] = set()
        self._unknown: int | None = None  # How many partitions did not exist when the request came.
        self.waits_for: list[Partition] = []  # Those that may have more later.
        self.is_enough = False

    def read(self) -> None:
        self._answers, self.waits_for = [], []
        found_bytes = unknown = 0
        must_answer = False
        for key, fetch in self._plan.partitions:
            try:
                answer = self._read(key, fetch, self._max_bytes - found_bytes, is_first=found_bytes == 0)
                found_bytes += len(answer.records) if answer.records else 0
                must_answer = must_answer or answer.diverging_epoch.epoch >= 0
            except KafkaError as error:
                answer = self._failure(key, error)
                unknown += error.code in _UNKNOWN
                must_answer = must_answer or error.code not in _UNKNOWN
            self._answers.append((key, answer))
        if self._unknown is None:
            self._unknown = unknown
        # Nothing to wait for, or something that was waited for is gone.
        must_answer = must_answer or unknown == len(self._plan.partitions) or unknown > self._unknown
        self.is_enough = must_answer or found_bytes >= self._min_bytes

    def _read(self, key: FetchKey, fetch: FetchPartition, left_bytes: int, *, is_first: bool) -> PartitionData:
        name = key.topic
        if self._context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            name = self._broker.replicas.topic_name(key.topic_id)
        partition = self._broker.replicas.find(name, key.partition)
        partition.check_leader(fetch.current_leader_epoch)
        log = partition.log
        if self._context.api_version < _FIRST_VERSION_WITH_ZSTD and log.config.compression_type == "zstd":
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"{partition.topic_partition} is compressed with zstd, which Fetch knows from version 10 on",
            )
        isolation_level = self._request.isolation_level
        answer = PartitionData(
            partition_index=key.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if isolation_level == _READ_COMMITTED else None,
            records=b"",
        )
        if fetch.last_fetched_epoch >= 0:
            diverging = partition.find_divergence(fetch.last_fetched_epoch, fetch.fetch_offset)
            if diverging is not None:
                answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = diverging
                return answer
        slice_ = partition.read(
            fetch.fetch_offset,
            max(0, min(fetch.partition_max_bytes, left_bytes)),
            isolation_level=isolation_level,
            at_least_one_batch=is_first,
        )
        if slice_ is not None:
            answer.records = slice_
        self.waits_for.append(partition)
        return answer

    def _failure(self, key: FetchKey, error: KafkaError) -> PartitionData:
        answer = PartitionData(
            partition_index=key.partition,
            error_code=int(error.code),
            high_watermark=-1,
            aborted_transactions=[] if error.code in _UNKNOWN else None,  # As Kafka fills it.
            records=b"",
        )
        if self._context.api_version >= _FIRST_VERSION_WITH_HINTS:
            leader = hint_leader(self._broker, error, key.topic, key.topic_id, key.partition)
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader
                self._leaders.add(leader[0])
        return answer

    def respond(self) -> FetchResponse:
        session_id, answers = self._plan.settle(self._answers)
        topics: list[FetchResponse.FetchableTopicResponse] = []
        for key, answer in answers:
            if not topics or topics[-1].topic != key.topic or topics[-1].topic_id != key.topic_id:
                topics.append(FetchResponse.FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id))
            topics[-1].partitions.append(answer)
        response = FetchResponse(session_id=session_id, responses=topics)
        if self._leaders:
            response.node_endpoints = [
                FetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in node_endpoints(
                    self._broker, self._context.listener.name, self._leaders
                )
            ]
        return response

    def fail(self, error: Exception) -> FetchResponse:
        """Our own bug, met outside of dispatch."""
        _log.error("a parked fetch failed", trace=True, client=self._context.client_id, peer=self._context.peer)
        self._broker.judge_bug(error)
        return FetchResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))


class PendingFetch(Pending[FetchResponse]):
    """A parked fetch. Appends only mark it; it reads again once a turn, so that a burst of appends costs one read. One
    of a thousand partitions takes milliseconds: after a read that found too little it rests for a while."""

    __slots__ = ("_attempt", "_is_scheduled", "_loop", "_rests_until", "_timer")

    holds_next = True

    def __init__(self, attempt: FetchAttempt, max_wait_ms: int) -> None:
        super().__init__()
        self._attempt = attempt
        self._loop = get_running_loop()
        self._is_scheduled = False
        self._rests_until = 0.0
        self._timer: TimerHandle = self._loop.call_later(max_wait_ms / 1000, self.hurry)
        self._wait()

    def on_readable(self) -> None:
        if not self._is_scheduled and not self.is_over:
            self._is_scheduled = True
            if self._rests_until > self._loop.time():
                self._loop.call_at(self._rests_until, self._try_again)
            else:
                self._loop.call_soon(self._try_again)

    def _try_again(self) -> None:
        self._is_scheduled = False
        if self.is_over:
            return
        self._stop_waiting()
        started = self._loop.time()
        self._read(is_last=False)
        if not self.is_over:
            now = self._loop.time()
            self._rests_until = now + (now - started) * _REST_PER_READ
            self._wait()

    def hurry(self) -> None:
        """The time is over: answers with what there is, which was read when it was last told of news."""
        if not self.is_over:
            self._stop_waiting()
            self._read(is_last=True)

    def _read(self, *, is_last: bool) -> None:
        """Whatever fails, the client is answered: it would wait for ever, and its connection with it."""
        answer: FetchResponse | None = None
        try:
            self._attempt.read()
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
        self._stop_waiting()

    def _wait(self) -> None:
        for partition in self._attempt.waits_for:
            partition.readers.add(self)

    def _stop_waiting(self) -> None:
        for partition in self._attempt.waits_for:
            partition.readers.discard(self)
