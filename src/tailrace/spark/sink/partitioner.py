"""Which partition each row goes to, as Kafka's own producer decides it, for a whole column at once.

A row that names its partition goes there. A key decides by its hash (murmur2), so that equal keys meet in one
partition, whoever writes them. Rows without a key fill a batch for one partition, then one for the next (KIP-794).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tailrace.client.metadata import TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Random
from tailrace.spark.arrow.encode import Records
from tailrace.spark.arrow.murmur2 import murmur2_of

# In the column of partitions: the row names none.
_NO_PARTITION = -1
# Kafka's producer makes a hash a number of its own kind by dropping the sign.
_POSITIVE = np.uint32(0x7FFFFFFF)


class Partitioner:
    """Rows without a key change the partition after `run_bytes`: what fits into a batch."""

    def __init__(self, run_bytes: int, random: Random) -> None:
        self._run_bytes = run_bytes
        self._random = random

    def choose(
        self,
        records: Records,
        partition: pa.Int32Array | None,
        topics: Sequence[TopicMetadata],
        topic_of_row: NDArray[np.int64],
    ) -> tuple[list[TopicPartition], NDArray[np.intp]]:
        """All partitions of these topics, and of each row which one of them it goes to. Raises KafkaError if a row
        names a partition that is not there."""
        partitions: list[TopicPartition] = []
        destinations = np.empty(len(records), np.intp)
        sizes = records.sizes_max()
        for index, topic in enumerate(topics):
            here = np.flatnonzero(topic_of_row == index)
            rows = pa.array(here)
            destinations[here] = len(partitions) + self._choose_of_topic(
                topic,
                None if records.key is None else records.key.take(rows),
                None if partition is None else partition.take(rows),
                sizes[here],
            )
            partitions += [TopicPartition(topic.name, PartitionIndex(each)) for each in range(len(topic.partitions))]
        return partitions, destinations

    def _choose_of_topic(
        self,
        topic: TopicMetadata,
        key: pa.BinaryArray | None,
        partition: pa.Int32Array | None,
        sizes: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        count = len(topic.partitions)
        chosen = np.full(len(sizes), _NO_PARTITION, np.int64)
        is_open = np.ones(len(sizes), bool)
        if partition is not None:
            is_open = partition.is_null().to_numpy(zero_copy_only=False)
            chosen = partition.fill_null(_NO_PARTITION).to_numpy().astype(np.int64)
            _check_range(topic, chosen[~is_open], count)
        if key is not None:
            has_key = is_open & key.is_valid().to_numpy(zero_copy_only=False)
            chosen[has_key] = (murmur2_of(key.filter(pa.array(has_key))) & _POSITIVE) % np.uint32(count)
            is_open = is_open & ~has_key
        if is_open.any():
            available = [index for index, found in topic.partitions.items() if found.leader_id >= 0]
            chosen[is_open] = self._fill_in_turn(available or list(topic.partitions), sizes[is_open])
        return chosen

    def _fill_in_turn(self, available: Sequence[int], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Runs of rows that fill a batch each. A random partition gets the first, so that all get the same share."""
        ends = np.cumsum(sizes)
        turn = self._random.randrange(len(available))
        chosen = np.empty(len(sizes), np.int64)
        start = 0
        while start < len(sizes):
            full = int(np.searchsorted(ends, ends[start] - sizes[start] + self._run_bytes, side="right"))
            end = max(full, start + 1)
            chosen[start:end] = available[turn % len(available)]
            turn += 1
            start = end
        return chosen


def _check_range(topic: TopicMetadata, named: NDArray[np.int64], count: int) -> None:
    wrong = named[(named < 0) | (named >= count)]
    if len(wrong):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"column partition names {wrong[0]}, and topic {topic.name} has partitions 0 to {count - 1}: correct the "
            "column, or leave it null and the key decides",
        )
