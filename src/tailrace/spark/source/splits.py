"""How a batch is divided among tasks: pure.

Without options a partition is a task, as in Spark's connector: its records stay in order. `maxRecordsPerPartition`
bounds what a task reads. `minPartitions` says into how many equal shares the records of the batch are to be divided:
no task gets more than a share, so that one hot partition does not hold the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tailrace.spark.source.offsets import OffsetRange


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


def _divide(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """Sizes that differ by one at most."""
    for part in range(parts):
        start = whole.start + whole.size * part // parts
        end = whole.start + whole.size * (part + 1) // parts
        yield OffsetRange(whole.partition, start, end)


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
