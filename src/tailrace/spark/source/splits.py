"""How a batch is divided among tasks: pure.

Without options a partition is read by one task, as in Spark's connector: its records stay in order.
`maxRecordsPerPartition` bounds what a task reads. `minPartitions` says into how many equal shares the records of the
batch are to be divided: no task gets more than a share, so that one hot partition does not hold the job.

A task costs more than the reading of a few records. So small ranges share one, up to `targetRecordsPerTask`, each range
as a whole and one after the other. That counts records and not bytes, of which brokers tell nothing without an answer
that changes from one planning of a micro-batch to the next: equal offsets have to give equal tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tailrace.spark.source.offsets import OffsetRange

if TYPE_CHECKING:
    from tailrace.spark.tier.planning import Split


def decide_splits(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None, records_max: int | None
) -> list[OffsetRange]:
    wanted = [each for each in ranges if each.size > 0]
    limits = [] if records_max is None else [records_max]
    if min_partitions is not None and wanted:
        limits.append(max(1, _ceil_div(sum(each.size for each in wanted), min_partitions)))
    if not limits:
        return wanted
    return [piece for each in wanted for piece in _divide(each, _ceil_div(each.size, min(limits)))]


def share_tasks(splits: Iterable[Split], records: int) -> list[tuple[Split, ...]]:
    """What each task reads, one after the other: ranges that lie beside each other as long as they have no more than so
    many records together. What is read from a bucket has tasks of its own, which are cut by its size."""
    tasks: list[tuple[Split, ...]] = []
    gathered = records + 1
    for split in splits:
        size = split.size if isinstance(split, OffsetRange) else records + 1
        if gathered + size <= records:
            tasks[-1] = (*tasks[-1], split)
            gathered += size
        else:
            tasks.append((split,))
            gathered = size
    return tasks


def _divide(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Sizes that differ by one at most."""
    for part in range(parts):
        start = whole.start + whole.size * part // parts
        end = whole.start + whole.size * (part + 1) // parts
        yield OffsetRange(whole.partition, start, end)


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
