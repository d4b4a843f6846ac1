"""Committed offsets of the source's groups, committed here: a group that moves goes on at its exact record.

An offset is never ahead of what is mirrored, nor before the log start. Only stable ones are taken, and those that are
part of an open transaction wait. A group that has members here is left alone: it has moved already. Where the source
has none that is newer, nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.coordinators.calls import InnerCall
from tailrace.client.groups.admin import CLASSIC, CONSUMER, GroupAdmin, ListedGroup
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.controller.mirrors.links import mirrors_of
from tailrace.coordinator.placement import coordinator_partition
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, PartitionIndex, TopicPartition
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.client.groups.offsets import Committed
    from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

# The newest that names topics by their names.
_VERSION = 9
_TIMEOUT_MS = 5000
_GROUPS_MAX = 10_000
# It has members here: it is its own.
_ACTIVE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class GroupSync:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room
        self._written: dict[str, dict[TopicPartition, int]] = {}  # By group: what was committed here last.

    async def sync(self, progress: Mapping[TopicPartition, DescribeMirrorsResponse.Partition]) -> bool:
        """Whether all of them are in step."""
        room = self._room
        if not room.settings.groups.include or not progress:
            return True
        are_in_step = True
        try:
            groups = [each for each in await GroupAdmin(room.cluster).groups() if self._takes(each)]
            for name in self._written.keys() - {each.group_id for each in groups}:
                del self._written[name]
            for group in groups[:_GROUPS_MAX]:
                are_in_step = await self._sync_group(group.group_id, progress) and are_in_step
            room.tell("groups", None)
        except KafkaError as error:
            room.tell("groups", f"offsets of groups are not in step: {error.message}")
            return False
        return are_in_step

    def _takes(self, group: ListedGroup) -> bool:
        is_consumer = group.type in (CLASSIC, CONSUMER, "") and group.protocol_type in (CONSUMER, "")
        return is_consumer and self._room.settings.groups.takes(group.group_id)

    async def _sync_group(
        self, group_id: str, progress: Mapping[TopicPartition, DescribeMirrorsResponse.Partition]
    ) -> bool:
        coordinator = Coordinator(self._room.cluster, group_id)
        try:
            committed = await GroupOffsets(coordinator, timeout_ms=_TIMEOUT_MS).fetch()
        except KafkaError as error:
            if error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return False  # The next round finds them.
            raise
        finally:
            coordinator.close()
        wanted = self._wanted(committed, progress)
        written = self._written.get(group_id, {})
        news = {where: found for where, found in wanted.items() if written.get(where) != found.offset}
        if not news:
            return True
        refused = await self._commit(group_id, news)
        if refused is not ErrorCode.NONE and refused not in _ACTIVE:
            self._room.tell(f"group {group_id}", f"its offsets are not committed here: {refused.name}")
            return False
        self._room.tell(f"group {group_id}", None)
        if refused is ErrorCode.NONE:
            self._written[group_id] = {**written, **{where: found.offset for where, found in news.items()}}
        return True

    def _wanted(
        self,
        committed: Mapping[TopicPartition, Committed],
        progress: Mapping[TopicPartition, DescribeMirrorsResponse.Partition],
    ) -> dict[TopicPartition, Committed]:
        names = {
            topic.mirror.source_topic: topic.name
            for topic in mirrors_of(self._room.node.image, self._room.link.id)
            if topic.mirror is not None and topic.mirror.is_read_only
        }
        wanted: dict[TopicPartition, Committed] = {}
        for source, found in committed.items():
            where = TopicPartition(names.get(source.topic, ""), PartitionIndex(source.partition))
            here = progress.get(where)
            if here is not None:
                offset = max(here.log_start_offset, min(found.offset, here.high_watermark))
                wanted[where] = found._replace(offset=offset)
        return wanted

    async def _commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> ErrorCode:
        """The first refusal."""
        image = self._room.node.image
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for where, found in sorted(offsets.items()):
            topics.setdefault(where.topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=where.partition,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    committed_metadata=found.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name, topic_id=image.topics[name].id, partitions=topics[name]
                )
                for name in topics
                if name in image.topics
            ],
        )
        node, coordination = self._room.node, self._room.coordination
        if CONSUMER_OFFSETS_TOPIC not in node.image.topics:
            await coordination.creations.wait([CONSUMER_OFFSETS_TOPIC])
        topic = node.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        leader = topic.partitions[coordinator_partition(group_id, len(topic.partitions))].leader
        if leader == node.node_id:
            call = InnerCall(request, _VERSION)
            coordination.groups.submit(group_id, call)
            told = await call.wait()
            assert isinstance(told, OffsetCommitResponse), "what was asked for"
            answer = told
        elif leader >= 0:
            answer = await node.call_broker(leader, request, OffsetCommitResponse, channel="mirrors")
        else:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes = [ErrorCode(each.error_code) for topic_ in answer.topics for each in topic_.partitions]
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
