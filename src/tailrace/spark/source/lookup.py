"""What is asked of the cluster when a query is planned: which partitions there are, and where they begin and end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.offsets import EARLIEST, LATEST, NO_SUCH_RECORD, list_offsets
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid
from tailrace.spark.options.bounds import AtOffsets, AtTime, AtTimes, Bound, EndOfLog, NoMatch
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.loss import KnownTopics, LossReport
from tailrace.spark.source.offsets import Offsets

Question = Callable[[], Awaitable[dict[str, TopicMetadata]]]


class Lookup(ABC):
    """Where partitions begin and end, whoever knows it. All of these raise KafkaError or OptionError; and
    DataLossError where a topic is not the one that it was."""

    def __init__(self, options: ReadOptions) -> None:
        losses = LossReport(fail_on_data_loss=options.fail_on_data_loss)
        self.known_topics = KnownTopics(options.topic_ids, losses)

    @abstractmethod
    async def partitions(self, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """Those that are subscribed to, in order. One that was `known` may be missing; any other must be there."""

    @abstractmethod
    async def latest(self, known: Offsets) -> dict[TopicPartition, int]:
        """The ends of all partitions, none of them before what is `known` to be there."""

    @abstractmethod
    async def at(self, timestamps: Offsets) -> dict[TopicPartition, int]:
        """The first offsets at or after these times, NO_SUCH_RECORD where there is none."""

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self.at(dict.fromkeys(partitions, EARLIEST))

    async def resolve(self, bound: Bound, *, is_start: bool) -> dict[TopicPartition, int]:
        partitions = await self.partitions()
        match bound:
            case EndOfLog(end):
                return await self.at(dict.fromkeys(partitions, end))
            case AtOffsets(offsets):
                _check_complete(offsets, partitions, "startingOffsets" if is_start else "endingOffsets")
                ends = {partition: offset for partition, offset in offsets.items() if offset < 0}
                return offsets | await self.at(ends)
            case AtTime(timestamp, no_match):
                return await self._resolve_times(dict.fromkeys(partitions, timestamp), no_match, is_start=is_start)
            case AtTimes(timestamps, no_match):
                name = f"{'starting' if is_start else 'ending'}OffsetsByTimestamp"
                _check_complete(timestamps, partitions, name)
                return await self._resolve_times(timestamps, no_match, is_start=is_start)

    async def _resolve_times(
        self, timestamps: Offsets, no_match: NoMatch, *, is_start: bool
    ) -> dict[TopicPartition, int]:
        found = await self.at(timestamps)
        unmatched = sorted(partition for partition, offset in found.items() if offset == NO_SUCH_RECORD)
        if unmatched and is_start and no_match is NoMatch.ERROR:
            partition = unmatched[0]
            raise OptionError(
                f"{partition} has no record at or after the starting timestamp {timestamps[partition]}: choose an "
                "earlier one, or set startingOffsetsByTimestampStrategy to latest to read what comes from now on"
            )
        return found | await self.at(dict.fromkeys(unmatched, LATEST))


class OffsetLookup(Lookup):
    """Asks the brokers."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        super().__init__(options)
        self._cluster = cluster
        self._options = options
        self._cached: list[TopicPartition] = []
        self._cached_until_ms = 0.0
        # Partitions by topic id, and those that the query began with.
        self._seen: dict[Uuid, set[int]] = {}
        self._begun: set[TopicPartition] = set()
        # Topics that were there once, and those of them that are gone: a query can go on without them.
        self._known: set[str] = set()
        self._gone: set[str] = set()

    async def partitions(self, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        now = self._cluster.ports.clock.monotonic_ms()
        if self._options.partition_cache_ms is None or now >= self._cached_until_ms:
            self._begun |= set(known)
            self._known |= {partition.topic for partition in known}
            self._cached = await self._find_partitions()
            self._cached_until_ms = now + (self._options.partition_cache_ms or 0)
        return self._cached

    async def latest(self, known: Offsets) -> dict[TopicPartition, int]:
        """The ends of all partitions. A leader that was just elected may not know yet how far its records were
        committed, and name an end below what is known to be there: it is asked again a few times."""
        partitions = await self.partitions(known)
        for attempt in range(self._options.offset_attempts):
            if attempt:
                await asyncio.sleep(self._options.offset_retry_interval_ms / 1000)
            ends = await self.at(dict.fromkeys(partitions, LATEST))
            if all(end >= known.get(partition, 0) for partition, end in ends.items()):
                break
        return ends

    async def at(self, timestamps: Offsets) -> dict[TopicPartition, int]:
        kafka = self._options.kafka
        return await list_offsets(
            self._cluster, timestamps, isolation=kafka.isolation, timeout_ms=kafka.consumer.retry_timeout_ms
        )

    # --- partitions

    async def _find_partitions(self) -> list[TopicPartition]:
        subscription = self._options.subscription
        topics = await self._find_topics()
        found = {
            TopicPartition(name, PartitionIndex(index)) for name, topic in topics.items() for index in self._all(topic)
        }
        if not subscription.partitions:
            return sorted(found)
        for partition in subscription.partitions:
            if partition.topic in topics and partition not in found:
                count = len(topics[partition.topic].partitions)
                raise OptionError(f"option assign names {partition}, and that topic has {count} partitions, from 0 on")
        return [partition for partition in subscription.partitions if partition.topic in topics]

    def _all(self, topic: TopicMetadata) -> Iterable[int]:
        """A topic never loses partitions: a broker that names fewer than another one did has not heard of them yet, and
        whoever asks for their offsets waits until it has. A topic without an id may have been created anew."""
        if topic.id == ZERO_UUID:
            return topic.partitions
        seen = self._seen.setdefault(topic.id, set())
        seen.update(topic.partitions)
        if self._options.topic_ids.get(topic.name) == topic.id:
            seen.update(partition.partition for partition in self._begun if partition.topic == topic.name)
        return seen

    async def _find_topics(self) -> dict[str, TopicMetadata]:
        """Brokers hear of a new topic one after the other, and know none for a moment when they start: so one that is
        missing is asked for again a few times. A stream that left it out would read it from its beginning when it is
        back."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            names = {name for name in self._known if subscription.includes(name)}
            question: Question = self._matching
        else:
            names = {*subscription.topics, *(partition.topic for partition in subscription.partitions)}
            question = self._existing(sorted(names))
        for attempt in range(self._options.offset_attempts):
            if attempt:
                await asyncio.sleep(self._options.offset_retry_interval_ms / 1000)
            topics = await self._cluster.with_retries(
                question, timeout_ms=self._options.kafka.consumer.retry_timeout_ms
            )
            if topics.keys() >= names - self._gone:
                break
        self.known_topics.check({name: topic.id for name, topic in topics.items()})
        self._known |= topics.keys()
        self._gone = names - topics.keys()
        never_seen = sorted(self._gone - self._known)
        if never_seen:
            raise OptionError(
                f"topic {never_seen[0]} does not exist: correct its name, or create it with: "
                f"tailrace topic create {never_seen[0]}"
            )
        return topics

    def _existing(self, names: Sequence[str]) -> Question:
        async def ask() -> dict[str, TopicMetadata]:
            try:
                return await self._cluster.refresh(names)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
            # The broker names one that is missing. The others are found one by one.
            if len(names) == 1:
                return {}
            return {found: topic for name in names for found, topic in (await self._existing([name])()).items()}

        return ask

    async def _matching(self) -> dict[str, TopicMetadata]:
        includes = self._options.subscription.includes
        everything = await self._cluster.refresh(None)
        names = [name for name, topic in everything.items() if not topic.is_internal and includes(name)]
        return await self._cluster.refresh(names) if names else {}


def _check_complete(given: Offsets, partitions: Sequence[TopicPartition], name: str) -> None:
    missing = sorted(set(partitions) - given.keys())
    unknown = sorted(given.keys() - set(partitions))
    if missing:
        raise OptionError(
            f"option {name} lacks {', '.join(map(str, missing))}: it must name every partition that is read"
            + (" (-2 stands for the earliest offset, -1 for the latest)" if name.endswith("Offsets") else "")
        )
    if unknown:
        raise OptionError(f"option {name} names {', '.join(map(str, unknown))}, which is not among those that are read")
