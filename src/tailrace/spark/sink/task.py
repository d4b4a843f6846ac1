"""What a task of a query does with its rows: gathers, encodes, sends, and tells what it has written.

Rows are gathered until they make batches worth sending, also where Spark hands them over in small pieces, and a
piece that is too large is cut: a quarter of `buffer_bytes` is encoded and sent at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tailrace.client.lanes import Author
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.arrow.encode import EncodedBatch, Records, encode
from tailrace.spark.blocking import BlockingCluster, kept_cluster
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.sink.author import WorkerAuthor
from tailrace.spark.sink.columns import SINK_COLUMNS
from tailrace.spark.sink.partitioner import Partitioner
from tailrace.spark.sink.sender import Sender
from tailrace.spark.sink.written import Written
from tailrace.wire.records import HEADER_SIZE

# A broker that creates topics on demand answers at once that one is not there yet, and has it soon after.
_CREATION_TIMEOUT_MS = 3000
_GATHERED_SHARE = 4


def write_idempotently(rows: Iterable[pa.RecordBatch], options: WriteOptions) -> Written:
    """As `write_rows`, by an idempotent producer."""
    with kept_cluster(options.kafka) as blocking:
        return write_rows(rows, blocking, options, WorkerAuthor(blocking.cluster, options.kafka.producer))


def write_rows(
    rows: Iterable[pa.RecordBatch], blocking: BlockingCluster, options: WriteOptions, author: Author
) -> Written:
    """Raises KafkaError if not everything could be written and acknowledged. Without rows nobody is asked anything."""
    producer = options.kafka.producer
    sender = Sender(blocking.cluster, producer, author)
    record_count = size_bytes = 0
    if options.encoders:
        from tailrace.spark.values.registry.writing import encode_columns

        rows = encode_columns(rows, options.encoders)
    for piece in _gather(rows, max(1, producer.buffer_bytes // _GATHERED_SHARE)):
        batches = list(_encode_rows(piece, blocking, options))
        blocking.run(sender.send(batches))
        record_count += len(piece)
        size_bytes += sum(len(each.batch) for each in batches)
    return Written(record_count, size_bytes, sender.partitions)


def _gather(rows: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of about `bytes_max`, with no more than the columns that are written; none is empty."""
    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for received in rows:
        batch = received.select([name for name in SINK_COLUMNS if name in received.schema.names])
        cuts = np.linspace(0, len(batch), 1 + max(1, -(-batch.nbytes // bytes_max))).astype(int)
        for start, end in pairwise(cuts.tolist()):
            part = batch.slice(start, end - start)
            gathered.append(part)
            gathered_bytes += part.nbytes
            if gathered_bytes >= bytes_max:
                yield from _combined(gathered)
                gathered, gathered_bytes = [], 0
    yield from _combined(gathered)


def _combined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return [batch for batch in batches if len(batch)]
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []


def _encode_rows(rows: pa.RecordBatch, blocking: BlockingCluster, options: WriteOptions) -> Iterator[EncodedBatch]:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    records = Records.of(key=columns.get("key"), value=columns["value"], headers=columns.get("headers"))
    request_bytes_max = options.kafka.request_bytes_max
    _check_sizes(records, request_bytes_max)
    producer = options.kafka.producer
    producer = producer._replace(batch_bytes=min(producer.batch_bytes, request_bytes_max))
    names, of_row = _topics_of(columns.get("topic"), options.topic, len(rows))
    topics = blocking.run(_describe(blocking.cluster, names, producer.delivery_timeout_ms))
    ports = blocking.cluster.ports
    partitioner = Partitioner(producer.batch_bytes - HEADER_SIZE, ports.random)
    partitions, destinations = partitioner.choose(records, columns.get("partition"), topics, of_row)
    return encode(records, destinations, partitions, producer, timestamp=ports.clock.wall_ms())


def _check_sizes(records: Records, bytes_max: int) -> None:
    sizes = records.sizes_max() + HEADER_SIZE
    largest = int(np.argmax(sizes))
    if sizes[largest] > bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {sizes[largest]} bytes (its value has {records.value_lengths[largest]}) is larger than "
            f"kafka.max.request.size, which is {bytes_max}: raise that option, and the topic's max.message.bytes too",
        )


def _topics_of(column: pa.Array | None, option: str | None, count: int) -> tuple[list[str], NDArray[np.int64]]:
    """The names of topics, and of each row which one of them it is."""
    if option is not None:
        return [option], np.zeros(count, np.int64)
    assert column is not None, "check_columns asks for either"
    if column.null_count:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "column topic is null in some rows, which then have nowhere to go: filter them out, or set the option "
            "topic, which takes the place of the column",
        )
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


async def _describe(cluster: Cluster, names: Sequence[str], timeout_ms: int) -> list[TopicMetadata]:
    """As Kafka's producer does, it lets the broker create what is missing, if the broker is set up to."""
    unknown = [name for name in names if cluster.known_topic(name) is None]
    if unknown:
        await cluster.with_retries(cluster.any_connection, timeout_ms=timeout_ms)
        await cluster.with_retries(
            lambda: cluster.refresh(unknown, allow_auto_creation=True), timeout_ms=_CREATION_TIMEOUT_MS
        )
    return [await cluster.topic(name) for name in names]
