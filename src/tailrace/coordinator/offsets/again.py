"""OffsetCommit, again: a commit that says what an earlier one of its client said, but for offsets and leader epochs.

What repeats is looked up and encoded once, when the commit is learned. What may change between two commits is asked
each time: whether the topics are still there, how much metadata is allowed, and whether the group lets this member
commit. Where the first two have changed, the request is decided as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.offsets.commit import FIRST_VERSION_WITH_TOPIC_IDS, check_group, commit_offsets
from tailrace.coordinator.offsets.store import OFFSET_VALUE_VERSION
from tailrace.coordinator.op import Call, Caller, Result, StoredBytes, unchanged
from tailrace.model.ids import Uuid
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetCommitResponse
from tailrace.wire.apis.stored_records import OffsetCommitKey, OffsetCommitValue
from tailrace.wire.record_envelopes import encode_coordinator_key, encode_coordinator_value

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = OffsetCommitResponse.OffsetCommitResponsePartition

# Version, offset and leader epoch stand before the metadata, the time behind it.
_METADATA_AT = 2 + 8 + 4
# Eight bytes of which no part stands at the end of a length or of a text.
_MARK = 0x81C1_8080_F8F8_C1C1 - (1 << 64)
# Those of topics whose metadata has the same length are the same.
_struct = lru_cache(maxsize=512)(Struct)


class KnownPartition(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int
    key: bytes
    # Of the stored value: what stands around the offset, the leader epoch and the time of the commit.
    pack: Callable[..., bytes]
    metadata: bytes
    tail: bytes


class KnownCommit:
    """What a commit means, whatever its offsets."""

    __slots__ = ("metadata_size", "partitions", "request", "response")

    def __init__(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse, partitions: Sequence[KnownPartition]
    ) -> None:
        self.request = request  # The one that it was learned from.
        self.response = response  # Where nothing is refused.
        self.partitions = partitions
        self.metadata_size = max(
            len(each.committed_metadata or "") for topic in request.topics for each in topic.partitions
        )


def know_commit(image: MetadataImage, request: OffsetCommitRequest, api_version: int) -> KnownCommit | None:
    """None if one of its topics or partitions is not known."""
    response, partitions = OffsetCommitResponse(), []
    for topic in request.topics:
        name: str | None = topic.name
        if api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
            name = image.topic_names.get(Uuid(topic.topic_id))
        known = image.topics.get(name) if name is not None else None
        if known is None or any(each.partition_index not in known.partitions for each in topic.partitions):
            return None
        answer = _Topic(name=topic.name, topic_id=topic.topic_id)
        for each in topic.partitions:
            partitions.append(_know(request.group_id, known.name, known.id, each))
            answer.partitions.append(_Partition(partition_index=each.partition_index))
        response.topics.append(answer)
    return KnownCommit(request, response, partitions) if partitions else None


def _know(
    group_id: str, topic: str, topic_id: Uuid, partition: OffsetCommitRequest.OffsetCommitRequestPartition
) -> KnownPartition:
    index, metadata = partition.partition_index, partition.committed_metadata or ""
    value = OffsetCommitValue(metadata=metadata, commit_timestamp=_MARK, topic_id=topic_id)
    template = encode_coordinator_value(value, OFFSET_VALUE_VERSION)
    time_at = template.index(_MARK.to_bytes(8, "big", signed=True), _METADATA_AT + len(metadata.encode()))
    before, tail = template[_METADATA_AT:time_at], template[time_at + 8 :]
    pack = _struct(f">hqi{len(before)}sq{len(tail)}s").pack
    key = encode_coordinator_key(OffsetCommitKey(group=group_id, topic=topic, partition=index))
    return KnownPartition(topic, topic_id, index, key, pack, before, tail)


def commit_again(
    state: GroupState, call: Call, caller: Caller, known: KnownCommit, places: Iterable[tuple[int, int]]
) -> Result:
    """`places` are offsets and leader epochs, in the order of the request's partitions. `caller.request` has to say the
    same."""
    partitions = known.partitions
    if known.metadata_size > call.config.offset_metadata_max_bytes or not _are_there(call.image, partitions):
        return commit_offsets(state, call, caller, caller.request)
    group, check = check_group(state, caller, known.request)
    if check is not None:
        for each in partitions:
            check(each.topic, each.topic_id, each.partition)
    group.note_commit(known.request.member_id, call, state.deadlines)
    now_ms = call.now_ms
    records = [
        StoredBytes(key, pack(OFFSET_VALUE_VERSION, offset, epoch, metadata, now_ms, tail))
        for (_, _, _, key, pack, metadata, tail), (offset, epoch) in zip(partitions, places, strict=True)
    ]
    return Result(records, ((caller, known.response),), on_refused=unchanged)


def _are_there(image: MetadataImage, partitions: Sequence[KnownPartition]) -> bool:
    for each in partitions:
        topic = image.topics.get(each.topic)
        if topic is None or topic.id != each.topic_id or each.partition not in topic.partitions:
            return False
    return True
