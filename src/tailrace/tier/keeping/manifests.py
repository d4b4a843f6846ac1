"""Manifests of a partition, written by its leader: the newest tells readers without a broker what is visible.

Rules
- One is written when a leader begins, once it has replayed all that was committed before, and after changes of what is
  visible: at once, or `lag_ms` after the one before.
- Each has a name that no other has: a try that failed may have its effect later, so the next one takes another number.
- A leader that finds records of a later epoch writes none: it has been replaced, and its history may have been cut.
- An older one goes `delay_ms` after the next one came: whoever has chosen it by a listing can still read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tailrace.model.ports import Background, Clock, ObjectFacts
from tailrace.tier.format.names import ManifestName, ManifestVersion, TieredPartition, parse_name
from tailrace.tier.format.names import partition_manifest_folder as folder_of
from tailrace.tier.metadata.coverage import Lineage
from tailrace.tier.metadata.manifest import Manifest, write_manifest
from tailrace.tier.metadata.partition import PartitionTier
from tailrace.tier.store.guard import GuardedObjects


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a manifest says of the log and its topic, beside what is in the tier."""

    lineage: Lineage
    log_start_offset: int
    log_end_offset: int
    partition_count: int
    settings: Mapping[str, str]


@dataclass(slots=True)
class PartitionManifests:
    """Of one partition, for as long as this broker leads it in one epoch. Calls of `write` follow on each other."""

    cluster_id: str
    generation: int
    owner: TieredPartition
    leader_epoch: int
    store: GuardedObjects
    clock: Clock
    background: Background
    lag_ms: int = 10_000
    delay_ms: int = 600_000
    number: int = 0
    _told_changes: int = -1  # PartitionTier.changes of the last one; -1 before the first.
    _last_ms: float = float("-inf")

    def due_ms(self, tier: PartitionTier) -> float | None:
        """In how many milliseconds one has to be written, 0 for now; None if there is nothing new to tell."""
        if tier.changes == self._told_changes or tier.deletion is not None or tier.leader_epoch > self.leader_epoch:
            return None
        return max(0.0, self._last_ms + self.lag_ms - self.clock.monotonic_ms())

    async def write(self, tier: PartitionTier, *, metadata_offset: int, log: LogFacts) -> str | None:
        """Its name; None if somebody else leads, or the topic is being deleted. `metadata_offset`: the next that the
        machine of `tier` will replay. Raises StoreError."""
        if tier.leader_epoch > self.leader_epoch or tier.deletion is not None:
            return None
        self.number += 1
        changes, self._last_ms = tier.changes, self.clock.monotonic_ms()
        manifest = Manifest(
            cluster_id=self.cluster_id,
            topic=tier.topic,
            owner=self.owner,
            version=ManifestVersion(self.generation, metadata_offset, self.leader_epoch, self.number),
            written_ms=self.clock.wall_ms(),
            partition_count=log.partition_count,
            settings=dict(log.settings),
            log_start_offset=max(log.log_start_offset, tier.log_start_offset),
            log_end_offset=log.log_end_offset,
            lineage=tuple(log.lineage),
            segments=tuple(tier.visible.values()),
        )
        data = await self.background.run(lambda: write_manifest(manifest))
        await self.store.put_bytes(manifest.name, data)
        self._told_changes = changes
        return manifest.name

    async def remove_old(self, topic: str) -> list[str]:
        """Those that were replaced long enough ago, whoever wrote them; gives their names. Raises StoreError."""
        listed = await self.store.list(folder_of(self.cluster_id, topic, self.owner))
        old = decide_old(self.cluster_id, listed, before_ms=self.clock.wall_ms() - self.delay_ms)
        if old:
            await self.store.delete(old)
        return old


def decide_old(cluster_id: str, listed: Iterable[ObjectFacts], *, before_ms: int) -> list[str]:
    """Of the manifests of one partition those whose successor is there since before `before_ms`."""
    found = [(parse_name(cluster_id, facts.name), facts) for facts in listed]
    versions = [(name.version, facts) for name, facts in found if isinstance(name, ManifestName)]
    return decide_replaced(versions, before_ms=before_ms)


def decide_replaced(found: Iterable[tuple[tuple[int, ...], ObjectFacts]], *, before_ms: int) -> list[str]:
    """Names of all but the newest and those whose successor came later. A listing that lacks the newest keeps one more;
    none makes the newest go."""
    ordered = sorted(found, key=lambda each: each[0])
    return [facts.name for (_, facts), (_, successor) in pairwise(ordered) if successor.modified_ms < before_ms]
