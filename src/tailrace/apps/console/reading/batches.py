"""What the batches around shown records say: who wrote them, how, and what became of their transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tailrace.client.fetching import ConsumerOptions, Isolation, iterate_batches
from tailrace.client.metadata import Cluster
from tailrace.client.offsets import LATEST, list_offsets
from tailrace.client.ranges import RangeReader
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import BatchHeader

# Records that a filter has chosen may lie far apart: what lies between them is read too, up to here.
_OFFSETS_MAX = 20_000
_BYTES_MAX = 4 << 20
_TIMEOUT_MS = 5_000


class Facts(NamedTuple):
    """`transaction` is committed, aborted or open; empty if the batch is of none."""

    first_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    codec: str
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    transaction: str


async def describe_batches(
    cluster: Cluster, ranges: Mapping[TopicPartition, range]
) -> dict[TopicPartition, list[Facts]]:
    """Of the batches in these ranges, as far as the bounds let it look. Raises KafkaError."""
    wanted = {partition: each for partition, each in ranges.items() if 0 < len(each) <= _OFFSETS_MAX}
    if not wanted:
        return {}
    stable = await list_offsets(
        cluster, dict.fromkeys(wanted, LATEST), isolation=Isolation.READ_COMMITTED, timeout_ms=_TIMEOUT_MS
    )
    found = await asyncio.gather(*(_describe(cluster, each, wanted[each], stable[each]) for each in wanted))
    return dict(zip(wanted, found, strict=True))


def facts_of(facts: Iterable[Facts], offset: int) -> Facts | None:
    return next((each for each in facts if each.first_offset <= offset <= each.last_offset), None)


async def _describe(cluster: Cluster, partition: TopicPartition, wanted: range, stable: int) -> list[Facts]:
    """Brokers name aborted transactions to those alone who read what is decided: what lies behind is read apart."""
    decided = await _read(cluster, partition, range(wanted.start, min(stable, wanted.stop)), Isolation.READ_COMMITTED)
    start = max(stable, wanted.start)
    return decided + await _read(cluster, partition, range(start, wanted.stop), Isolation.READ_UNCOMMITTED)


async def _read(cluster: Cluster, partition: TopicPartition, wanted: range, isolation: Isolation) -> list[Facts]:
    options = ConsumerOptions(isolation=isolation, fetch_max_wait_ms=0, retry_timeout_ms=_TIMEOUT_MS)
    reader = RangeReader(cluster, partition, wanted.start, wanted.stop, options)
    facts: list[Facts] = []
    size_bytes = 0
    try:
        while size_bytes < _BYTES_MAX and (fetched := await reader.next()) is not None:
            size_bytes += len(fetched.records)
            batches = iterate_batches(fetched.records, partition, fetched.position, fetched.aborted)
            for _, header, is_visible in batches:
                if not header.is_control:
                    state = "open" if isolation is Isolation.READ_UNCOMMITTED else "committed"
                    facts.append(_facts(header, state if is_visible else "aborted"))
    except KafkaError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:  # Retention came between: there is nothing to tell.
            raise
    finally:
        await reader.close()
    return facts


def _facts(header: BatchHeader, state: str) -> Facts:
    return Facts(
        first_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        size_bytes=header.size_bytes,
        codec=header.compression.name.lower(),
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        first_sequence=header.base_sequence,
        transaction=state if header.is_transactional else "",
    )
