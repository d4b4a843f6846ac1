"""Where the source's share groups start, set here as an administrator sets it.

Everything before a start offset is done with. What was acknowledged behind it, and how often records were delivered,
the source does not tell: a group that moves is given those records again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.mirrors.groups.coordinator import ask_coordinator
from tailrace.broker.shares.offsets import set_start_offsets
from tailrace.client.connection import error_code
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.groups.offsets import Committed
from tailrace.client.shares.admin import start_offsets_request
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.shares import AlterShareGroupOffsetsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.broker.coordinators.calls import InnerCall
    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.model.ids import TopicPartition


class ShareStarts:
    def __init__(self, room: LinkRoom) -> None:
        self._room = room

    async def read(self, group_id: str) -> Mapping[TopicPartition, Committed]:
        """Raises KafkaError if the source cannot tell one of them."""
        starts: dict[TopicPartition, Committed] = {}
        for each in await GroupAdmin(self._room.cluster).share_offsets(group_id):
            if each.error is not ErrorCode.NONE:
                raise KafkaError(each.error, f"the start of group {group_id} in {each.partition}: {each.error.name}")
            if each.start_offset is not None:
                starts[each.partition] = Committed(each.start_offset)
        return starts

    async def write(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> ErrorCode:
        """The first refusal. Raises KafkaError."""
        request = start_offsets_request(group_id, {where: each.offset for where, each in offsets.items()})
        answer = await ask_coordinator(
            self._room, group_id, request, AlterShareGroupOffsetsResponse, version=0, begin=self._begin
        )
        codes = [answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions)]
        return next((error_code(code) for code in codes if code), ErrorCode.NONE)

    async def _begin(self, call: InnerCall) -> None:
        await set_start_offsets(self._room.node.image, self._room.coordination, call)
