"""What went in and out: of all topics together, and of each, as many as metrics.topics.max.

A topic's series are sums over the replicas that this broker has of it. They begin anew when the last of them leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.broker.metrics.families.meters import meter, own_gauge
from tailrace.model.metrics.traffic import Traffic

if TYPE_CHECKING:
    from tailrace.broker.metrics.watched import Watched
    from tailrace.model.metrics.text import Text

_MBEAN = "kafka_server_brokertopicmetrics"
# Kafka tells the replication of all topics together alone.
_METERS = (
    (meter(_MBEAN, "MessagesIn", "Records appended by this leader."), "messages_in", True),
    (meter(_MBEAN, "BytesIn", "Bytes of record batches appended by this leader."), "bytes_in", True),
    (meter(_MBEAN, "BytesOut", "Bytes of record batches given to consumers."), "bytes_out", True),
    (meter(_MBEAN, "BytesRejected", "Bytes of record batches that were too large."), "rejected_bytes", True),
    (
        meter(_MBEAN, "TotalProduceRequests", "Produce requests, once for each partition that they name."),
        "produce_requests",
        True,
    ),
    (
        meter(_MBEAN, "TotalFetchRequests", "Fetch requests, once for each partition that they read."),
        "fetch_requests",
        True,
    ),
    (
        meter(_MBEAN, "FailedProduceRequests", "Those of produce that failed for no reason that clients expect."),
        "failed_produce_requests",
        True,
    ),
    (
        meter(_MBEAN, "FailedFetchRequests", "Those of fetch that failed for no reason that clients expect."),
        "failed_fetch_requests",
        True,
    ),
    (
        meter(_MBEAN, "ReplicationBytesIn", "Bytes that followers here have got from leaders."),
        "replication_bytes_in",
        False,
    ),
    (meter(_MBEAN, "ReplicationBytesOut", "Bytes given to followers."), "replication_bytes_out", False),
)
_LEFT_OUT = own_gauge("metrics_topics_left_out", "Topics beyond metrics.topics.max, which have no series of their own.")
_CHUNK = 32


def pieces(watched: Watched, text: Text) -> Iterator[str]:
    replicas = watched.services.replicas
    everything = Traffic()
    everything.add(replicas.retired)
    by_topic: dict[str, Traffic] = {}
    for number, partition in enumerate(list(replicas.partitions.values())):
        by_topic.setdefault(partition.topic_partition.topic, Traffic()).add(partition.traffic)
        if number % _CHUNK == 0:
            yield ""
    for number, traffic in enumerate(by_topic.values()):
        everything.add(traffic)
        if number % _CHUNK == 0:
            yield ""
    shown = list(islice(sorted(by_topic.items()), watched.services.config.metrics_topics_max))
    for metric, field, is_by_topic in _METERS:
        head, name = text.begin(metric)
        yield f"{head}{name} {getattr(everything, field)}\n"
        if is_by_topic:
            for start in range(0, len(shown), _CHUNK):
                yield "".join(
                    [
                        f'{name}{{topic="{topic}"}} {getattr(traffic, field)}\n'
                        for topic, traffic in shown[start : start + _CHUNK]
                    ]
                )
    yield text.write(_LEFT_OUT, [("", len(by_topic) - len(shown))])
