"""The manifests of what is led here: readers without a broker learn by them what is visible (`tier.keeping.manifests`).

One for each partition and leader epoch; at most remote.log.manifest.interval.ms after what it tells of. A store that is
away makes them late. Older ones are removed beside the sweeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.controller.image import ResourceType
from tailrace.model import events
from tailrace.model.errors import KafkaError
from tailrace.model.ports import StoreError
from tailrace.tier.keeping.manifests import LogFacts, PartitionManifests

if TYPE_CHECKING:
    from tailrace.broker.tier.parts import TieredLog
    from tailrace.broker.tier.room import Room

_log = events.logger("tier")


class Announcer:
    failure = "manifests cannot be written"
    pause_seconds = 0.5

    def __init__(self, tier: Room) -> None:
        self._tier = tier
        self._manifests: dict[TieredLog, PartitionManifests] = {}

    def forget(self, part: TieredLog) -> None:
        self._manifests.pop(part, None)

    async def remove_old(self, part: TieredLog) -> None:
        """Raises StoreError."""
        known = self._manifests.get(part)
        if known is not None:
            await known.remove_old(part.partition.topic_partition.topic)

    async def round(self) -> None:
        for part in list(self._tier.parts.values()):
            try:
                if self._tier.may_keep(part):
                    await self._write(part)
            except KafkaError as error:
                _log.debug("a manifest is not written yet", partition=part.partition, cause=error)
            except StoreError:
                raise  # The others would have to wait for it, too.
            except Exception as error:
                _log.error("a manifest cannot be written", trace=True, partition=part.partition)
                self._tier.node.judge_bug(error, part.partition)

    async def _write(self, part: TieredLog) -> None:
        tier, partition, state = self._tier, part.partition, part.state
        manifests = self._manifests.get(part)
        if manifests is None or manifests.leader_epoch != partition.leader_epoch:
            if not state.visible:
                return
            await tier.catch_up(part)
            manifests = self._manifests[part] = PartitionManifests(
                tier.cluster_id,
                tier.generation,
                part.owner,
                int(partition.leader_epoch),
                tier.store,
                tier.node.ports.clock,
                tier.node.ports.background,
                lag_ms=tier.config.remote_log_manifest_interval_ms,
                delay_ms=tier.config.remote_log_deletion_delay_ms,
            )
        if manifests.due_ms(part.state) != 0 or manifests.leader_epoch != partition.leader_epoch:
            return
        found = tier.metadata.part_of(part.owner)
        topic = tier.node.image.topics.get(partition.topic_partition.topic)
        if found is None or topic is None:
            return
        log = partition.log
        facts = LogFacts(
            lineage=[(entry.epoch, entry.start_offset) for entry in log.epochs.entries],
            log_start_offset=part.log_start_offset,
            log_end_offset=partition.high_watermark,
            partition_count=len(topic.partitions),
            settings=dict(tier.node.image.config(ResourceType.TOPIC, topic.name)),
        )
        await manifests.write(part.state, metadata_offset=found.machine.next_offset, log=facts)
