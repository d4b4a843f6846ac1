"""From ranges of offsets to the splits of a query with a tier: in the driver."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.client.fetching import Isolation
from tailrace.client.metadata import Cluster
from tailrace.model.errors import StorageError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import StoreError
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.loss import LossReport
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.tier.planning import Run, Split, decide_shares, divide, find_aborted
from tailrace.spark.tier.views import TierView, TierViews
from tailrace.tier.format.layout import AbortedEntry


class TierSplitting:
    """`cluster` is not asked by a query that reads the tier alone."""

    def __init__(self, views: TierViews, cluster: Cluster, options: ReadOptions) -> None:
        self._views = views
        self._cluster = cluster
        self._options = options

    async def splits(self, wanted: list[OffsetRange], *, since_us: float) -> list[Split]:
        """Raises OptionError, KafkaError or DataLossError."""
        try:
            return await self._splits(wanted, since_us=since_us)
        except (StoreError, StorageError) as error:
            raise OptionError(f"the tier cannot be read (option tier): {error}") from None

    async def _splits(self, wanted: list[OffsetRange], *, since_us: float) -> list[Split]:
        options = self._options
        views = await self._find_views(wanted)
        runs: list[Run] = []
        rest: list[OffsetRange] = []
        for each in wanted:
            view = views.get(each.partition)
            in_tier, elsewhere = divide(each, view, since_us=since_us) if view is not None else ([], [each])
            runs += in_tier
            rest += elsewhere
        if self._views.is_alone:
            losses = LossReport(fail_on_data_loss=options.fail_on_data_loss)
            for missing in rest:
                losses.add(
                    f"offsets {missing.start} to {missing.end - 1} of {missing.partition} are not in the tier, and "
                    "brokers=never"
                )
            rest = []
        shares = decide_shares(
            runs, rest, min_partitions=options.min_partitions, records_max=options.records_per_partition_max
        )
        aborted: Mapping[TopicPartition, list[AbortedEntry]] = {}
        if options.kafka.isolation is Isolation.READ_COMMITTED:
            aborted = await find_aborted(await self._views.bucket(), runs)
        return [
            run.split(share, aborted.get(share.partition, ())) if run is not None else share for share, run in shares
        ]

    async def _find_views(self, wanted: list[OffsetRange]) -> Mapping[TopicPartition, TierView]:
        if not self._views.is_alone:
            cluster, partitions = self._cluster, [each.partition for each in wanted]
            return await cluster.with_retries(
                lambda: self._views.current(cluster, partitions),
                timeout_ms=self._options.kafka.consumer.retry_timeout_ms,
            )
        views = await self._views.all()
        # A stream's checkpoint may be ahead of a listing that was kept.
        if any(each.partition not in views or views[each.partition].end_offset < each.end for each in wanted):
            views = await self._views.all(is_fresh=True)
        return views
