"""From options, or from the offsets of a micro-batch, to the splits that tasks read.

All of these raise OptionError, DataLossError and KafkaError.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailrace.client.offsets import NO_SUCH_RECORD
from tailrace.model.ids import TopicPartition
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.filters import PushedFilters
from tailrace.spark.source.lookup import Lookup, OffsetLookup
from tailrace.spark.source.loss import LossReport, clip_to_log, report_late_start, report_missing
from tailrace.spark.source.offsets import OffsetRange, Offsets
from tailrace.spark.source.splits import decide_splits

if TYPE_CHECKING:
    from tailrace.spark.tier.planning import Split
    from tailrace.spark.tier.splitting import TierSplitting
    from tailrace.spark.tier.views import TierViews

# Beyond every offset: nothing is read.
_NOWHERE = 2**63 - 1


class Planning:
    """Who is asked where partitions begin and end, and what can be read from the tier. `close` it at the end."""

    def __init__(self, blocking: BlockingCluster, options: ReadOptions) -> None:
        self.lookup: Lookup = OffsetLookup(blocking.cluster, options)
        self.tier: TierSplitting | None = None
        self._views: TierViews | None = None
        if options.tier is not None:
            # Only who reads from a bucket pays for these imports.
            from tailrace.spark.tier.lookup import TierLookup
            from tailrace.spark.tier.splitting import TierSplitting
            from tailrace.spark.tier.views import TierViews

            self._views = TierViews(options.tier, options.subscription, options.kafka.isolation)
            self.tier = TierSplitting(self._views, blocking.cluster, options)
            if options.tier.is_alone:
                self.lookup = TierLookup(self._views, options)

    def close(self) -> None:
        if self._views is not None:
            self._views.close()


async def plan_batch(
    lookup: Lookup, options: ReadOptions, filters: PushedFilters, tier: TierSplitting | None = None
) -> list[Split]:
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
    return await _split(wanted, options, tier, since_us=filters.timestamps_us.start)


async def plan_micro_batch(
    lookup: Lookup, options: ReadOptions, start: Offsets, end: Offsets, tier: TierSplitting | None = None
) -> list[Split]:
    """What the tasks of one micro-batch read. A partition without a start is new, and read from its beginning."""
    losses = LossReport(fail_on_data_loss=options.fail_on_data_loss)
    report_missing(start, end, losses)
    log_ends = await lookup.latest(end)
    log_starts = await lookup.earliest(end.keys() & log_ends.keys())
    known_topics = {partition.topic for partition in start}
    added = {partition: first for partition, first in log_starts.items() if partition not in start}
    report_late_start({new: first for new, first in added.items() if new.topic in known_topics}, losses)
    begin = added | dict(start)
    wanted = list(clip_to_log(begin, end, log_starts=log_starts, log_ends=log_ends, losses=losses))
    return await _split(wanted, options, tier)


async def _find_young(
    lookup: Lookup, partitions: list[TopicPartition], filters: PushedFilters
) -> dict[TopicPartition, int]:
    """The first offsets that a filter on the timestamp can want. Times may go up and down within a partition, so there
    is no such last one."""
    since_us = filters.timestamps_us.start
    if since_us < 0:
        return {}  # Every record: those that have no time are at -1 ms, and brokers cannot be asked for such times.
    since_ms = -(-int(since_us) // 1000)
    found = await lookup.at(dict.fromkeys(partitions, since_ms))
    return {partition: _NOWHERE if offset == NO_SUCH_RECORD else offset for partition, offset in found.items()}


async def _split(
    ranges: list[OffsetRange], options: ReadOptions, tier: TierSplitting | None, *, since_us: float = -math.inf
) -> list[Split]:
    if tier is not None:
        return await tier.splits(ranges, since_us=since_us)
    most = options.records_per_partition_max
    return [*decide_splits(ranges, min_partitions=options.min_partitions, records_max=most)]
