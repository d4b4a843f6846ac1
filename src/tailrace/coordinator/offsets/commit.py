"""OffsetCommit: what a consumer has processed, stored before it is told so.

Partitions stand or fall alone: unknown ones and those with too much metadata are refused, the others are stored. Who
may commit is the group's to say; a group that does not exist is made by a commit without a generation (a consumer that
assigns partitions to itself, or an administrator who sets offsets).

Version notes: 2 to 4 may ask for a retention time of their own; from 10 on topics are named by id.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.coordinator.groups import Group, GroupState, PartitionCheck
from tailrace.coordinator.offsets.simple import SimpleGroup, find_group
from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.op import Call, Caller, Result, StoredRecord, unchanged
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.model.settings import LONG_MAX
from tailrace.wire.apis.groups import OffsetCommitRequest, OffsetCommitResponse
from tailrace.wire.apis.stored_records import OffsetCommitKey, OffsetCommitValue

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = OffsetCommitResponse.OffsetCommitResponsePartition

FIRST_VERSION_WITH_TOPIC_IDS = 10
# From here on a group that does not exist is told as such.
_FIRST_VERSION_WITH_EPOCHS = 9


def commit_offsets(state: GroupState, call: Call, caller: Caller, request: OffsetCommitRequest) -> Result:
    records: list[StoredRecord] = []
    response = OffsetCommitResponse(
        topics=[_commit_topic(call, caller, request, topic, records) for topic in request.topics]
    )
    if records:
        # As in Kafka, a commit of which nothing can be stored is answered without a look at the group.
        group, check_partition = check_group(state, caller, request)
        check_partitions(check_partition, records)
        group.note_commit(request.member_id, call, state.deadlines)
    return Result(records, ((caller, response),), on_refused=unchanged)


def check_group(state: GroupState, caller: Caller, request: OffsetCommitRequest) -> tuple[Group, PartitionCheck | None]:
    """The group, if this member may commit, and what has to be asked for each partition. Raises KafkaError."""
    group = _find_group(state, caller, request)
    return group, group.check_offset_commit(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        is_transactional=False,
        api_version=caller.api_version,
    )


def check_partitions(check: PartitionCheck | None, records: Sequence[StoredRecord]) -> None:
    """One partition that may not be committed fails the request, as in Kafka."""
    if check is not None:
        for key, value, _ in records:
            assert isinstance(key, OffsetCommitKey)
            assert isinstance(value, OffsetCommitValue)
            check(key.topic, Uuid(value.topic_id), key.partition)


def _find_group(state: GroupState, caller: Caller, request: OffsetCommitRequest) -> Group:
    group = find_group(state, request.group_id)
    if group is not None:
        return group
    if request.generation_id_or_member_epoch < 0:
        return SimpleGroup(request.group_id)
    if caller.api_version >= _FIRST_VERSION_WITH_EPOCHS:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"Group {request.group_id} does not exist, so it has no generation.")


def _commit_topic(
    call: Call,
    caller: Caller,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequest.OffsetCommitRequestTopic,
    records: list[StoredRecord],
) -> _Topic:
    """Adds the records of what can be stored, and answers for each partition."""
    answer = _Topic(name=topic.name, topic_id=topic.topic_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name: str | None = topic.name
    if caller.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        name = call.image.topic_names.get(Uuid(topic.topic_id))
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    known = call.image.topics.get(name) if name is not None else None
    if known is None:
        answer.partitions = [
            _Partition(partition_index=each.partition_index, error_code=unknown) for each in topic.partitions
        ]
        return answer
    expire_timestamp = -1
    if request.retention_time_ms != -1:
        expire_timestamp = min(call.now_ms + request.retention_time_ms, LONG_MAX)
    metadata_max = call.config.offset_metadata_max_bytes
    for each in topic.partitions:
        error = ErrorCode.NONE
        metadata = each.committed_metadata or ""
        if each.partition_index not in known.partitions:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(metadata) > metadata_max:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            records.append(
                offset_record(
                    request.group_id,
                    known.name,
                    each.partition_index,
                    OffsetCommitValue(
                        offset=each.committed_offset,
                        leader_epoch=each.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=call.now_ms,
                        expire_timestamp=expire_timestamp,
                        topic_id=known.id,
                    ),
                )
            )
        answer.partitions.append(_Partition(partition_index=each.partition_index, error_code=error))
    return answer
