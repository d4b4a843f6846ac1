"""Consuming by librdkafka, whose calls block: polls run on one thread, all others on another. Commits and the end have
no time of their own in librdkafka: without a broker they never return. They run on threads that are left behind then.

What a poll has brought stays here if its caller has been cancelled meanwhile, and is given to the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from typing import Any, TypeVar

import confluent_kafka

from tailrace.client.consumer import EARLIEST, LATEST
from tailrace.client.groups.offsets import Committed, Offsets, offset_of
from tailrace.kit.engines.librdkafka import call_in_thread, consumer_settings, ends_within, translate
from tailrace.kit.engines.port import ConsumerEngine, MessageTypes, OnPartitions, Subscription
from tailrace.kit.messages import Message
from tailrace.kit.options import ParsedOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition

T = TypeVar("T")
Polled = dict[TopicPartition, list[Message]]

# Partitions can be sought in only a moment after they were assigned.
_SEEK_TRIES, _SEEK_PAUSE_S = 50, 0.1
_PASSING = frozenset(
    {
        confluent_kafka.KafkaError._PARTITION_EOF,
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
        confluent_kafka.KafkaError._TIMED_OUT,
        confluent_kafka.KafkaError._RESOLVE,
        confluent_kafka.KafkaError._AUTO_OFFSET_RESET,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class LibrdkafkaConsumer(ConsumerEngine):
    def __init__(self, options: ParsedOptions, message_types: MessageTypes) -> None:
        self._options = options
        self._message_types = message_types
        self._settings = consumer_settings(options)
        self._handle: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = ThreadPoolExecutor(1, "tailrace-kit-poll"), ThreadPoolExecutor(2, "tailrace-kit-call")
        self._pending: asyncio.Future[Polled] | None = None
        self._subscription: Subscription | None = None
        self._assigned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        # What polls have given, as far as it was committed.
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        # As of the last poll. To ask for it may wait for a hook that runs, which waits for the loop: only polls ask.
        self._group_metadata: Any = None
        self._committing = asyncio.Lock()
        self._late_commit: asyncio.Future[Any] | None = None  # a commit that nobody waits for any more
        self._given_up_meanwhile: set[tuple[str, int]] = set()  # of the thread of polls
        self._is_closing = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._handle = confluent_kafka.Consumer(self._settings)
        except confluent_kafka.KafkaException as error:
            raise translate(error.args[0], "the consumer cannot start") from None

    async def subscribe(self, subscription: Subscription) -> None:
        self._options.membership(subscription.topics, subscription.pattern)  # It tells if there is no group.
        self._subscription = subscription
        topics = list(subscription.topics)
        if subscription.pattern is not None:
            topics.append(f"^(?:{subscription.pattern})$")
        hooks = subscription.hooks

        def assign(_: Any, partitions: list[Any]) -> None:
            found = [] if self._is_closing else _ours(partitions)
            self._assigned.update(found)
            self._call_hook(hooks.on_assigned, found)

        def revoke(_: Any, partitions: list[Any]) -> None:
            self._give_up(_ours(partitions), hooks.on_revoked)

        def lose(_: Any, partitions: list[Any]) -> None:
            self._give_up(_ours(partitions), hooks.on_lost, is_lost=True)

        subscribe = self._handle.subscribe
        await self._ask(
            "the topics are not subscribed to",
            lambda: subscribe(topics, on_assign=assign, on_revoke=revoke, on_lost=lose),
        )

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        if self._subscription is not None:
            await self._ask("the topics are not given up", self._handle.unsubscribe)
            self._subscription = None
        places = dict(positions)
        for timestamp in (EARLIEST, LATEST):
            places |= await self.offsets_at([each for each, at in positions.items() if at == timestamp], timestamp)
        self._positions, self._assigned, self._paused, self._committed = places, set(places), set(), {}
        await self._ask("the partitions are not assigned", self._handle.assign, _theirs(places))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused & self._assigned)

    async def poll(self, timeout_ms: float, max_records: int) -> Mapping[TopicPartition, Sequence[Message]]:
        assert self._loop is not None, "the engine was not started"
        await self._commit_if_due()
        if self._pending is None:
            self._pending = self._loop.run_in_executor(self._threads[0], self._poll, timeout_ms / 1000, max_records)
        found = await asyncio.shield(self._pending)
        self._pending = None
        given = {partition: records for partition, records in found.items() if partition in self._assigned}
        for partition, records in given.items():
            self._positions[partition] = records[-1].offset + 1
        return given

    async def commit(self, offsets: Offsets | None) -> None:
        if offsets is None:
            moved = self._moved()
            await self._commit({partition: Committed(offset) for partition, offset in moved.items()})
        else:
            await self._commit({partition: offset_of(offset) for partition, offset in offsets.items()})

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        wanted = _theirs(dict.fromkeys(partitions, 0))
        if not wanted:
            return {}
        found = await self._ask("the offsets are not told", self._handle.committed, wanted, self._timeout_s)
        return {_place(each): Committed(each.offset, -1, each.metadata or "") for each in found if each.offset >= 0}

    def position(self, partition: TopicPartition) -> int:
        self._check_assigned(partition)
        if partition not in self._positions:
            # Nothing was read of it yet.
            committed = self._handle.committed(_theirs({partition: 0}), self._timeout_s)[0].offset
            ends = self._handle.get_watermark_offsets(*_theirs({partition: 0}), self._timeout_s)
            self._positions[partition] = committed if committed >= 0 else ends[self._options.start == LATEST]
        return self._positions[partition]

    def end_offset(self, partition: TopicPartition) -> int:
        self._check_assigned(partition)
        ends = self._handle.get_watermark_offsets(*_theirs({partition: 0}), cached=True)
        return -1 if ends is None or ends[1] < 0 else int(ends[1])

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        self._check_assigned(partition)
        if offset in (EARLIEST, LATEST):
            offset = (await self.offsets_at([partition], offset))[partition]
        if self._pending is not None:  # Left by a poll that was cancelled: none of it was given.
            (await asyncio.shield(self._pending)).pop(partition, None)
        (place,) = _theirs({partition: offset})
        for attempt in range(_SEEK_TRIES):
            try:
                await self._ask(f"{partition} cannot be read from offset {offset}", self._handle.seek, place)
                break
            except KafkaError:
                if attempt == _SEEK_TRIES - 1:
                    raise
            await asyncio.sleep(_SEEK_PAUSE_S)
        self._positions[partition] = offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = [each for each in partitions if each in self._assigned]
        self._paused.update(chosen)
        self._handle.pause(_theirs(dict.fromkeys(chosen, 0)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = [each for each in partitions if each in self._assigned]
        self._paused.difference_update(chosen)
        self._handle.resume(_theirs(dict.fromkeys(chosen, 0)))

    async def offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return await self._ask("the offsets are not told", self._offsets_at, list(partitions), timestamp)

    def group_metadata(self) -> Any:
        if self._subscription is None:
            return self._handle.consumer_group_metadata()
        if self._group_metadata is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has not taken this member yet, or not any more")
        return self._group_metadata

    async def close(self, *, leave: bool) -> None:
        """librdkafka always leaves; without `leave` nothing is committed and no hook is called."""
        if self._handle is None:
            return
        try:
            if leave and self._subscription is not None:
                # Its own callbacks come too late: while it closes, nobody else may commit.
                partitions = sorted(self._assigned)
                hook = self._subscription.hooks.on_revoked
                await asyncio.get_running_loop().run_in_executor(None, self._give_up, partitions, hook)
            elif leave:
                await self._commit_unless_refused()
            self._is_closing = True
            closed = call_in_thread(self._handle.close)
            if await ends_within(closed, self._timeout_s):
                closed.result()
        except confluent_kafka.KafkaException as error:
            raise translate(error.args[0], "the consumer is not closed well") from None
        finally:
            if self._pending is not None:
                await asyncio.wait([self._pending])
            for each in self._threads:
                each.shutdown(wait=False)

    # --- on the thread of polls

    def _poll(self, timeout_s: float, max_records: int) -> Polled:
        try:
            return self._polled(timeout_s, max_records)
        finally:
            if self._subscription is not None:
                self._group_metadata = self._handle.consumer_group_metadata() if self._handle.memberid() else None

    def _polled(self, timeout_s: float, max_records: int) -> Polled:
        first = self._handle.poll(timeout_s)
        if first is None:
            return {}
        self._given_up_meanwhile.clear()
        # What has arrived already, and no more: it would wait for the whole number.
        polled = [first, *(self._handle.consume(max_records - 1, 0) if max_records > 1 else ())]
        if self._given_up_meanwhile:  # In between. If one came back at once, these come again, and nothing newer yet.
            gone = self._given_up_meanwhile
            polled = [each for each in polled if (each.topic(), each.partition()) not in gone]
        errors = [message.error() for message in polled]
        if any(errors):
            for error in filter(None, errors):
                if error.fatal() or error.code() not in _PASSING:
                    raise translate(error, "the topics cannot be read")
            polled = [message for message, error in zip(polled, errors, strict=True) if error is None]
        topics = [message.topic() for message in polled]
        partitions = [message.partition() for message in polled]
        records = self._records(polled)
        is_one = topics.count(topics[0]) == partitions.count(partitions[0]) == len(polled) if polled else False
        places = {(topics[0], partitions[0])} if is_one else set(zip(topics, partitions, strict=True))
        found: Polled = {}
        for topic, index in places:
            where = TopicPartition(topic, PartitionIndex(index))
            chosen = records
            if len(places) > 1:
                each = zip(records, topics, partitions, strict=True)
                chosen = [record for record, its_topic, its_index in each if its_index == index and its_topic == topic]
            # As `tuple.__new__` for each of them, by a loop that is not Python's.
            found[where] = list(map(tuple.__new__, repeat(self._message_types(where)), chosen))
        return found

    @staticmethod
    def _records(polled: Sequence[Any]) -> list[tuple[Any, ...]]:
        """By columns: it costs half of going through them record by record."""
        offsets = [message.offset() for message in polled]
        times = [message.timestamp()[1] for message in polled]
        keys = [message.key() for message in polled]
        values = [message.value() for message in polled]
        headers = [message.headers() or () for message in polled]
        if any(headers):
            headers = [tuple(each) for each in headers]
        return list(zip(offsets, times, keys, values, headers, strict=True))

    def _give_up(self, partitions: list[TopicPartition], hook: OnPartitions, *, is_lost: bool = False) -> None:
        if self._is_closing:
            return
        self._given_up_meanwhile.update(partitions)
        if not is_lost and self._options.config.enable_auto_commit:
            moved = {each: offset for each, offset in self._moved().items() if each in partitions}
            if moved:
                # Where it fails, it is read again by whoever has the partitions next.
                with suppress(KafkaError):
                    offsets = {each: Committed(offset) for each, offset in moved.items()}
                    assert self._loop is not None, "the engine was started"
                    asyncio.run_coroutine_threadsafe(self._commit(offsets), self._loop).result()
        self._call_hook(hook, partitions)
        for each in partitions:
            self._assigned.discard(each)
            self._paused.discard(each)
            self._positions.pop(each, None)
            self._committed.pop(each, None)

    def _call_hook(self, hook: OnPartitions, partitions: Sequence[TopicPartition]) -> None:
        assert self._loop is not None, "the engine was started"
        if not partitions:  # A new epoch of the group that changes nothing for this member.
            return

        async def call() -> None:
            told: Awaitable[None] | None = hook(partitions)
            if told is not None:
                await told

        asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def _offsets_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found = {}
        if timestamp not in (EARLIEST, LATEST):
            asked = _theirs(dict.fromkeys(partitions, timestamp))
            answers = self._handle.offsets_for_times(asked, self._timeout_s) if asked else []
            found = {_place(each): each.offset for each in answers if each.offset >= 0}
        for each in partitions:
            if each not in found:
                ends = self._handle.get_watermark_offsets(*_theirs({each: 0}), self._timeout_s)
                found[each] = ends[timestamp != EARLIEST]
        return found

    # --- commits

    def _moved(self) -> dict[TopicPartition, int]:
        return {each: offset for each, offset in self._positions.items() if self._committed.get(each) != offset}

    async def _commit_if_due(self) -> None:
        interval_s = self._options.config.auto_commit_interval_ms / 1000
        if time.monotonic() - self._committed_at >= interval_s:
            self._committed_at = time.monotonic()
            await self._commit_unless_refused()

    async def _commit_unless_refused(self) -> None:
        if not self._options.config.enable_auto_commit or self._options.config.group_id is None:
            return
        try:
            await self.commit(None)
        except KafkaError:
            return  # It is read again by whoever has the partitions next.

    async def _commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        if self._options.config.group_id is None:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "this consumer is of no group: give it a group.id")
        if not offsets:
            return
        places = [
            confluent_kafka.TopicPartition(topic, index, each.offset, metadata=each.metadata or "")
            for (topic, index), each in offsets.items()
        ]
        commit = self._handle.commit
        doing = "the offsets were not committed"
        async with self._committing:  # One after the other: an older one that was given up must not come last.
            if self._late_commit is not None and not await ends_within(self._late_commit, self._timeout_s):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{doing}: an earlier commit has no answer yet")
            self._late_commit = call_in_thread(lambda: commit(offsets=places, asynchronous=False))
            if not await ends_within(self._late_commit, self._timeout_s):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{doing}: the coordinator does not answer")
            answered, self._late_commit = self._late_commit, None
            try:
                answered.result()
            except confluent_kafka.KafkaException as error:
                raise translate(error.args[0], doing) from None
        self._committed |= {partition: each.offset for partition, each in offsets.items()}

    async def _ask(self, doing: str, call: Callable[..., T], *arguments: Any) -> T:
        assert self._loop is not None, "the engine was not started"
        try:
            return await self._loop.run_in_executor(self._threads[1], lambda: call(*arguments))
        except confluent_kafka.KafkaException as error:
            raise translate(error.args[0], doing) from None

    def _check_assigned(self, partition: TopicPartition) -> None:
        if partition not in self._assigned:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not assigned to this consumer (any more)"
            )

    @property
    def _timeout_s(self) -> float:
        return self._options.config.default_api_timeout_ms / 1000


def _theirs(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    return [confluent_kafka.TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]


def _ours(partitions: Iterable[Any]) -> list[TopicPartition]:
    return sorted(map(_place, partitions))


def _place(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, PartitionIndex(partition.partition))
