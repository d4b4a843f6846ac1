"""TxnOffsetCommit: offsets that a producer commits with what it has written. They wait for the transaction's marker."""

from __future__ import annotations

from tailrace.coordinator.groups import Group, GroupState
from tailrace.coordinator.offsets.commit import check_partitions
from tailrace.coordinator.offsets.simple import SimpleGroup, find_group
from tailrace.coordinator.offsets.store import offset_record
from tailrace.coordinator.op import Call, Caller, Producer, Result, StoredRecord, unchanged
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.stored_records import OffsetCommitValue
from tailrace.wire.apis.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def commit_transactional_offsets(
    state: GroupState, call: Call, caller: Caller, request: TxnOffsetCommitRequest
) -> Result:
    records: list[StoredRecord] = []
    response = TxnOffsetCommitResponse(
        topics=[_commit_topic(call, request, topic, records) for topic in request.topics]
    )
    if records:
        _check(_find_group(state, request), caller, request, records)
    producer = Producer(request.producer_id, request.producer_epoch)
    return Result(records, ((caller, response),), producer, on_refused=unchanged)


def replay_marker(state: GroupState, producer_id: int, is_commit: bool) -> None:
    state.offsets.replay_marker(producer_id, is_commit=is_commit)


def _find_group(state: GroupState, request: TxnOffsetCommitRequest) -> Group:
    group = find_group(state, request.group_id)
    if group is not None:
        return group
    if request.generation_id < 0:
        return SimpleGroup(request.group_id)
    raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"Group {request.group_id} does not exist, so it has no generation.")


def _check(group: Group, caller: Caller, request: TxnOffsetCommitRequest, records: list[StoredRecord]) -> None:
    try:
        check_partition = group.check_offset_commit(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation=request.generation_id,
            is_transactional=True,
            api_version=caller.api_version,
        )
        check_partitions(check_partition, records)
    except KafkaError as error:
        # Producers do not know of epochs.
        if error.code == ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise


def _commit_topic(
    call: Call,
    request: TxnOffsetCommitRequest,
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
    records: list[StoredRecord],
) -> _Topic:
    """Adds the records of what can be stored, and answers for each partition."""
    known = call.image.topics.get(topic.name)
    answer = _Topic(name=topic.name)
    for each in topic.partitions:
        error = ErrorCode.NONE
        metadata = each.committed_metadata or ""
        if known is None or each.partition_index not in known.partitions:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(metadata) > call.config.offset_metadata_max_bytes:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            value = OffsetCommitValue(
                offset=each.committed_offset,
                leader_epoch=each.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=call.now_ms,
                topic_id=known.id,
            )
            records.append(offset_record(request.group_id, topic.name, each.partition_index, value))
        answer.partitions.append(_Partition(partition_index=each.partition_index, error_code=error))
    return answer
