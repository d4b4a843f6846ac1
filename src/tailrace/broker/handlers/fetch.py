"""Fetch: records from the logs of partitions, as slices of their files.

A request is answered at once if it finds `min_bytes` or an error, else it is parked until enough has been appended or
`max_wait_ms` is over. Topics that do not exist or may not be read are told of in time, but do not cut the wait for the
others short: consumers ask for a deleted topic until their metadata is refreshed, and would spin meanwhile. Followers
are told at once, for they pause and ask again: a leader may hear of a new topic later than they do. Partitions are read
in their order until `max_bytes` are found; the first one that has records always yields a whole batch, however large,
so that a consumer can never get stuck. A consumer sees nothing above the high watermark (read_uncommitted) or the last
stable offset (read_committed).

What is more than the quotas of its client let pass is not sent (`quotas.tolls`). What lies in remote storage alone is
read from there, of several partitions at a time, and the fetch waits for it (`broker.tier.cold`).

A follower reads up to the log end. What it asks for tells what it has, which may raise the high watermark and put it in
the in-sync set: it is noted once a request, when it comes, and only if it names the leader epoch of now and its
log has not parted from ours. With a rack-aware selector a consumer is sent to an in-sync replica in its own rack
(KIP-392), which serves it up to the high watermark that it knows.

Version notes: 4 is the first with isolation levels; sessions from 7 (KIP-227); leader epochs from 9 (KIP-320); zstd
from 10; a preferred read replica from 11, and followers are read; diverging epochs from 12 (KIP-595); topic ids from 13
(KIP-516); the replica's epoch from 15 (KIP-903); leader hints from 16 (KIP-951).
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from functools import cache
from typing import TYPE_CHECKING, Any

from tailrace.broker.context import Pending
from tailrace.broker.handlers.leader_hints import decide_read_replica, hint_leader, node_endpoints
from tailrace.broker.quotas.tolls import FETCHED_PARTITION_BYTES
from tailrace.broker.sessions import FetchKey, FetchPlan
from tailrace.model import events
from tailrace.model.config import RACK_AWARE_SELECTOR
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.replica.throttle import is_throttled
from tailrace.wire.apis.data import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.broker.tier.cold import ColdReads
    from tailrace.broker.tier.parts import TieredLog
    from tailrace.model.metrics.traffic import Traffic
    from tailrace.replica.partition import Partition

_log = events.logger("fetch")

FetchPartition = FetchRequest.FetchPartition
PartitionData = FetchResponse.PartitionData

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
# What a consumer asks for again and again though there is nothing to be read.
_UNREADABLE = (*_UNKNOWN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_READ_COMMITTED = 1
_CONSUMER = -1
_FIRST_VERSION_WITH_ZSTD = 10
_FIRST_VERSION_WITH_RACKS = 11
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_FIRST_VERSION_WITH_REPLICA_STATE = 15
_FIRST_VERSION_WITH_HINTS = 16
# A parked fetch may spend a twentieth of the loop's time on reads that find too little.
_REST_PER_READ = 19


def handle_fetch(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | PendingFetch | Coroutine[Any, Any, FetchResponse | PendingFetch]:
    version = context.api_version
    has_state = version >= _FIRST_VERSION_WITH_REPLICA_STATE
    # -1 is a consumer, below it a tool that reads as one.
    replica_id = NodeId(request.replica_state.replica_id if has_state else request.replica_id)
    follower_id = replica_id if replica_id > _CONSUMER else None
    if follower_id is not None:
        context.toll = None  # Brokers have no quotas among themselves.
    plan = services.sessions.plan(request, version, follower_id=follower_id)
    attempt = _attempt_type(services)(services, context, request, plan, replica_id)
    owed = services.replicas.owed
    many = owed.among(attempt.names()) if owed else []
    return owed.then(many, attempt.answer) if many else attempt.answer()


def _attempt_type(services: Services) -> type[FetchAttempt]:
    return FetchAttempt if services.access is None else _guarded_type()


@cache
def _guarded_type() -> type[FetchAttempt]:
    """Loaded where there is an authorizer; an import costs something each time."""
    from tailrace.broker.access.records import GuardedFetch

    return GuardedFetch


def _cold_reads() -> ColdReads:
    """Loaded where there is remote storage."""
    from tailrace.broker.tier.cold import ColdReads

    return ColdReads()


def _remote_part(partition: Partition) -> TieredLog:
    from tailrace.broker.tier.parts import TieredLog

    assert isinstance(partition.tier, TieredLog), "there is no other"
    return partition.tier


class FetchAttempt:
    """Reads what one request asks for; as often as it takes, until it is enough or the time is over."""

    def __init__(
        self, services: Services, context: RequestContext, request: FetchRequest, plan: FetchPlan, replica_id: NodeId
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._plan = plan
        self._version = context.api_version
        self._replica_id = replica_id
        self._is_follower = replica_id > _CONSUMER
        self._is_first_read = True
        self._wants_rack = (
            bool(request.rack_id)
            and not self._is_follower
            and self._version >= _FIRST_VERSION_WITH_RACKS
            and services.config.replica_selector_class == RACK_AWARE_SELECTOR
        )
        self._max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        self._toll = context.toll
        if self._toll is not None:
            self._max_bytes = int(min(self._max_bytes, self._toll.fetch_max_bytes))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._answers: list[tuple[FetchKey, PartitionData]] = []
        self._leaders: set[int] = set()
        self._unknown: int | None = None  # How many partitions did not exist, or were refused, when the request came.
        self.waits_for: list[Partition] = []  # Those that may have more later.
        self._found: list[tuple[Traffic, int]] = []  # Bytes of records, and whose they are.
        self.is_enough = False
        self._cold: ColdReads | None = None  # Of what lies in remote storage alone.

    @property
    def wait_ms(self) -> int:
        """How long it may be parked; for remote storage longer than the client asks."""
        if self._cold is None:
            return self._request.max_wait_ms
        return max(self._request.max_wait_ms, self._services.config.remote_fetch_max_wait_ms)

    def names(self) -> Iterator[tuple[str, int]]:
        for key, _ in self._plan.partitions():
            yield self._services.image.topic_names.get(Uuid(key.topic_id), key.topic), key.partition

    def answer(self) -> FetchResponse | PendingFetch:
        self.read()
        return self.respond() if self.is_enough or self.wait_ms <= 0 else PendingFetch(self, self.wait_ms)

    def read(self) -> None:
        self._answers, self.waits_for, self._found = [], [], []
        found_bytes = unknown = 0
        must_answer = False
        for key, fetch in self._plan.partitions():
            try:
                answer = self._read(key, fetch, self._max_bytes - found_bytes, is_first=found_bytes == 0)
                found_bytes += len(answer.records) if answer.records else 0
                must_answer = must_answer or answer.diverging_epoch.epoch >= 0 or answer.preferred_read_replica >= 0
            except KafkaError as error:
                answer = self._failure(key, error)
                if error.code is ErrorCode.CORRUPT_MESSAGE:
                    self._note_damage(key, fetch)
                unknown += error.code in _UNREADABLE
                must_answer = must_answer or self._is_follower or error.code not in _UNREADABLE
            self._answers.append((key, answer))
        self._is_first_read = False
        if self._unknown is None:
            self._unknown = unknown
        # Nothing to wait for, or something that was waited for is gone.
        must_answer = must_answer or unknown == self._plan.count or unknown > self._unknown
        self.is_enough = must_answer or found_bytes >= self._min_bytes
        if self._cold is not None:
            # They are waited for, and then what they say is told at once.
            self.is_enough = not self._cold.is_pending and (self.is_enough or self._cold.has_outcome)

    def read_again(self) -> None:
        if self._toll is None:
            self.read()
        else:
            self._toll.begin_work()
            self.read()
            self._toll.end_work()

    def _note_damage(self, key: FetchKey, fetch: FetchPartition) -> None:
        """Of all failures the one that no client expects, and so the one that Kafka counts."""
        self._find(key, fetch).traffic.failed_fetch_requests += 1

    def _read(self, key: FetchKey, fetch: FetchPartition, left_bytes: int, *, is_first: bool) -> PartitionData:
        partition = self._find(key, fetch)
        partition.traffic.fetch_requests += self._is_first_read
        diverging: tuple[int, int] | None = None
        if fetch.last_fetched_epoch >= 0:
            log = partition.log
            diverging = log.epochs.find_divergence(fetch.last_fetched_epoch, fetch.fetch_offset, log.log_end_offset)
            if diverging is not None and not self._is_follower and self._services.replicas.lease.is_past:
                # Another leader may know that history.
                raise partition.not_leader()
        if self._is_follower and self._is_first_read and diverging is None:
            self._note_fetch(partition, fetch)
        if self._plan.watch is not None:
            # After the fetch was noted: what it has changed itself is in this answer.
            self._plan.watch_over(key, partition)
        isolation_level = self._request.isolation_level
        answer = PartitionData(
            partition_index=key.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if isolation_level == _READ_COMMITTED else None,
            records=b"",
        )
        if diverging is not None:
            answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset = diverging
            self._plan.note_read(key)
            return answer
        if self._wants_rack and partition.is_leader and not self._services.replicas.lease.is_past:
            answer.preferred_read_replica = decide_read_replica(
                self._services.image.brokers, partition, self._request.rack_id, fetch.fetch_offset
            )
            if answer.preferred_read_replica >= 0:
                return answer
        if self._is_follower and self._is_held_back(partition):
            return answer
        if partition.tier is not None and fetch.fetch_offset < partition.log.log_start_offset:
            self._read_cold(key, partition, fetch, answer, left_bytes, is_first=is_first)
            return answer
        slice_ = partition.read(
            fetch.fetch_offset,
            max(0, min(fetch.partition_max_bytes, left_bytes)),
            isolation_level=isolation_level,
            at_least_one_batch=is_first,
            by_follower=self._is_follower,
        )
        if slice_ is not None:
            answer.records = slice_
            self._found.append((partition.traffic, slice_.size))
            if isolation_level == _READ_COMMITTED and not self._is_follower:
                answer.aborted_transactions = [
                    FetchResponse.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    for aborted in partition.find_aborted(slice_, fetch.fetch_offset)
                ]
        if self._is_follower:
            self._note_read(key, partition, fetch, has_records=slice_ is not None)
        self.waits_for.append(partition)
        return answer

    def _read_cold(
        self,
        key: FetchKey,
        partition: Partition,
        fetch: FetchPartition,
        answer: PartitionData,
        left_bytes: int,
        *,
        is_first: bool,
    ) -> None:
        """What lies before the local log is read from remote storage; a follower is told to do so itself (KIP-405)."""
        offset = fetch.fetch_offset
        if offset < partition.log_start_offset:
            why = f"Offset {offset} of {partition.topic_partition} is before {partition.log_start_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
        if self._is_follower:
            raise KafkaError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, "It lies in remote storage")
        if self._cold is None:
            self._cold = _cold_reads()
        wants_aborted = self._request.isolation_level == _READ_COMMITTED
        size = min(fetch.partition_max_bytes, self._max_bytes)
        found = self._cold.read(key, _remote_part(partition), offset, size, wants_aborted=wants_aborted)
        self.waits_for.append(partition)
        if found is None or not found.data or (len(found.data) > left_bytes and not is_first):
            return
        answer.records = found.data
        self._found.append((partition.traffic, len(found.data)))
        if wants_aborted:
            answer.aborted_transactions = [
                FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in found.aborted
            ]

    def _find(self, key: FetchKey, fetch: FetchPartition) -> Partition:
        name, replicas = key.topic, self._services.replicas
        if self._version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            name = replicas.topic_name(key.topic_id)
        partition = (replicas.find_any if self._is_follower else replicas.find)(name, key.partition)
        must_lead = self._is_follower or self._version < _FIRST_VERSION_WITH_RACKS
        partition.check_readable(fetch.current_leader_epoch, must_lead=must_lead)
        if self._version < _FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"{partition.topic_partition} is compressed with zstd, which Fetch knows from version 10 on",
            )
        return partition

    def _note_fetch(self, partition: Partition, fetch: FetchPartition) -> None:
        """One without a leader epoch could be a follower of an earlier one: it is served, and counts for nothing."""
        if fetch.current_leader_epoch == partition.leader_epoch:
            partition.note_fetch(
                self._replica_id,
                self._request.replica_state.replica_epoch,
                offset=fetch.fetch_offset,
                log_start_offset=fetch.log_start_offset,
            )
            watch = self._plan.watch
            partition.followers[self._replica_id].note_proof(None if watch is None else watch.proof)

    def _note_read(self, key: FetchKey, partition: Partition, fetch: FetchPartition, *, has_records: bool) -> None:
        """It need not be read again before there is news, or the follower asks for more. One that is not in sync is
        read every time, since its very asking may put it into the in-sync set; so is one of which less was noted."""
        follower = partition.followers.get(self._replica_id)
        is_at_end = fetch.fetch_offset >= partition.log.log_end_offset
        is_noted = follower is not None and follower.log_end_offset == fetch.fetch_offset
        if has_records and self._is_first_read and follower is not None and follower.note_given(fetch.fetch_offset):
            partition.log.suspect(fetch.fetch_offset)
        if has_records or (is_at_end and is_noted and self._replica_id in partition.isr):
            self._plan.note_read(key)

    def _is_held_back(self, partition: Partition) -> bool:
        replicas = self._services.replicas
        return self._is_throttled(partition) and replicas.leader_throttle.is_exceeded(replicas.monotonic_ms())

    def _is_throttled(self, partition: Partition) -> bool:
        """In-sync followers never are: producers wait for them. The list names leaders, as Kafka's tools write it."""
        throttled = partition.log.config.leader_replication_throttled_replicas
        return (
            bool(throttled)
            and self._replica_id not in partition.isr
            and is_throttled(throttled, partition=partition.topic_partition.partition, node_id=partition.node_id)
        )

    def wait(self, reader: PendingFetch) -> None:
        """The reader is told of news: of the high watermark or, for a follower, of appends."""
        if self._cold is not None:
            self._cold.wake = reader.on_readable
        watch = self._plan.watch
        if watch is not None:
            watch.wake = reader.on_readable
            return
        for partition in self.waits_for:
            (partition.replica_readers if self._is_follower else partition.readers).add(reader)

    def stop_waiting(self, reader: PendingFetch) -> None:
        watch = self._plan.watch
        if watch is not None and watch.wake == reader.on_readable:
            watch.wake = None
        for partition in self.waits_for:
            (partition.replica_readers if self._is_follower else partition.readers).discard(reader)

    def _failure(self, key: FetchKey, error: KafkaError) -> PartitionData:
        if not self._is_follower:
            error = self._services.replicas.lease.soften(error)
        answer = PartitionData(
            partition_index=key.partition,
            error_code=int(error.code),
            high_watermark=-1,
            aborted_transactions=[] if error.code in _UNKNOWN else None,  # As Kafka fills it.
            records=b"",
        )
        if self._version >= _FIRST_VERSION_WITH_HINTS:
            leader = hint_leader(self._services, error, key.topic, key.topic_id, key.partition)
            if leader is not None:
                answer.current_leader.leader_id, answer.current_leader.leader_epoch = leader
                self._leaders.add(leader[0])
        return answer

    def end(self) -> None:
        """The answer goes out, or nobody waits for it any more."""
        if self._cold is not None:
            self._cold.end()

    def respond(self) -> FetchResponse:
        self.end()
        if self._is_follower:
            self._pay_throttle()
        if self._toll is not None and not self._toll.admits_fetched(self._size_bytes()):
            # Too much for the client's quotas: it is told of nothing, and its session of nothing that was read.
            return FetchResponse(session_id=self._services.sessions.decline(self._plan))
        self._count_sent()
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
                    self._services, self._context.listener.name, self._leaders
                )
            ]
        return response

    def _count_sent(self) -> None:
        for traffic, size_bytes in self._found:
            if self._is_follower:
                traffic.replication_bytes_out += size_bytes
            else:
                traffic.bytes_out += size_bytes

    def _size_bytes(self) -> int:
        return sum(len(each.records) + FETCHED_PARTITION_BYTES for _, each in self._answers if each.records)

    def _pay_throttle(self) -> None:
        replicas = self._services.replicas
        throttled = {each.topic_partition: each for each in self.waits_for if self._is_throttled(each)}
        if not throttled:
            return
        indexes = {(bytes(each.topic_id), each.topic_partition.partition) for each in throttled.values()}
        sent_bytes = sum(
            len(answer.records)
            for key, answer in self._answers
            if answer.records and (key.topic_id, key.partition) in indexes
        )
        rate = replicas.config.leader_replication_throttled_rate
        replicas.leader_throttle.note(sent_bytes, bytes_per_second=rate, now_ms=replicas.monotonic_ms())

    def fail(self, error: Exception) -> FetchResponse:
        """Our own bug, met outside of dispatch."""
        _log.error("a parked fetch failed", trace=True, client=self._context.client_id, peer=self._context.peer)
        self._services.judge_bug(error)
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
        self._attempt.wait(self)

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
            self._attempt.wait(self)

    def hurry(self) -> None:
        """The time is over: answers with what there is, which was read when it was last told of news."""
        if not self.is_over:
            self._stop_waiting()
            self._read(is_last=True)

    def _read(self, *, is_last: bool) -> None:
        """Whatever fails, the client is answered: it would wait for ever, and its connection with it."""
        answer: FetchResponse | None = None
        try:
            self._attempt.read_again()
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
        self._attempt.end()

    def _stop_waiting(self) -> None:
        self._attempt.stop_waiting(self)
