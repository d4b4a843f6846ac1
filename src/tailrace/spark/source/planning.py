"""From options, or from the offsets of a micro-batch, to the splits that tasks read.

All of these raise OptionError, DataLossError and KafkaError.
"""

from __future__ import annotations

from tailrace.client.offsets import NO_SUCH_RECORD
from tailrace.model.ids import TopicPartition
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.filters import PushedFilters
from tailrace.spark.source.lookup import OffsetLookup
from tailrace.spark.source.loss import LossReport, clip_to_log, report_late_start, report_missing
from tailrace.spark.source.offsets import OffsetRange, Offsets
from tailrace.spark.source.splits import decide_splits

# Beyond every offset: nothing is read.
_NOWHERE = 2**63 - 1


async def plan_batch(lookup: OffsetLookup, options: ReadOptions, filters: PushedFilters) -> list[OffsetRange]:
    """What the tasks of a batch query read."""
    partitions = [partition for partition in await lookup.partitions() if filters.keeps(partition)]
    # The log moves on while it is asked about: its beginning is asked for before the start and its end after the end,
    # so that "earliest" and "latest" always lie within.
    log_starts = await lookup.earliest(partitions)
    start = await lookup.resolve(options.start, is_start=True)
    end = await lookup.resolve(options.end, is_start=False)
    log_ends = await lookup.latest(end)
    young = await _find_young(lookup, partitions, filters)
    ranges = [
        filters.clip(OffsetRange(partition, start[partition], end[partition]))
        for partition in partitions
        if partition in start and partition in end
    ]
    clipped = clip_to_log(
        {each.partition: each.start for each in ranges},
        {each.partition: each.end for each in ranges},
        log_starts=log_starts,
        log_ends=log_ends,
        losses=LossReport(fail_on_data_loss=options.fail_on_data_loss),
    )
    wanted = [
        OffsetRange(partition, max(begin, young.get(partition, begin)), stop) for partition, begin, stop in clipped
    ]
    return _split(wanted, options)


async def plan_micro_batch(
    lookup: OffsetLookup, options: ReadOptions, start: Offsets, end: Offsets
) -> list[OffsetRange]:
    """What the tasks of one micro-batch read. A partition without a start is new, and read from its beginning."""
    losses = LossReport(fail_on_data_loss=options.fail_on_data_loss)
    report_missing(start, end, losses)
    log_ends = await lookup.latest(end)
    log_starts = await lookup.earliest(end.keys() & log_ends.keys())
    known_topics = {partition.topic for partition in start}
    added = {partition: first for partition, first in log_starts.items() if partition not in start}
    report_late_start({new: first for new, first in added.items() if new.topic in known_topics}, losses)
    begin = added | dict(start)
    return _split(list(clip_to_log(begin, end, log_starts=log_starts, log_ends=log_ends, losses=losses)), options)


async def _find_young(
    lookup: OffsetLookup, partitions: list[TopicPartition], filters: PushedFilters
) -> dict[TopicPartition, int]:
    """The first offsets that a filter on the timestamp can want. Times may go up and down within a partition, so there
    is no such last one."""
    since_us = filters.timestamps_us.start
    if since_us < 0:
        return {}  # Every record: those that have no time are at -1 ms, and brokers cannot be asked for such times.
    since_ms = -(-int(since_us) // 1000)
    found = await lookup.at(dict.fromkeys(partitions, since_ms))
    return {partition: _NOWHERE if offset == NO_SUCH_RECORD else offset for partition, offset in found.items()}


def _split(ranges: list[OffsetRange], options: ReadOptions) -> list[OffsetRange]:
    return decide_splits(ranges, min_partitions=options.min_partitions, records_max=options.records_per_partition_max)
