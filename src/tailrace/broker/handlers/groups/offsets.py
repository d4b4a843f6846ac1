"""OffsetCommit, OffsetDelete and OffsetFetch.

A commit or deletion of many partitions is split: its records would hold the loop, and might not fit into one batch.
Partitions stand or fall alone anyway. A fetch may be about several groups from version 8 on (KIP-709).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.broker.handlers.groups.parts import ask_each, ask_in_turns
from tailrace.coordinator.offsets.batch_capacity import BatchCapacity
from tailrace.coordinator.offsets.fetch import FIRST_VERSION_WITH_GROUPS
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import Pending, RequestContext
    from tailrace.broker.services import Services
    from tailrace.wire.schema import Message

# Committed in one turn of the loop; each takes about 14 microseconds.
_PARTITIONS_PER_PART = 64

# A topic in one of these requests, or in an answer to one: it has a name and partitions.
T = TypeVar("T", bound=Any)


def handle_offset_commit(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    if _fits(request.group_id, request.topics):
        call = CoordinatorCall(context, request)
        services.coordination.groups.submit(request.group_id, call)
        return call
    requests = (
        (
            request.group_id,
            OffsetCommitRequest(
                group_id=request.group_id,
                generation_id_or_member_epoch=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                retention_time_ms=request.retention_time_ms,
                topics=part,
            ),
        )
        for part in _split(request.group_id, request.topics)
    )
    return ask_in_turns(services, context, requests, _join_committed, parts_per_turn=1)


def _fits(group_id: str, topics: Sequence[Any]) -> bool:
    """Into one op, as nearly everything does."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return True
    room = BatchCapacity(_PARTITIONS_PER_PART)
    return all(room.takes(*_texts(group_id, topic, each)) for topic in topics for each in topic.partitions)


def _texts(group_id: str, topic: Any, partition: Any) -> tuple[str, str, str]:
    return group_id, topic.name, getattr(partition, "committed_metadata", None) or ""


def _split(group_id: str, topics: Sequence[T]) -> Iterator[list[T]]:
    """Topics with partitions, in parts that one op can store."""
    part: list[T] = []
    room = BatchCapacity(_PARTITIONS_PER_PART)
    for topic in topics:
        piece: T | None = None
        for partition in topic.partitions:
            texts = _texts(group_id, topic, partition)
            if not room.takes(*texts):
                yield part
                part, piece, room = [], None, BatchCapacity(_PARTITIONS_PER_PART)
                room.takes(*texts)
            if piece is None:
                piece = copy(topic)
                piece.partitions = []
                part.append(piece)
            piece.partitions.append(partition)
    yield part


def _join_committed(answers: list[OffsetCommitResponse]) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=_join_topics([topic for answer in answers for topic in answer.topics]))


def handle_offset_delete(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    if not request.group_id:
        call = CoordinatorCall(context, request)
        call.fail(KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty"))
        return call
    group_id, topics = request.group_id, request.topics
    if _fits(group_id, topics):
        return ask_each(services, context, [(group_id, request)], _join_deleted)
    parts = ((group_id, OffsetDeleteRequest(group_id=group_id, topics=part)) for part in _split(group_id, topics))
    return ask_in_turns(services, context, parts, _join_deleted, parts_per_turn=1)


def _join_deleted(answers: list[OffsetDeleteResponse]) -> OffsetDeleteResponse:
    """What fails as a whole may fail from some part on."""
    failed = next((answer for answer in answers if answer.error_code), None)
    return failed or OffsetDeleteResponse(topics=_join_topics([topic for answer in answers for topic in answer.topics]))


def _join_topics(topics: Sequence[T]) -> list[T]:
    """Those whose partitions were split are told once."""
    joined: dict[tuple[str, bytes], T] = {}
    for topic in topics:
        place = topic.name, getattr(topic, "topic_id", b"")
        if place in joined:
            joined[place].partitions += topic.partitions
        else:
            joined[place] = topic
    return list(joined.values())


def handle_offset_fetch(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> Pending[Message] | Coroutine[None, None, Message]:
    if context.api_version < FIRST_VERSION_WITH_GROUPS:
        return ask_each(services, context, [(request.group_id, request)], _join_fetched)
    parts = [
        (group.group_id, OffsetFetchRequest(groups=[group], require_stable=request.require_stable))
        for group in request.groups
    ]
    return ask_each(services, context, parts, _join_fetched)


def _join_fetched(answers: list[OffsetFetchResponse]) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[group for answer in answers for group in answer.groups])
