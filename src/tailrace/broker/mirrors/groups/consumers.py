"""What the source's consumer groups have committed, committed here.

Only stable offsets are taken; those that are part of an open transaction wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.mirrors.groups.coordinator import ask_coordinator
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.broker.coordinators.calls import InnerCall
    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.client.groups.offsets import Committed
    from tailrace.model.ids import TopicPartition

# The newest that names topics by their names.
_VERSION = 9
_TIMEOUT_MS = 5000


class ConsumerOffsets:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room

    async def read(self, group_id: str) -> Mapping[TopicPartition, Committed] | None:
        """None while a transaction that commits offsets is open."""
        coordinator = Coordinator(self._room.cluster, group_id)
        try:
            return await GroupOffsets(coordinator, timeout_ms=_TIMEOUT_MS).fetch()
        except KafkaError as error:
            if error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return None
            raise
        finally:
            coordinator.close()

    async def write(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> ErrorCode:
        """The first refusal. Raises KafkaError."""
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

        async def begin(call: InnerCall) -> None:
            self._room.coordination.groups.submit(group_id, call)

        answer = await ask_coordinator(
            self._room, group_id, request, OffsetCommitResponse, version=_VERSION, begin=begin
        )
        codes = [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
