"""Encoding alone, on one core: Arrow columns to batches ready to send, in records per second of processor time.

A case is what a task of Spark's sink does with the rows that it has gathered: choose partitions, encode, compress, and
seal each batch with its CRC.
"""

import random
import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.decode import event_text
from bench.measures import KILOBYTE, Figure, Plan
from tailrace.client.lanes import ProducerIdentity, ProducerOptions
from tailrace.client.metadata import PartitionMetadata, TopicMetadata
from tailrace.client.partitioner import partition_for_key
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, PartitionIndex, Uuid
from tailrace.real.random import RealRandom
from tailrace.spark.arrow.encode import Records, encode
from tailrace.spark.sink.partitioner import Partitioner
from tailrace.wire.records import HEADER_SIZE, Compression, build_batch

_GATHERED_BYTES = 8 * 1024 * KILOBYTE
_NOW_MS = 1_700_000_000_000
_IDENTITY = ProducerIdentity(1, 0)
_HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_HEADERS = [("trace", b"0af7651916cd43dd"), ("source", b"web")]


class _Case(NamedTuple):
    value_bytes: int = KILOBYTE
    compression: Compression = Compression.NONE
    has_key: bool = True
    has_headers: bool = False
    partitions: int = 8

    def __str__(self) -> str:
        size = f"{self.value_bytes // KILOBYTE} KB" if self.value_bytes >= KILOBYTE else f"{self.value_bytes} B"
        key = "keys" if self.has_key else "no keys"
        headers = ", 2 headers" if self.has_headers else ""
        return f"encode {size}, {self.compression.name.lower()}, {key}{headers}, to {self.partitions} partitions"


_CASES = tuple(
    case
    for size in (KILOBYTE, 100)
    for case in (
        _Case(size),
        _Case(size, Compression.LZ4),
        _Case(size, Compression.ZSTD),
        _Case(size, has_key=False),
        _Case(size, has_headers=True),
        _Case(size, partitions=1),
    )
)


class _Rows(NamedTuple):
    key: pa.BinaryArray | None
    value: pa.BinaryArray
    headers: pa.ListArray | None


def encoding(plan: Plan) -> list[Figure]:
    figures = []
    for case in _CASES:
        rows = _rows(case)
        rate = plan.median(lambda case=case, rows=rows: _encoded_per_second(case, rows, plan.seconds))
        singly = plan.median(lambda case=case, rows=rows: _built_per_second(case, rows, plan.seconds / 4))
        figures.append(Figure(str(case), rate, "records/s", None, singly, "records as Python objects"))
    return figures


def _rows(case: _Case) -> _Rows:
    source = random.Random(1)
    count = _GATHERED_BYTES // case.value_bytes
    keys = [b"user-%d" % source.randrange(100_000) for _ in range(count)]
    return _Rows(
        pa.array(keys, pa.binary()) if case.has_key else None,
        pa.array([event_text(source, case.value_bytes) for _ in range(count)], pa.binary()),
        pa.array([_HEADERS] * count, _HEADERS_TYPE) if case.has_headers else None,
    )


def _encoded_per_second(case: _Case, rows: _Rows, seconds: float) -> float:
    options = ProducerOptions(compression=case.compression)
    partitioner = Partitioner(options.batch_bytes - HEADER_SIZE, RealRandom())
    topic = _topic(case.partitions)
    only_topic = np.zeros(len(rows.value), np.int64)
    count = 0
    start = time.process_time()
    while (took := time.process_time() - start) < seconds:
        records = Records.of(key=rows.key, value=rows.value, headers=rows.headers)
        partitions, destinations = partitioner.choose(records, None, [topic], only_topic)
        for batch in encode(records, destinations, partitions, options, timestamp=_NOW_MS):
            batch.seal(_IDENTITY, 0, transactional=False)
            count += batch.record_count
    return count / took


def _built_per_second(case: _Case, rows: _Rows, seconds: float) -> float:
    """One by one, as a producer of single records does, from values that are Python's already."""
    values = rows.value.to_pylist()
    keys = [None] * len(values) if rows.key is None else rows.key.to_pylist()
    headers = _HEADERS if case.has_headers else ()
    batch_size = ProducerOptions().batch_bytes // case.value_bytes
    count = 0
    start = time.process_time()
    while (took := time.process_time() - start) < seconds:
        lanes: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(case.partitions)]
        for key, value in zip(keys, values, strict=True):
            lanes[partition_for_key(key, case.partitions) if key is not None else 0].append((key, value))
        for lane in lanes:
            for begin in range(0, len(lane), batch_size):
                some = [(at, _NOW_MS, *each, headers) for at, each in enumerate(lane[begin : begin + batch_size])]
                build_batch(some, compression=case.compression, producer_id=1, producer_epoch=0, base_sequence=0)
        count += len(values)
    return count / took


def _topic(partition_count: int) -> TopicMetadata:
    partitions = {
        index: PartitionMetadata(PartitionIndex(index), NodeId(1), 0, (1,), (1,), (), ErrorCode.NONE)
        for index in range(partition_count)
    }
    return TopicMetadata("orders", Uuid(bytes(16)), False, partitions)
