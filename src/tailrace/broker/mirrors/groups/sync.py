"""Where the source's groups stand is where they stand here, so that one that moves goes on at its exact record: what
consumer groups have committed, and where share groups start.

An offset is never ahead of what is mirrored, nor before the log start. A group that has members here is left alone: it
has moved already. Where the source has none that is newer, nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.mirrors.groups.consumers import ConsumerOffsets
from tailrace.broker.mirrors.groups.shares import ShareStarts
from tailrace.client.groups.admin import CLASSIC, CONSUMER, SHARE, GroupAdmin, ListedGroup
from tailrace.controller.mirrors.links import mirrors_of
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.client.groups.offsets import Committed
    from tailrace.wire.apis.mirrors import DescribeMirrorsResponse

_GROUPS_MAX = 10_000
# It has members here: it is its own.
_ACTIVE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NON_EMPTY_GROUP,
)


class GroupSync:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room
        self._consumers, self._shares = ConsumerOffsets(room), ShareStarts(room)
        # By group: what was written here last, and of which topic: one that is mirrored anew has nothing of it.
        self._written: dict[str, dict[TopicPartition, tuple[Uuid, int]]] = {}

    async def sync(self, progress: Mapping[TopicPartition, DescribeMirrorsResponse.Partition]) -> bool:
        """Whether all of them are in step."""
        room = self._room
        if not room.settings.groups.include or not progress:
            return True
        are_in_step = True
        try:
            found = await GroupAdmin(room.cluster).groups()
            groups = [each for each in found if self._kind_of(each) and room.settings.groups.takes(each.group_id)]
            for name in self._written.keys() - {each.group_id for each in groups}:
                del self._written[name]
            for group in groups[:_GROUPS_MAX]:
                are_in_step = await self._sync_group(group, progress) and are_in_step
            room.tell("groups", None)
        except KafkaError as error:
            room.tell("groups", f"offsets of groups are not in step: {error.message}")
            return False
        return are_in_step

    def _kind_of(self, group: ListedGroup) -> ConsumerOffsets | ShareStarts | None:
        """None if its kind does not follow."""
        if group.type == SHARE:
            return self._shares
        is_consumer = group.type in (CLASSIC, CONSUMER, "") and group.protocol_type in (CONSUMER, "")
        return self._consumers if is_consumer else None

    async def _sync_group(
        self, group: ListedGroup, progress: Mapping[TopicPartition, DescribeMirrorsResponse.Partition]
    ) -> bool:
        kind, group_id = self._kind_of(group), group.group_id
        assert kind is not None, "it follows"
        found = await kind.read(group_id)
        if found is None:
            return False  # The next round finds them.
        wanted, topics = self._wanted(found, progress), self._room.node.image.topics
        written = self._written.get(group_id, {})
        marks = {where: (topics[where.topic].id, each.offset) for where, each in wanted.items()}
        news = {where: each for where, each in wanted.items() if written.get(where) != marks[where]}
        if not news:
            return True
        try:
            refused = await kind.write(group_id, news)
        except KafkaError as error:
            refused = error.code
        if refused is not ErrorCode.NONE and refused not in _ACTIVE:
            self._room.tell(f"group {group_id}", f"its offsets are not committed here: {refused.name}")
            return False
        self._room.tell(f"group {group_id}", None)
        if refused is ErrorCode.NONE:
            self._written[group_id] = {**written, **marks}
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
