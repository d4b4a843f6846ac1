"""Decoding alone, on one core: fetched batches to Arrow columns, in records per second of processor time."""

import json
import random
import time
from typing import NamedTuple

from bench.measures import KILOBYTE, Figure, Plan
from tailrace.client.ranges import FetchedBatches
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.arrow.decode import COLUMN_NAMES, Columns, Decoder
from tailrace.wire.records import Compression, Record, build_batch, iterate_headers, iterate_records

# Records of 1 KB, in all columns.
_GOAL = 1_500_000
_FETCH_BYTES = 4 * 1024 * 1024  # the default of the source
_BATCH_BYTES = 16 * 1024  # Kafka's default batch.size
_PARTITION = TopicPartition("orders", PartitionIndex(0))
_HEADERS = (("trace", b"0af7651916cd43dd"), ("source", b"web"))
_BASE_TIMESTAMP = 1_700_000_000_000
_DECOMPRESSED_BYTES_MAX = 1 << 28


class _Case(NamedTuple):
    value_bytes: int = KILOBYTE
    compression: Compression = Compression.NONE
    columns: tuple[str, ...] = COLUMN_NAMES
    headers: tuple[tuple[str, bytes], ...] = ()
    batch_bytes: int = _BATCH_BYTES

    def __str__(self) -> str:
        size = f"{self.value_bytes // KILOBYTE} KB" if self.value_bytes >= KILOBYTE else f"{self.value_bytes} B"
        columns = "all columns" if self.columns == COLUMN_NAMES else "+".join(self.columns)
        headers = f", {len(self.headers)} headers" if self.headers else ""
        large = f", batches of {self.batch_bytes // KILOBYTE} KB" if self.batch_bytes != _BATCH_BYTES else ""
        return f"decode {size}, {self.compression.name.lower()}, {columns}{headers}{large}"


_CASES = (
    *(
        _Case(size, codec)
        for size in (KILOBYTE, 100)
        for codec in (Compression.NONE, Compression.LZ4, Compression.ZSTD)
    ),
    *(_Case(size, headers=_HEADERS) for size in (KILOBYTE, 100)),
    *(_Case(size, columns=columns) for size in (KILOBYTE, 100) for columns in (("value",), ("offset",))),
    *(_Case(size, batch_bytes=1000 * KILOBYTE) for size in (KILOBYTE, 100)),
)


def decode(plan: Plan) -> list[Figure]:
    figures = []
    for case in _CASES:
        fetched = _fetched(case)
        rate = plan.median(lambda case=case, fetched=fetched: _decoded_per_second(case, fetched, plan.seconds))
        singly = plan.median(lambda fetched=fetched: _read_singly_per_second(fetched, plan.seconds / 4))
        goal = _GOAL if case == _Case() else None
        figures.append(Figure(str(case), rate, "records/s", goal, singly, "records as Python objects"))
    return figures


def _fetched(case: _Case) -> FetchedBatches:
    source = random.Random(1)
    records = b""
    offset = 0
    count = max(1, case.batch_bytes // case.value_bytes)
    while len(records) + case.batch_bytes < _FETCH_BYTES or not records:
        batch = [
            Record(
                at,
                _BASE_TIMESTAMP + at // 50,
                b"%08d" % source.randrange(10**8),
                event_text(source, case.value_bytes),
                case.headers,
            )
            for at in range(offset, offset + count)
        ]
        records += build_batch(batch, base_offset=offset, compression=case.compression)
        offset += count
    return FetchedBatches(0, offset, memoryview(records), (), 0, offset, offset)


def event_text(source: random.Random, size_bytes: int) -> bytes:
    """Text that compresses as events do, of a length that varies."""
    length = source.randint(size_bytes * 9 // 10, size_bytes * 11 // 10)
    event = {"id": source.getrandbits(48), "amount": source.random(), "items": [source.getrandbits(24)] * 3}
    text = json.dumps(event).encode()
    while len(text) < length:
        text += b'{"item": %d, "state": "shipped"}' % source.getrandbits(32)
    return text[:length]


def _decoded_per_second(case: _Case, fetched: FetchedBatches, seconds: float) -> float:
    decoder = Decoder(_PARTITION, 0, fetched.next_offset, Columns(case.columns))
    rows = 0
    start = time.process_time()
    while (took := time.process_time() - start) < seconds:
        rows += sum(batch.num_rows for batch in decoder.decode(fetched))
    return rows / took


def _read_singly_per_second(fetched: FetchedBatches, seconds: float) -> float:
    rows = 0
    start = time.process_time()
    while (took := time.process_time() - start) < seconds:
        for position, _header in iterate_headers(fetched.records):
            batch = fetched.records[position:]
            rows += sum(1 for _ in iterate_records(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX))
    return rows / took
