"""Offsets of many partitions: ranges of them, and their form in a checkpoint.

The form is that of Spark's own Kafka source, {"topic": {"0": 23}}, so that a query can keep its checkpoint when it
changes its format. Spark compares offsets as text: equal ones must have equal text, hence the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.options.errors import OptionError

Offsets = Mapping[TopicPartition, int]


class OffsetRange(NamedTuple):
    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records at most: compaction and the markers of transactions leave gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition} from offset {self.start} to {self.end}"


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def from_json(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Raises OptionError if it is not ours: whoever has a checkpoint can point a query at the wrong one."""
    try:
        return {
            TopicPartition(topic, PartitionIndex(int(index))): int(offset)
            for topic, offsets in topics.items()
            for index, offset in offsets.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f"the checkpoint holds {topics}, which are not the offsets of a topic: it belongs to a query with another "
            "source; give this query a checkpointLocation of its own"
        ) from None
