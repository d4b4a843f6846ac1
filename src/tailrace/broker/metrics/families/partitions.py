"""Series of each partition, as many as metrics.partitions.max; those that this broker leads come first."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import gauge, own_counter, own_gauge
from tailrace.model.metrics.text import Kind, Metric

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text
    from tailrace.replica.partition import Partition

_LOG = "kafka_log_log"
_PARTITION = "kafka_cluster_partition"
Value = Callable[["Partition"], int]

_OF_ALL: tuple[tuple[Metric, Value], ...] = (
    (gauge(_LOG, "Size", "Bytes of the log."), lambda each: each.log.size_bytes),
    (gauge(_LOG, "LogStartOffset", "The first offset."), lambda each: each.log_start_offset),
    (gauge(_LOG, "LogEndOffset", "The next offset."), lambda each: each.log.log_end_offset),
    (gauge(_LOG, "NumLogSegments", "Segments of the log."), lambda each: len(each.log.segments)),
    (own_gauge("partition_high_watermark", "What consumers may read ends here."), lambda each: each.high_watermark),
    (own_gauge("partition_is_leader", "1 where this broker leads."), lambda each: int(each.is_leader)),
    (own_counter("partition_messages_in", "Records appended by this leader."), lambda each: each.traffic.messages_in),
    (
        own_counter("partition_bytes_in", "Bytes of record batches appended by this leader."),
        lambda each: each.traffic.bytes_in,
    ),
    (
        own_counter("partition_bytes_out", "Bytes of record batches given to consumers."),
        lambda each: each.traffic.bytes_out,
    ),
    (
        own_counter("partition_replication_bytes_in", "Bytes that this follower has got from its leader."),
        lambda each: each.traffic.replication_bytes_in,
    ),
    (
        own_counter("partition_replication_bytes_out", "Bytes given to followers."),
        lambda each: each.traffic.replication_bytes_out,
    ),
)
# As kafka_exporter names them.
_EXPORTED: tuple[tuple[Metric, Value], ...] = (
    (
        Metric("kafka_topic_partition_current_offset", Kind.GAUGE, "The next offset that consumers may read."),
        lambda each: each.high_watermark,
    ),
    (
        Metric("kafka_topic_partition_oldest_offset", Kind.GAUGE, "The first offset."),
        lambda each: each.log_start_offset,
    ),
)
_OF_LED: tuple[tuple[Metric, Value], ...] = (
    (gauge(_PARTITION, "ReplicasCount", "Replicas."), lambda each: len(each.replicas)),
    (gauge(_PARTITION, "InSyncReplicasCount", "Replicas in sync."), lambda each: len(each.isr)),
    (
        gauge(_PARTITION, "UnderReplicated", "1 if fewer are in sync than there should be."),
        lambda each: int(len(each.isr) < len(each.replicas)),
    ),
    (
        gauge(_PARTITION, "UnderMinIsr", "1 if fewer are in sync than min.insync.replicas."),
        lambda each: int(each.is_under_min_isr),
    ),
    (
        gauge(_PARTITION, "AtMinIsr", "1 if just min.insync.replicas are in sync."),
        lambda each: int(len(each.isr) == each.min_insync_replicas),
    ),
    (
        gauge(_PARTITION, "LastStableOffsetLag", "Records behind the first open transaction."),
        lambda each: each.high_watermark - each.last_stable_offset,
    ),
    *_EXPORTED,
)
_LEFT_OUT = own_gauge(
    "metrics_partitions_left_out", "Partitions beyond metrics.partitions.max, which have no series of their own."
)
_CHUNK = 32
# Is it led? A tenth of a microsecond each.
_CHOSEN_AT_ONCE = 512


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    bound = watched.services.config.metrics_partitions_max
    yield text.write(_LEFT_OUT, [("", max(0, len(watched.services.replicas.partitions) - bound))])
    shown: list[Partition] = []
    led_count = yield from _choose(watched, bound, shown)
    for metric, value in _OF_ALL:
        yield from _series(text, metric, value, shown, len(shown))
    for metric, value in _OF_LED:
        yield from _series(text, metric, value, shown, led_count)


def _choose(watched: Watched, bound: int, shown: list[Partition]) -> Generator[str, None, int]:
    """Those with series, the led ones first, and how many these are. One list is all that stays of it: a page that
    nobody reads keeps what it has begun with, and the garbage collector walks through all that is kept."""
    everything = list(watched.services.replicas.partitions.values())
    others: list[Partition] = []
    for start in range(0, len(everything), _CHOSEN_AT_ONCE):
        for each in everything[start : start + _CHOSEN_AT_ONCE]:
            (shown if each.is_leader else others).append(each)
        yield ""
    del shown[bound:]
    led_count = len(shown)
    shown += others[: bound - led_count]
    return led_count


def _series(text: Text, metric: Metric, value: Value, partitions: list[Partition], count: int) -> Iterator[str]:
    """Of the first so many."""
    if not count:
        return
    head, name = text.begin(metric)
    yield head
    for start in range(0, count, _CHUNK):
        yield "".join(
            [
                f'{name}{{topic="{topic}",partition="{index}"}} {value(each)}\n'
                for each in partitions[start : min(start + _CHUNK, count)]
                for topic, index in (each.topic_partition,)
            ]
        )
