"""The export: topics with remote storage and what groups have committed in them, every remote.log.export.interval.ms.

Whoever leads partition 0 of __remote_log_metadata writes it, one broker at a time. It asks the coordinators of this
broker directly, and those of others as any client does. One that does not answer in time ends the round: the last
export stays, which is older and true. Old ones go once they were replaced long enough ago.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from tailrace.controller import effective
from tailrace.controller.image import ResourceType
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, Uuid
from tailrace.tier.format.names import ExportVersion, export_folder, parse_export_name
from tailrace.tier.keeping.manifests import decide_replaced
from tailrace.tier.metadata.export import Export, ExportedOffset, ExportedTopic, write_export
from tailrace.wire.apis.groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.tier.room import Room

_log = events.logger("tier")

_CHANNEL = "tier export"
# Groups that one request asks about.
_GROUPS_PER_REQUEST = 100
_PER_TURN = 200


class Exporter:
    failure = "topics and groups cannot be exported to the store"

    def __init__(self, tier: Room, coordination: Coordination) -> None:
        self._tier = tier
        self._coordination = coordination

    @property
    def pause_seconds(self) -> float:
        return self._tier.config.remote_log_export_interval_ms / 1000

    async def round(self) -> None:
        tier, node = self._tier, self._tier.node
        partition = node.replicas.partitions.get((REMOTE_LOG_METADATA_TOPIC, 0))
        if (
            partition is None
            or not partition.is_leader
            or not tier.is_ours
            or not node.replicas.lease.allows(partition)
        ):
            return
        leader_epoch = int(partition.leader_epoch)
        topics = self._topics()
        names = {topic.name for topic in topics}
        offsets = [each async for each in self._offsets() if each.topic in names]
        if partition.leader_epoch != leader_epoch or not partition.is_leader:
            return
        export = Export(
            tier.cluster_id,
            ExportVersion(tier.generation, leader_epoch, node.ports.clock.wall_ms()),
            node.image.next_producer_id,
            topics,
            offsets,
        )
        data = await node.ports.background.run(lambda: write_export(export))
        await tier.store.put_bytes(export.name, data)
        await self._remove_old()

    async def _remove_old(self) -> None:
        tier = self._tier
        listed = [
            (version, facts)
            for facts in await tier.store.list(export_folder(tier.cluster_id))
            if (version := parse_export_name(tier.cluster_id, facts.name)) is not None
        ]
        before_ms = tier.node.ports.clock.wall_ms() - tier.config.remote_log_deletion_delay_ms
        old = decide_replaced(listed, before_ms=before_ms)
        if old:
            await tier.store.delete(old)

    def _topics(self) -> list[ExportedTopic]:
        image, config = self._tier.node.image, self._tier.config
        return [
            ExportedTopic(
                topic.name,
                topic.id,
                dict(image.config(ResourceType.TOPIC, topic.name)),
                [topic.partitions[index].leader_epoch for index in sorted(topic.partitions)],
            )
            for topic in image.topics.values()
            if effective.topic_config(config, image, topic.name).remote_storage_enable
        ]

    # ---- what groups have committed

    async def _offsets(self) -> AsyncIterator[ExportedOffset]:
        """Raises KafkaError if somebody who has to be asked does not tell."""
        node = self._tier.node
        topic = node.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        leaders = set() if topic is None else {state.leader for state in topic.partitions.values()}
        for leader in sorted(leaders):
            if leader < 0:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody leads a part of {CONSUMER_OFFSETS_TOPIC}"
                )
            found = self._offsets_here() if leader == node.node_id else self._offsets_there(leader)
            async for each in found:
                yield each

    async def _offsets_here(self) -> AsyncIterator[ExportedOffset]:
        from tailrace.coordinator.machine import GroupMachine
        from tailrace.coordinator.offsets.store import read_offset

        count = 0
        for shard in self._coordination.groups.active_shards():
            assert isinstance(shard.machine, GroupMachine), "the shards of groups have such machines"
            for group_id, topics in list(shard.machine.state.offsets.groups.items()):
                for topic, partitions in list(topics.items()):
                    for partition, value in list(partitions.items()):
                        count += 1
                        if count % _PER_TURN == 0:
                            await asyncio.sleep(0)
                        stored = read_offset(value)
                        if stored.offset >= 0:
                            yield ExportedOffset(
                                group_id, topic, partition, stored.offset, stored.leader_epoch, stored.metadata
                            )

    async def _offsets_there(self, leader: int) -> AsyncIterator[ExportedOffset]:
        node = self._tier.node
        listed = await node.call_broker(leader, ListGroupsRequest(), ListGroupsResponse, channel=_CHANNEL)
        _check(listed.error_code)
        names = [each.group_id for each in listed.groups]
        for start in range(0, len(names), _GROUPS_PER_REQUEST):
            asked = names[start : start + _GROUPS_PER_REQUEST]
            group = OffsetFetchRequest.OffsetFetchRequestGroup
            request = OffsetFetchRequest(groups=[group(group_id=each, topics=None) for each in asked])
            answer = await node.call_broker(leader, request, OffsetFetchResponse, channel=_CHANNEL)
            for each in self._fetched(answer.groups):
                yield each

    def _fetched(self, groups: Sequence[OffsetFetchResponse.OffsetFetchResponseGroup]) -> list[ExportedOffset]:
        names, found = self._tier.node.image.topic_names, []
        for group in groups:
            _check(group.error_code)
            for topic in group.topics:
                name = topic.name or names.get(Uuid(topic.topic_id))
                found += [
                    ExportedOffset(
                        group.group_id,
                        name,
                        each.partition_index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata or "",
                    )
                    for each in topic.partitions
                    if name is not None and not each.error_code and each.committed_offset >= 0
                ]
        return found


def _check(error_code: int) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), "A coordinator does not tell what groups have committed")
