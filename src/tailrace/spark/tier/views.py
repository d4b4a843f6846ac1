"""What of each partition can be read from the bucket, as the newest manifests say.

Rules
- A view ends at the first gap, or before: at read_committed where a transaction begins whose end is not in the tier.
- Beside brokers a view counts only if the leader of now has written it. After an unclean election an older one may name
  records that the log has lost; brokers know.
- Views are some seconds old: what they lack is read from brokers, or not yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.client.fetching import Isolation
from tailrace.client.metadata import Cluster
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import StoreError
from tailrace.real.objects.bucket import OpenBucket, open_bucket
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.read import Subscription
from tailrace.spark.options.tier import TierOptions
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import Coverage, Piece
from tailrace.tier.metadata.manifest import Manifest
from tailrace.tier.reading.bucket import newest_of_each_name
from tailrace.tier.reading.segments import stable_end

logger = logging.getLogger(__name__)

# Manifests are some seconds old anyway; a micro-batch should not wait for a listing each time.
_KEPT_MS = 30_000


@dataclass(frozen=True, slots=True)
class TierView:
    partition: TopicPartition
    owner: TieredPartition
    leader_epoch: int  # Of who wrote the manifest.
    partition_count: int  # Of the topic.
    log_start_offset: int
    end_offset: int  # Nothing is read from here on, though pieces may reach beyond it.
    pieces: tuple[Piece, ...]  # Without a gap.

    @property
    def coverage(self) -> Coverage:
        return Coverage.of(self.pieces)


class TierViews:
    """Of one query, beside the driver. `close` it at the end."""

    def __init__(self, options: TierOptions, subscription: Subscription, isolation: Isolation) -> None:
        self._options = options
        self._subscription = subscription
        self._isolation = isolation
        self._opened: OpenBucket | None = None
        self._found: Mapping[TopicPartition, TierView] = {}
        self._found_at_ms = float("-inf")

    @property
    def is_alone(self) -> bool:
        return self._options.is_alone

    async def bucket(self) -> OpenBucket:
        if self._opened is None:
            self._opened = await open_store(self._options)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    async def all(self, *, is_fresh: bool = False) -> Mapping[TopicPartition, TierView]:
        """Raises OptionError, StoreError or StorageError."""
        opened = await self.bucket()
        now_ms = opened.ports.clock.monotonic_ms()
        if is_fresh or now_ms - self._found_at_ms > _KEPT_MS:
            manifests = [
                each
                for name in self._names()
                for each in newest_of_each_name(await opened.bucket.manifests(name))
                if self._subscription.includes(each.topic)
            ]
            views = await asyncio.gather(*(make_view(opened, each, self._isolation) for each in manifests))
            self._found = {view.partition: view for view in views}
            self._found_at_ms = now_ms
        return self._found

    async def current(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TierView]:
        """Those that the leaders of now have written. Raises KafkaError too."""
        views = await self.all()
        current = {}
        for partition in partitions:
            view = views.get(partition)
            if view is not None and await _is_current(cluster, view):
                current[partition] = view
            elif view is not None:
                logger.warning("%s has a new leader, and is read from it: the tier does not know it yet", partition)
        return current

    def _names(self) -> list[str]:
        """Topics to ask for one by one; with a pattern all at once."""
        subscription = self._subscription
        if subscription.pattern is not None:
            return [""]
        return sorted({*subscription.topics, *(partition.topic for partition in subscription.partitions)})


async def open_store(options: TierOptions) -> OpenBucket:
    try:
        return await open_bucket(options.url, dict(options.settings))
    except KafkaError as error:
        raise OptionError(f"option tier cannot be used: {error.message}") from None
    except StoreError as error:
        raise OptionError(f"option tier is {options.url}, and cannot be read: {error}") from None


async def make_view(opened: OpenBucket, manifest: Manifest, isolation: Isolation) -> TierView:
    """Raises StoreError or StorageError."""
    pieces: list[Piece] = []
    for piece in manifest.coverage().pieces:
        if pieces and piece.start_offset > pieces[-1].end_offset:
            break
        pieces.append(piece)
    end = pieces[-1].end_offset if pieces else manifest.log_start_offset
    if isolation is Isolation.READ_COMMITTED and pieces:
        end = await _stable_end(opened, manifest, pieces)
    return TierView(
        partition=TopicPartition(manifest.topic, manifest.owner.partition),
        owner=manifest.owner,
        leader_epoch=manifest.version.leader_epoch,
        partition_count=manifest.partition_count,
        log_start_offset=manifest.log_start_offset,
        end_offset=end,
        pieces=tuple(pieces),
    )


async def _stable_end(opened: OpenBucket, manifest: Manifest, pieces: list[Piece]) -> int:
    for piece in reversed(pieces):
        footer = await opened.segments.footer(manifest.owner, piece.segment)
        end = stable_end(footer, piece)
        if end is not None:
            return max(end, pieces[0].start_offset)
    return pieces[0].start_offset


async def _is_current(cluster: Cluster, view: TierView) -> bool:
    topic = await cluster.topic(view.partition.topic)
    leader = await cluster.leader_of(view.partition)
    return topic.id == view.owner.topic_id and leader.leader_epoch == view.leader_epoch
