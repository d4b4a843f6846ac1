"""Where partitions begin and end, as the bucket alone says: for queries that ask no broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tailrace.client.offsets import EARLIEST, LATEST, NO_SUCH_RECORD
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.lookup import Lookup
from tailrace.spark.source.offsets import Offsets
from tailrace.spark.tier.views import TierView, TierViews
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.pieces import Pieces, ReadLimits
from tailrace.tier.reading.reader import TierReader


class TierLookup(Lookup):
    def __init__(self, views: TierViews, options: ReadOptions) -> None:
        super().__init__(options)
        self._views = views
        self._options = options

    async def partitions(self, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        views = await self._views.all()
        subscription = self._options.subscription
        self.known_topics.check({view.partition.topic: view.owner.topic_id for view in views.values()})
        topics = {view.partition.topic: view.partition_count for view in views.values()}
        wanted = {*subscription.topics, *(partition.topic for partition in subscription.partitions)}
        missing = sorted(wanted - topics.keys() - {partition.topic for partition in known})
        if missing:
            raise OptionError(
                f"the tier has nothing of a topic {missing[0]}: correct its name (see: tailrace tier list), or leave "
                "out brokers=never to have it read from them"
            )
        if subscription.partitions:
            return [each for each in subscription.partitions if each.topic in topics]
        # A partition of which nothing was ever copied may have no manifest.
        counts = topics.items()
        return sorted(TopicPartition(name, PartitionIndex(index)) for name, count in counts for index in range(count))

    async def latest(self, known: Offsets) -> dict[TopicPartition, int]:
        """A listing that is late may show less than what was read before: that is there all the same."""
        ends = await self.at(dict.fromkeys(await self.partitions(known), LATEST))
        return {partition: max(end, known.get(partition, 0)) for partition, end in ends.items()}

    async def at(self, timestamps: Offsets) -> dict[TopicPartition, int]:
        views = await self._views.all()
        found = await asyncio.gather(*(self._find(views.get(each), at) for each, at in timestamps.items()))
        return dict(zip(timestamps, found, strict=True))

    async def _find(self, view: TierView | None, timestamp: int) -> int:
        if timestamp == EARLIEST:
            return view.log_start_offset if view is not None else 0
        if timestamp == LATEST:
            return view.end_offset if view is not None else 0
        if view is None:
            return NO_SUCH_RECORD
        opened = await self._views.bucket()
        clock, background = opened.ports.clock, opened.ports.background
        nothing_kept = PieceCache(opened.ports.disk, background, "", 0)
        pieces = Pieces(
            opened.bucket.marker.cluster_id,
            opened.bucket.store,
            nothing_kept,
            background,
            throttle=Throttle(clock),
            limits=ReadLimits(ahead_bytes=0),
        )
        try:
            reader = TierReader(pieces, background, self._options.kafka.consumer.decompressed_bytes_max)
            found = await reader.find_time(view.owner, view.coverage, timestamp)
        finally:
            pieces.close()
        return found.offset if found is not None and found.offset < view.end_offset else NO_SUCH_RECORD
