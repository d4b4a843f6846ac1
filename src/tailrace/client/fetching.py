"""Fetch, as every reader of partitions needs it: the question, and what of the answer may be seen.

Owns how a reader is set up (`ConsumerOptions`), the request, the errors of one partition in words, and which batches of
an answer hold records for the reader: those that reach beyond its position, intact, no control batches, and nothing of
an aborted transaction where only the committed is wanted. Keeps no positions and never tries again: `consumer` and
`ranges` do that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, TopicPartition, Uuid
from tailrace.model.ports import FileSlice
from tailrace.model.settings import LONG_MAX
from tailrace.wire.apis.data import FetchRequest, FetchResponse
from tailrace.wire.markers import read_marker
from tailrace.wire.records import BatchHeader, crc_is_valid, iterate_headers

# From version 13 on topics are named by id only, so that another topic of the same name is never read.
_BY_NAME_VERSION_MAX, _BY_ID_VERSION = 12, 13


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ConsumerOptions(NamedTuple):
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    # A batch that decompresses to more is refused.
    decompressed_bytes_max: int = 256 * 1024 * 1024
    # How long a lost leader or connection may take to come back.
    retry_timeout_ms: int = 30_000


class FetchPosition(NamedTuple):
    offset: int
    # A broker that led in an earlier epoch may be a follower now, and lack what was read (KIP-320).
    leader_epoch: int


# (first offset, producer id)
AbortedTransaction = tuple[int, int]


async def fetch_once(
    cluster: Cluster,
    node_id: NodeId,
    positions: Mapping[TopicPartition, FetchPosition],
    options: ConsumerOptions,
    topic_ids: Mapping[str, Uuid] | None = None,
) -> FetchResponse:
    """Asks one broker once. Raises KafkaError for what the whole answer says. With the ids of all topics they are asked
    for by id, if the broker can; the answer has their names in any case."""
    topics: dict[str, list[FetchRequest.FetchPartition]] = {}
    for partition, position in positions.items():
        topics.setdefault(partition.topic, []).append(
            FetchRequest.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=options.partition_max_bytes,
            )
        )
    request = FetchRequest(
        isolation_level=options.isolation,
        max_wait_ms=options.fetch_max_wait_ms,
        min_bytes=options.fetch_min_bytes,
        max_bytes=options.fetch_max_bytes,
        topics=[FetchRequest.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
    )
    connection = await cluster.connection_to(node_id)
    patience_ms = options.fetch_max_wait_ms + cluster.limits.request_timeout_ms
    ids = topic_ids or {}
    is_by_id = ids.keys() >= topics.keys() and connection.version_of(FetchRequest, _BY_ID_VERSION) == _BY_ID_VERSION
    for topic in request.topics if is_by_id else ():
        topic.topic_id, topic.topic = ids[topic.topic], ""
    version_max = _BY_ID_VERSION if is_by_id else _BY_NAME_VERSION_MAX
    answer = await connection.call(request, FetchResponse, version_max=version_max, timeout_ms=patience_ms)
    if answer.error_code:
        raise KafkaError(error_code(answer.error_code), "the broker refuses to be read from")
    names = {bytes(ids[name]): name for name in topics} if is_by_id else {}
    for found in answer.responses if is_by_id else ():
        found.topic = names.get(bytes(found.topic_id), "")
    return answer


def check_partition(data: FetchResponse.PartitionData, partition: TopicPartition, offset: int) -> None:
    """Raises the KafkaError with which the broker answers for this partition, if any."""
    code = error_code(data.error_code)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        raise KafkaError(code, f"offset {offset} is not in {partition} (any more): read from its beginning or its end")
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{partition} cannot be read at offset {offset}")


def records_of(data: FetchResponse.PartitionData) -> memoryview:
    assert not isinstance(data.records, FileSlice), "only brokers send files"
    return memoryview(data.records or b"")


def aborted_of(data: FetchResponse.PartitionData) -> tuple[AbortedTransaction, ...]:
    """In the order in which they begin. Brokers name them only to those who read the committed alone."""
    return tuple(sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()))


def iterate_batches(
    records: memoryview,
    partition: TopicPartition,
    position: int,
    aborted: Sequence[AbortedTransaction],
    *,
    high_watermark: int = LONG_MAX,
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """The batches of an answer that reach beyond `position`, each checked by its CRC: where it starts, its header, and
    whether its records are for the reader. The first may begin before the position, as a fetch gives whole ones; a
    last one that is cut short is left out. No CRC covers the offset: one that is not below the high watermark is wrong,
    and whoever believed it would pass over records."""
    covered = _Aborted(aborted) if aborted else None
    for start, header in iterate_headers(records, allow_partial=True):
        if header.last_offset < position:
            continue
        if header.last_offset >= high_watermark or not crc_is_valid(records, start, header):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} of {partition} is damaged"
            )
        is_aborted = covered is not None and covered.covers(header, records[start : start + header.size_bytes])
        yield start, header, not (is_aborted or header.is_control)


class _Aborted:
    """Which batches of an answer belong to aborted transactions, asked in the order of their offsets. A transaction
    reaches from its first offset to the marker of its producer."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(transactions)
        self._open: set[int] = set()

    def covers(self, header: BatchHeader, batch: memoryview) -> bool:
        while self._coming and self._coming[0][0] <= header.last_offset:
            self._open.add(self._coming.popleft()[1])
        if header.is_control:
            marker = read_marker(header, batch)
            if marker is not None and not marker.is_commit:
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open
