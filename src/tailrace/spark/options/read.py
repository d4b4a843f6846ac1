"""What a query reads, and how: the options of Spark's own Kafka connector, with its names, defaults and meaning, and a
few of our own. They cross to the executors by pickle."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass, field

from tailrace.model.ids import TopicPartition, Uuid, parse_uuid
from tailrace.spark.options.bounds import Bound, check_order, parse_end, parse_start
from tailrace.spark.options.claims import ClaimOptions, parse_claims
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import KafkaSettings, parse_kafka_settings
from tailrace.spark.options.names import READ, VALUES, check_names, warn_of_unused
from tailrace.spark.options.parsing import (
    Options,
    parse_boolean,
    parse_duration_ms,
    parse_integer,
    parse_partition_numbers,
    parse_partitions,
)
from tailrace.spark.options.tier import TierOptions, needs_brokers, parse_tier

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"

_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
# Spark's connector takes spark.network.timeout, which is 120 s unless set.
_POLL_TIMEOUT_MS = 120_000
_OFFSET_RETRIES = 3
# Some 40 ms of reading: about what a task costs by itself.
_RECORDS_PER_TASK = 20_000
_OFFSET_RETRY_INTERVAL_MS = 1000

_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId", "untilOffsets")
_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


@dataclass(frozen=True)
class Subscription:
    """Exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def includes(self, topic: str) -> bool:
        """Whether the topic is read, or would be if it were there."""
        if self.pattern is not None:
            # Anywhere in the name, as Spark's connector has it.
            return re.search(self.pattern, topic) is not None
        return topic in self.topics or any(topic == partition.topic for partition in self.partitions)

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern!r}"
        return ", ".join(map(str, self.topics or self.partitions))


@dataclass(frozen=True)
class ReadOptions:
    kafka: KafkaSettings
    subscription: Subscription
    columns: tuple[str, ...]
    start: Bound
    end: Bound
    fail_on_data_loss: bool
    min_partitions: int | None
    records_per_partition_max: int | None
    # Small ranges share a task up to so many records; 0: each has its own.
    records_per_task: int
    offsets_per_trigger_min: int | None
    offsets_per_trigger_max: int | None
    trigger_delay_ms_max: int
    # How long a task waits for a leader, a broker or records that are known to exist.
    poll_timeout_ms: int
    offset_attempts: int
    offset_retry_interval_ms: int
    # None: ask each time.
    partition_cache_ms: int | None
    # Where the offsets of finished batches are committed; None: nowhere.
    group_id: str | None
    # A stream reads these partitions, up to and without these offsets; None: all, and without end.
    until: dict[TopicPartition, int] | None
    # Where segments are read from instead of from brokers; None: nowhere.
    tier: TierOptions | None = None
    # Where large values are fetched from; None: references stay as they are.
    claims: ClaimOptions | None = None
    # Which topics the offsets of a checkpoint are of: one of these names with another id is another topic.
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    # Whether filters of a batch query leave out what need not be read: see `source.batch`.
    pushes_filters: bool = False

    @classmethod
    def parse(cls, options: Options, *, is_stream: bool) -> ReadOptions:
        """Raises OptionError."""
        check_names(options)
        _check_kind_of_query(options, is_stream=is_stream)
        warn_of_unused(options, (*READ, *VALUES), purpose="reading")
        start, end = parse_start(options, is_stream=is_stream), parse_end(options)
        check_order(start, end)
        least = parse_integer(options, "minOffsetsPerTrigger")
        most = parse_integer(options, "maxOffsetsPerTrigger", least=1)
        if least is not None and most is not None and least > most:
            raise OptionError(f"option minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")
        poll_timeout_ms = parse_integer(options, "kafkaConsumer.pollTimeoutMs", least=1)
        attempts = parse_integer(options, "fetchOffset.numRetries", least=1)
        interval_ms = parse_integer(options, "fetchOffset.retryIntervalMs")
        cache_ms = parse_integer(options, "partition.metadata.cache.ttl.ms", least=-1)
        if cache_ms == 0:
            raise OptionError("option partition.metadata.cache.ttl.ms is 0: expected milliseconds, or -1 for no cache")
        group_id = _parse_group_id(options)
        if group_id is not None and not needs_brokers(options):
            raise OptionError("option groupId wants offsets committed by brokers, and brokers=never: leave one out")
        return cls(
            kafka=parse_kafka_settings(options, needs_brokers=needs_brokers(options)),
            subscription=parse_subscription(options),
            columns=parse_columns(options),
            start=start,
            end=end,
            fail_on_data_loss=parse_boolean(options, "failOnDataLoss", default=True),
            min_partitions=parse_integer(options, "minPartitions", least=1),
            records_per_partition_max=parse_integer(options, "maxRecordsPerPartition", least=1),
            records_per_task=_parse_records_per_task(options),
            offsets_per_trigger_min=least,
            offsets_per_trigger_max=most,
            trigger_delay_ms_max=parse_duration_ms(options, "maxTriggerDelay", default_ms=_MAX_TRIGGER_DELAY_MS),
            poll_timeout_ms=_POLL_TIMEOUT_MS if poll_timeout_ms is None else poll_timeout_ms,
            offset_attempts=_OFFSET_RETRIES if attempts is None else attempts,
            offset_retry_interval_ms=_OFFSET_RETRY_INTERVAL_MS if interval_ms is None else interval_ms,
            partition_cache_ms=None if cache_ms == -1 else cache_ms,
            group_id=group_id,
            until=_parse_until(options),
            tier=parse_tier(options),
            claims=parse_claims(options),
            topic_ids=_parse_topic_ids(options),
            pushes_filters=parse_boolean(options, "pushFilters", default=False),
        )


def parse_columns(options: Options) -> tuple[str, ...]:
    """Which columns, in which order: those of Spark's connector unless `columns` names fewer."""
    has_headers = parse_boolean(options, "includeHeaders", default=False)
    text = options.get("columns")
    if text is None:
        return (*COLUMNS, HEADERS) if has_headers else COLUMNS
    by_lower = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    names: list[str] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name = by_lower.get(word.lower())
        if name is None:
            raise OptionError(f"option columns has {word!r}, which is none of {', '.join(by_lower.values())}")
        if name in names:
            raise OptionError(f"option columns has {name} twice")
        names.append(name)
    if not names:
        raise OptionError(f"option columns is empty: name some of {', '.join(by_lower.values())}")
    return (*names, HEADERS) if has_headers and HEADERS not in names else tuple(names)


def parse_subscription(options: Options) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none of them"
        raise OptionError(f"exactly one of the options subscribe, subscribePattern and assign is needed: {found}")
    (name,) = given
    text = options[name.lower()].strip()
    if name == "assign":
        return Subscription(partitions=parse_partitions(text, name))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
        if not topics:
            raise OptionError("option subscribe names no topic: expected topicA,topicB")
        return Subscription(topics=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option subscribePattern is {text!r}, which is no regular expression: {error}") from None
    if not text:
        raise OptionError("option subscribePattern is empty: expected a regular expression, such as orders-.*")
    return Subscription(pattern=text)


def _parse_group_id(options: Options) -> str | None:
    group_id = options.get("groupid")
    if group_id is not None and not group_id.strip():
        raise OptionError("option groupId is empty: name the group that offsets are committed to, or leave it out")
    return group_id


def _parse_records_per_task(options: Options) -> int:
    """Whoever says how the records are to be divided does not want them together again."""
    given = parse_integer(options, "targetRecordsPerTask")
    if given is not None:
        return given
    return 0 if "minpartitions" in options or "maxrecordsperpartition" in options else _RECORDS_PER_TASK


def _parse_until(options: Options) -> dict[TopicPartition, int] | None:
    text = options.get("untiloffsets")
    return None if text is None else parse_partition_numbers(text, "untilOffsets", least=0)


def _parse_topic_ids(options: Options) -> dict[str, Uuid]:
    text = options.get("topicids")
    if text is None:
        return {}
    try:
        return {topic: parse_uuid(topic_id) for topic, topic_id in json.loads(text).items()}
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f'option topicIds is {text!r}: expected JSON such as {{"orders": "p7NdWLh9QZmS2yKc1mYc2Q"}}; '
            'option("table", "topics") tells ids'
        ) from None


def _check_kind_of_query(options: Options, *, is_stream: bool) -> None:
    if is_stream:
        if "table" in options:
            raise OptionError("a system table is not a stream: read it with spark.read instead of spark.readStream")
        for name in _BATCH_ONLY:
            if name.lower() in options:
                raise OptionError(
                    f"option {name} is for batch queries: a stream has no end (see trigger(availableNow))"
                )
        return
    for name in _STREAM_ONLY:
        if name.lower() in options:
            warnings.warn(f"option {name} is for streams, and is ignored in a batch query", stacklevel=3)
