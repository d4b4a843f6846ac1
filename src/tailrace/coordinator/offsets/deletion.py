"""Offsets that go: by OffsetDelete, with their group, and with their topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.offsets.batch_capacity import BatchCapacity
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.offsets.store import offset_record, read_offset
from tailrace.coordinator.op import Call, Caller, Result, Steps, StoredRecord, unchanged
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis.groups import OffsetDeleteRequest, OffsetDeleteResponse

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = OffsetDeleteResponse.OffsetDeleteResponsePartition

# Groups and offsets looked at in one step, each in about a microsecond, or three where it has to be read.
_LOOKS_PER_STEP = 200


def delete_offsets(state: GroupState, call: Call, caller: Caller, request: OffsetDeleteRequest) -> Result:
    """Topics that the members of the group have subscribed to keep theirs."""
    group = find_group(state, request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    group.check_offset_delete()
    response = OffsetDeleteResponse()
    records: list[StoredRecord] = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        known = call.image.topics.get(topic.name)
        answer = _Topic(name=topic.name)
        for each in topic.partitions:
            index, error = each.partition_index, ErrorCode.NONE
            if known is None or index not in known.partitions:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif is_subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif index in state.offsets.topics(request.group_id).get(topic.name, ()) or state.offsets.is_pending(
                request.group_id, topic.name, index
            ):
                records.append(offset_record(request.group_id, topic.name, index, None))
            answer.partitions.append(_Partition(partition_index=index, error_code=error))
        response.topics.append(answer)
    return Result(records, ((caller, response),), on_refused=unchanged)


def places_of(state: GroupState, group_id: str) -> Iterator[tuple[str, int]]:
    """Topics and partitions of all offsets of a group, each once."""
    committed = state.offsets.topics(group_id)
    for topic, partitions in committed.items():
        for partition in partitions:
            yield topic, partition
    for topic, partition in dict.fromkeys(state.offsets.pending(group_id)):
        if partition not in committed.get(topic, ()):
            yield topic, partition


def on_image(state: GroupState, call: Call, old: MetadataImage) -> Result:
    """Topics may have been deleted: their offsets go in steps."""
    new = call.image
    if old.topic_names is not new.topic_names:
        gone = old.topic_names.keys() - new.topic_names.keys()
        if gone:
            deleted = _Deleted({old.topic_names[topic_id]: topic_id for topic_id in gone}, call.now_ms)
            work = "offsets.topics", str(new.next_offset)
            state.work[work] = lambda call: _delete_topics(state, call, deleted, deque(state.offsets.group_ids()))
    return Result()


class _Deleted(NamedTuple):
    """Topics. Others of these names may come while their offsets are looked for."""

    topic_ids: Mapping[str, Uuid]
    at_ms: int

    def had(self, topic: str, value: bytes) -> bool:
        """Whether the offset is of the deleted topic, and not of a new one of that name."""
        committed = read_offset(value)
        if committed.topic_id == ZERO_UUID:
            return committed.commit_timestamp_ms < self.at_ms
        return committed.topic_id == self.topic_ids[topic]


def _delete_topics(state: GroupState, call: Call, deleted: _Deleted, group_ids: deque[str]) -> Steps:
    """In the groups that are left to be looked at, until there is a batch of records; the rest follows as work anew."""
    room = BatchCapacity()
    found: dict[tuple[str, str, int], None] = {}
    is_full = False
    looks = 0
    while group_ids and not is_full:
        group_id = group_ids.popleft()
        for topic, partition in _places_in(state, group_id, deleted.topic_ids.keys()):
            looks += 1
            if looks % _LOOKS_PER_STEP == 0:
                yield
            if _is_gone(state, deleted, group_id, topic, partition):
                if not room.takes(group_id, topic):
                    group_ids.appendleft(group_id)
                    is_full = True
                    break
                found[group_id, topic, partition] = None
        looks += 1
        if looks % _LOOKS_PER_STEP == 0:
            yield
    if group_ids:
        work = "offsets.topics", f"{call.image.next_offset} {len(group_ids)}"
        state.work[work] = lambda call: _delete_topics(state, call, deleted, group_ids)
    records = [offset_record(*place, None) for place in found if _is_gone(state, deleted, *place)]
    return Result(records, on_refused=unchanged)


def _places_in(state: GroupState, group_id: str, topics: AbstractSet[str]) -> list[tuple[str, int]]:
    held = state.offsets.topics(group_id)
    places = [(topic, partition) for topic in held.keys() & topics for partition in held[topic]]
    return places + [(topic, partition) for topic, partition in state.offsets.pending(group_id) if topic in topics]


def _is_gone(state: GroupState, deleted: _Deleted, group_id: str, topic: str, partition: int) -> bool:
    """All that is there; a tombstone takes what is pending too."""
    values = state.offsets.pending_values(group_id, topic, partition)
    committed = state.offsets.topics(group_id).get(topic, {}).get(partition)
    if committed is not None:
        values.append(committed)
    return bool(values) and all(deleted.had(topic, value) for value in values)
