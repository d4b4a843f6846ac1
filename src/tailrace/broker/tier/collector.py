"""What is left in the store of topics that were deleted, or have no remote storage any more.

Whoever leads the partition of __remote_log_metadata that tells of a partition collects it: the leader of the partition
itself may be gone with the topic. *Marked* is committed first, and from then on nothing of it is read; then each object
under the partition's folder is deleted, *finished* is committed, and nothing is known of it any more.

Metadata that is late must not look like a deletion: a partition has to be missing, or without remote storage, for all
of remote.log.deletion.delay.ms, and in that time this broker's lease has not ended. What is marked is deleted to the
end, whoever began it, even if the topic has remote storage again: only then something new of it can be copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.controller import effective
from tailrace.model import events
from tailrace.tier.format.names import TieredPartition, partition_folder, partition_manifest_folder
from tailrace.tier.metadata.records import PartitionState, partition_delete

if TYPE_CHECKING:
    from tailrace.broker.tier.room import Room
    from tailrace.tier.metadata.coverage import RemoteSegment
    from tailrace.tier.metadata.partition import PartitionTier

_log = events.logger("tier")


class Collector:
    failure = "what is left of deleted topics cannot be collected"

    def __init__(self, tier: Room) -> None:
        self._tier = tier
        self._missing_ms: dict[TieredPartition, float] = {}  # Since when; bounded by what machines know.

    @property
    def pause_seconds(self) -> float:
        return self._tier.config.remote_log_manager_task_interval_ms / 1000

    async def round(self) -> None:
        tier = self._tier
        if tier.node.replicas.lease.is_past:
            self._missing_ms.clear()
        now_ms, delay_ms = tier.node.ports.clock.monotonic_ms(), tier.config.remote_log_deletion_delay_ms
        missing = self._find_missing()
        self._missing_ms = {owner: self._missing_ms.get(owner, now_ms) for owner in missing}
        for owner, state in missing.items():
            is_due = state.deletion is not None or now_ms - self._missing_ms[owner] >= delay_ms
            if is_due and tier.is_ours:
                await self._delete(owner, state)

    def _find_missing(self) -> dict[TieredPartition, PartitionTier]:
        tier, image, found = self._tier, self._tier.node.image, {}
        for index, part in tier.metadata.parts.items():
            if not tier.metadata.leads(index) or not part.is_ready:
                continue
            for owner, state in part.machine.partitions.items():
                name = image.topic_names.get(owner.topic_id)
                if (
                    state.deletion is not None
                    or name is None
                    or not effective.topic_config(tier.config, image, name).remote_storage_enable
                ):
                    found[owner] = state
        return found

    async def _delete(self, owner: TieredPartition, state: PartitionTier) -> None:
        if state.deletion is None:
            await self._tell(owner, state, PartitionState.DELETE_MARKED)
        await self._tier.confirm_ours()
        store = self._tier.store
        cluster_id = self._tier.cluster_id
        folders = partition_folder(cluster_id, owner), partition_manifest_folder(cluster_id, state.topic, owner)
        objects = [each.name for folder in folders for each in await store.list(folder)]
        # A listing may lack what is new: what the records name is deleted by its name.
        named = [self._tier.name_of(owner, segment) for segment in _segments(state)]
        await store.delete([*dict.fromkeys([*objects, *named])])
        await self._tell(owner, state, PartitionState.DELETE_FINISHED)
        self._missing_ms.pop(owner, None)
        _log.info("a partition was deleted from the store", topic=state.topic, partition=owner.partition)

    async def _tell(self, owner: TieredPartition, state: PartitionTier, deletion: PartitionState) -> None:
        tier = self._tier
        now_ms = tier.node.ports.clock.wall_ms()
        record = partition_delete(state.topic, owner, deletion, broker_id=tier.node.node_id, now_ms=now_ms)
        await tier.metadata.append(owner, record)


def _segments(state: PartitionTier) -> list[RemoteSegment]:
    return [
        *state.visible.values(),
        *(each.segment for each in state.copying.values()),
        *(each.segment for each in state.deleting.values()),
    ]
