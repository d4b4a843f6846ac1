"""The way to a group's coordinator in this cluster, which may be this broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tailrace.broker.coordinators.calls import InnerCall
from tailrace.coordinator.placement import coordinator_partition
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tailrace.broker.mirrors.room import LinkRoom

R = TypeVar("R", bound=Message)


async def ask_coordinator(
    room: LinkRoom,
    group_id: str,
    request: Message,
    response_type: type[R],
    *,
    version: int,
    begin: Callable[[InnerCall], Awaitable[None]],
) -> R:
    """`begin` begins to answer it if this broker coordinates the group. Raises KafkaError."""
    node = room.node
    if CONSUMER_OFFSETS_TOPIC not in node.image.topics:
        await room.coordination.creations.wait([CONSUMER_OFFSETS_TOPIC])
    topic = node.image.topics.get(CONSUMER_OFFSETS_TOPIC)
    leader = -1 if topic is None else topic.partitions[coordinator_partition(group_id, len(topic.partitions))].leader
    if leader < 0:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Nobody coordinates group {group_id} now")
    if leader != node.node_id:
        return await node.call_broker(leader, request, response_type, channel="mirrors")
    call = InnerCall(request, version)
    await begin(call)
    answer = await call.wait()
    assert isinstance(answer, response_type), "what was asked for"
    return answer
