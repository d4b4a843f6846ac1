"""Fetches from one leader: one task, one incremental fetch session for all partitions that it leads.

    round    say what changed since the last request, wait for the answer, append it, go on
    session  the leader remembers what it was told; after any failure everything is told anew (KIP-227)
    parted   an answer with a diverging epoch names where to cut; the next fetch goes on from there (KIP-595)
    behind   OFFSET_OUT_OF_RANGE: the leader is asked where its log starts and ends, and the log begins there anew;
             OFFSET_MOVED_TO_TIERED_STORAGE: it goes on after what lies in the store (`from_tier`)

Rules: a partition is fetched with the leader epoch that the metadata gave it. What comes back for another epoch or
offset than those of now is dropped, so that a deposed leader's last words change nothing. A partition that fails rests,
up to replica.fetch.backoff.ms, and leaves the others alone. Nothing is fetched before this broker has its epoch, since
a leader could not tell this incarnation from the one before. A new partition interrupts a fetch that is parked at the
leader: after an election producers are waiting for it. A leader that is not followed any more is told so, as far as it
can be reached: past its lease it goes on while it is followed (`replica.lease`).

Never decides who leads or who is in sync.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from tailrace.model import events
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.replica.following import changes
from tailrace.replica.following.asking import list_offset
from tailrace.replica.following.cuts import Cuts
from tailrace.replica.following.from_tier import start_after_copies
from tailrace.replica.partition import OnBug, Partition
from tailrace.replica.throttle import Throttle, is_throttled
from tailrace.wire.apis.data import FetchRequest, FetchResponse
from tailrace.wire.schema import Message

R = TypeVar("R", bound=Message)

_log = events.logger("fetcher")

_LATEST, _EARLIEST = -1, -2
_EPOCH_MAX = 0x7FFFFFFF
_NO_MORE = -1  # The epoch that ends a session.
# For a leader that can be reached; another hears of it by itself, once it is not followed for the time of a lease.
_LEAVE_TIMEOUT_MS = 1000
# Bytes appended before the loop turns: about a millisecond.
_BYTES_PER_TURN = 1 << 20
# A fetch that is parked at the leader blocks its connection: after an interruption the other one is used.
_CHANNELS = 2
# How soon a broker without an epoch, or whose logs wait for a sync, looks again if nobody wakes it.
_LOOK_AGAIN_SECONDS = 0.1
# The first pause after an error; it doubles up to replica.fetch.backoff.ms. A leader often learns it later than they.
_FIRST_PAUSE_SECONDS = 0.02
# A store may take that long to say how a log goes on.
_COPIES_PATIENCE_SECONDS = 600.0
# A fetch is parked no longer than this while a log waits for its sync, of which the leader is to hear at once.
_SYNC_WAIT_MS = 5

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Leaders(Protocol):
    """The other brokers."""

    async def call(self, node_id: int, request: Message, response_type: type[R], *, timeout_ms: int, channel: str) -> R:
        """Raises KafkaError; NETWORK_EXCEPTION if no answer came."""


class FetchingBroker(Protocol):
    """What a fetcher asks of the broker it runs in."""

    node_id: NodeId
    broker_epoch: int
    config: BrokerConfig
    on_bug: OnBug


class _Followed:
    """One partition, and what the leader was told of it in this session."""

    __slots__ = ("failures", "key", "leader_epoch", "offset", "partition", "rests_until")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = bytes(partition.topic_id), partition.topic_partition.partition
        self.leader_epoch = int(partition.leader_epoch)
        self.offset = -1  # The last one asked for.
        self.rests_until = 0.0  # On the loop's clock.
        self.failures = 0  # In a row.


class Fetcher:
    def __init__(
        self, broker: FetchingBroker, leaders: Leaders, leader_id: NodeId, *, throttle: Throttle, cuts: Cuts
    ) -> None:
        self._broker = broker
        self._cuts = cuts
        self._leaders = leaders
        self._leader_id = leader_id
        self._throttle = throttle
        self._loop = asyncio.get_running_loop()
        self._followed: dict[tuple[bytes, int], _Followed] = {}
        # The session: who is in it, who has to be told of anew, who is to leave it. The resting are in none of them.
        self._fetched: dict[tuple[bytes, int], _Followed] = {}
        self._changed: dict[tuple[bytes, int], _Followed] = {}
        self._forgotten: dict[tuple[bytes, int], None] = {}
        self._resting: dict[tuple[bytes, int], _Followed] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._channel = 0
        self._wakeup = asyncio.Event()
        self._is_calling = False
        self._is_interrupted = False
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._beginning: set[asyncio.Task[None]] = set()  # At most one for each partition that rests.

    # ---- which partitions

    def add(self, partition: Partition) -> None:
        """Or take note of its new leader epoch."""
        followed = _Followed(partition)
        known = self._followed.get(followed.key)
        if known is not None and known.partition is partition and known.leader_epoch == followed.leader_epoch:
            return
        self._leave_session(followed.key)
        self._followed[followed.key] = followed
        self._resting[followed.key] = followed
        partition.wake_fetcher = self.wake
        self.interrupt()
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"fetcher-{self._leader_id}")

    def remove(self, partition: Partition) -> None:
        key = bytes(partition.topic_id), partition.topic_partition.partition
        self._followed.pop(key, None)
        self._resting.pop(key, None)
        self._leave_session(key)

    def wake(self) -> None:
        self._wakeup.set()

    def interrupt(self) -> None:
        """What is asked for now is not what should be: the call is given up, and with it the session."""
        self._wakeup.set()
        if self._is_calling and not self._is_interrupted and self._task is not None:
            self._is_interrupted = True
            self._task.cancel()

    def close(self) -> None:
        for task in (self._task, self._leaving, *self._beginning):
            if task is not None:
                task.cancel()

    def _leave_session(self, key: tuple[bytes, int]) -> None:
        self._changed.pop(key, None)
        if self._fetched.pop(key, None) is not None:
            self._forgotten[key] = None

    def _rest(self, followed: _Followed, seconds: float) -> None:
        if self._followed.get(followed.key) is followed:
            followed.rests_until = self._loop.time() + seconds
            self._leave_session(followed.key)
            self._resting[followed.key] = followed

    def _rest_after_error(self, followed: _Followed) -> None:
        self._rest(followed, self._pause_seconds(followed.failures))
        followed.failures += 1

    def _pause_seconds(self, failures: int) -> float:
        doubled: float = _FIRST_PAUSE_SECONDS * (1 << min(failures, 16))
        return min(self._broker.config.replica_fetch_backoff_ms / 1000, doubled)

    # ---- rounds

    async def _run(self) -> None:
        failures = 0
        try:
            while self._followed:
                self._wakeup.clear()
                self._admit_rested()
                if not self._fetched or self._broker.broker_epoch < 0:
                    await self._wait_wakeup(self._seconds_to_next_look())
                    continue
                try:
                    await self._fetch_once()
                    failures = 0
                    continue
                except KafkaError as error:
                    if failures == 0:
                        _log.warning("a leader cannot be fetched from", leader=self._leader_id, cause=error.message)
                except Exception as error:
                    # A bug of ours: the others go on, and so does this one, from the beginning.
                    _log.error("a fetcher failed", trace=True, leader=self._leader_id)
                    self._broker.on_bug(error, None)
                self._reset_session()
                await self._wait_wakeup(max(_FIRST_PAUSE_SECONDS, self._pause_seconds(failures)))
                failures += 1
            if self._session_id:
                self._leaving = self._loop.create_task(self._leave(self._session_id), name=f"leave-{self._leader_id}")
                self._session_id = self._session_epoch = 0
        finally:
            self._task = None

    async def _leave(self, session_id: int) -> None:
        """Ends the session at the leader."""
        broker = self._broker
        request = FetchRequest(
            replica_id=broker.node_id,
            replica_state=FetchRequest.ReplicaState(replica_id=broker.node_id, replica_epoch=broker.broker_epoch),
            session_id=session_id,
            session_epoch=_NO_MORE,
        )
        channel = f"replication-{self._channel}"
        with suppress(KafkaError):
            await self._leaders.call(
                self._leader_id, request, FetchResponse, timeout_ms=_LEAVE_TIMEOUT_MS, channel=channel
            )

    def _admit_rested(self) -> None:
        """Whoever may be fetched joins the session."""
        if not self._resting:
            return
        now = self._loop.time()
        for key, followed in list(self._resting.items()):
            if followed.rests_until <= now and self._is_ready(followed):
                del self._resting[key]
                self._fetched[key] = self._changed[key] = followed
                self._forgotten.pop(key, None)

    def _seconds_to_next_look(self) -> float:
        now = self._loop.time()
        rests = [each.rests_until - now for each in self._resting.values() if each.rests_until > now]
        return min([_LOOK_AGAIN_SECONDS, *rests])

    def _is_ready(self, followed: _Followed) -> bool:
        partition = followed.partition
        is_held_back = self._is_throttled(partition) and self._throttle.is_exceeded(self._loop.time() * 1000)
        return not partition.log.is_offline and changes.may_fetch(partition) and not is_held_back

    def _is_throttled(self, partition: Partition) -> bool:
        replicas = partition.log.config.follower_replication_throttled_replicas
        return partition.node_id not in partition.isr and is_throttled(
            replicas, partition=partition.topic_partition.partition, node_id=partition.node_id
        )

    async def _wait_wakeup(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def _fetch_once(self) -> None:
        request = self._build_request()
        response = await self._ask(request)
        if response is None:
            return
        if response.error_code:
            error = ErrorCode(response.error_code)
            if error in _SESSION_ERRORS:
                self._reset_session()
                return
            raise KafkaError(error, f"broker {self._leader_id} answered a fetch with {error.name}")
        if self._session_epoch == 0:
            self._session_id = response.session_id
        if self._session_id != 0:
            self._session_epoch = 1 if self._session_epoch == _EPOCH_MAX else self._session_epoch + 1
        else:
            self._reset_session()  # The leader has no room for one: everything is told every time.
        await self._take_answers(response)

    async def _ask(self, request: FetchRequest) -> FetchResponse | None:
        """None if it was interrupted. The call is part of the fetcher's own task, which is then cancelled and goes on:
        another task for each fetch would cost a quarter more, and a turn of the loop."""
        task = self._task
        assert task is not None, "a fetcher asks in its task"
        response: FetchResponse | None = None
        self._is_calling = True
        try:
            response = await self._leaders.call(
                self._leader_id,
                request,
                FetchResponse,
                timeout_ms=self._broker.config.replica_socket_timeout_ms,
                channel=f"replication-{self._channel}",
            )
        except asyncio.CancelledError:
            if not self._is_interrupted or task.cancelling() > 1:
                raise  # The fetcher itself is to end.
        finally:
            self._is_calling = False
            if self._is_interrupted:
                self._is_interrupted = False
                task.uncancel()
        if response is None:
            self._channel = (self._channel + 1) % _CHANNELS
            self._reset_session()
        return response

    def _reset_session(self) -> None:
        """The id is still told, so that the leader ends what it remembers under it."""
        self._session_epoch = 0
        self._changed = dict(self._fetched)
        self._forgotten.clear()

    # ---- the request

    def _build_request(self) -> FetchRequest:
        broker, config = self._broker, self._broker.config
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        for (topic_id, _index), followed in self._changed.items():
            topic = topics.setdefault(topic_id, FetchRequest.FetchTopic(topic_id=topic_id))
            topic.partitions.append(self._describe(followed))
        forgotten: dict[bytes, FetchRequest.ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            gone = forgotten.setdefault(topic_id, FetchRequest.ForgottenTopic(topic_id=topic_id))
            gone.partitions.append(index)
        self._changed, self._forgotten = {}, {}
        return FetchRequest(
            replica_id=broker.node_id,
            replica_state=FetchRequest.ReplicaState(replica_id=broker.node_id, replica_epoch=broker.broker_epoch),
            max_wait_ms=self._max_wait_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _max_wait_ms(self) -> int:
        """Those that rest cannot join the session before this fetch has ended."""
        wait_ms = float(self._broker.config.replica_fetch_wait_max_ms)
        now = self._loop.time()
        for followed in self._resting.values():
            if followed.rests_until > now:
                wait_ms = min(wait_ms, 1 + (followed.rests_until - now) * 1000)
            elif not changes.may_fetch(followed.partition):
                wait_ms = min(wait_ms, _SYNC_WAIT_MS)
        return int(wait_ms)

    def _describe(self, followed: _Followed) -> FetchRequest.FetchPartition:
        log = followed.partition.log
        followed.offset = log.log_end_offset
        return FetchRequest.FetchPartition(
            partition=followed.key[1],
            current_leader_epoch=followed.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=followed.partition.log_start_offset,
            partition_max_bytes=self._broker.config.replica_fetch_max_bytes,
        )

    # ---- the answer

    async def _take_answers(self, response: FetchResponse) -> None:
        taken_bytes = 0
        for topic in response.responses:
            for data in topic.partitions:
                followed = self._fetched.get((topic.topic_id, data.partition_index))
                if followed is None:
                    continue
                taken_bytes += await self._take(followed, data)
                if taken_bytes >= _BYTES_PER_TURN:
                    taken_bytes = 0
                    await asyncio.sleep(0)

    async def _take(self, followed: _Followed, data: FetchResponse.PartitionData) -> int:
        """Gives the bytes appended. What fails rests; the others go on."""
        try:
            if not self._is_current(followed):
                self._changed[followed.key] = followed
                return 0
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._start_anew(followed)
            elif data.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                self._begin_after_copies(followed)
            elif data.error_code:
                raise KafkaError(ErrorCode(data.error_code), f"the leader says {ErrorCode(data.error_code).name}")
            elif data.diverging_epoch.epoch >= 0:
                self._cut(followed, data.diverging_epoch)
            else:
                return self._append(followed, data)
        except KafkaError as error:
            self._note_failure(followed, error.message)
        return 0

    def _note_failure(self, followed: _Followed, cause: str) -> None:
        if followed.failures == 0:
            _log.info(
                "a partition is fetched again later",
                partition=followed.partition.topic_partition,
                leader=self._leader_id,
                cause=cause,
            )
        self._rest_after_error(followed)

    def _is_current(self, followed: _Followed) -> bool:
        """Whether the answer is to what would be asked now."""
        partition = followed.partition
        return (
            self._followed.get(followed.key) is followed
            and followed.leader_epoch == partition.leader_epoch
            and partition.leader_id == self._leader_id
            and followed.offset == partition.log.log_end_offset
        )

    def _append(self, followed: _Followed, data: FetchResponse.PartitionData) -> int:
        partition = followed.partition
        records = data.records if data.records else b""
        assert isinstance(records, bytes | bytearray | memoryview), "what was received is in memory"
        start_offset = partition.log_start_offset
        appended_bytes = changes.append_fetched(
            partition,
            memoryview(records),
            leader_epoch=followed.leader_epoch,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
        )
        followed.failures = 0
        if appended_bytes or partition.log_start_offset != start_offset:
            if self._is_throttled(partition):
                rate = self._broker.config.follower_replication_throttled_rate
                self._throttle.note(appended_bytes, bytes_per_second=rate, now_ms=self._loop.time() * 1000)
            self._changed[followed.key] = followed
            if not self._is_ready(followed):
                self._rest(followed, 0.0)
        return appended_bytes

    def _cut(self, followed: _Followed, diverging: FetchResponse.EpochEndOffset) -> None:
        partition = followed.partition
        was_end = partition.log.log_end_offset
        changes.truncate_to_divergence(partition, diverging.epoch, diverging.end_offset, self._cuts)
        _log.info(
            "truncated to where the leader's log parts",
            partition=partition.topic_partition,
            leader=self._leader_id,
            log_end=was_end,
            cut_to=partition.log.log_end_offset,
        )
        self._changed[followed.key] = followed

    async def _start_anew(self, followed: _Followed) -> None:
        """The leader has nothing at the log end of here: its log has been cut short (an unclean election), or starts
        later (it was away for longer than the records were kept)."""
        partition = followed.partition
        ask = partial(list_offset, partition, self._ask_leader, self._broker.node_id, followed.leader_epoch)
        leader_end, _ = await ask(_LATEST)
        leader_start, _ = await ask(_EARLIEST)
        if not self._is_current(followed):
            return
        log_end = partition.log.log_end_offset
        if leader_end < log_end or leader_start > log_end:
            if leader_start > log_end:
                changes.restart_at(partition, leader_start, self._cuts)
            else:
                changes.truncate(partition, max(leader_end, leader_start), self._cuts)
            _log.warning(
                "the log begins anew at the leader's",
                partition=partition.topic_partition,
                leader=self._leader_id,
                log_end=log_end,
                cut_to=partition.log.log_end_offset,
            )
        self._rest(followed, 0.0 if partition.log.log_end_offset != log_end else _LOOK_AGAIN_SECONDS)

    def _begin_after_copies(self, followed: _Followed) -> None:
        """In a task of its own, while the partition rests."""

        async def begin() -> None:
            cause = await start_after_copies(
                followed.partition, self._ask_leader, self._cuts, is_current=lambda: self._is_current(followed)
            )
            if cause:
                self._note_failure(followed, cause)
            else:
                self._rest(followed, 0.0)
            self.interrupt()  # Or it would join the session once the leader has news of others.

        self._rest(followed, _COPIES_PATIENCE_SECONDS)
        task = self._loop.create_task(begin(), name=f"begin {followed.partition.topic_partition} after copies")
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _ask_leader(self, request: Message, response_type: type[R]) -> R:
        """Not behind a fetch that is parked."""
        timeout_ms = self._broker.config.replica_socket_timeout_ms
        return await self._leaders.call(
            self._leader_id, request, response_type, timeout_ms=timeout_ms, channel="offsets"
        )
