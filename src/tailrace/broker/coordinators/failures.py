"""What a client is told when a request to a coordinator fails as a whole.

Errors of the log below are not the client's business: they become errors of the coordinator, as in Kafka. Where a
response has no place for an error of the whole, each of its items gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.coordinator.transactions.waiters import refuse
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis import groups, transactions
from tailrace.wire.schema import Message

_INVALID_OFFSET = -1
_FIRST_OFFSET_FETCH_WITH_ERROR = 2
_FIRST_OFFSET_FETCH_OF_GROUPS = 8
_FIRST_LEAVE_WITH_MEMBERS = 3

_TRANSLATIONS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def failure_response(request: Message, api_version: int, error: KafkaError) -> Message:
    code = _TRANSLATIONS.get(error.code, error.code)
    # A message about the log would puzzle who sees an error of the coordinator.
    message = error.message if code is error.code else ""
    return _RESPONSES[request.api_key](_Failed(request, api_version, int(code), message or None))


class _Failed(NamedTuple):
    request: Any
    api_version: int
    code: int
    message: str | None


def _offset_commit(failed: _Failed) -> Message:
    response = groups.OffsetCommitResponse
    return response(
        topics=[
            response.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    response.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=failed.code)
                    for each in topic.partitions
                ],
            )
            for topic in failed.request.topics
        ]
    )


def _offset_fetch(failed: _Failed) -> Message:
    code = failed.code
    if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        code = ErrorCode.NOT_COORDINATOR  # The only one of the two that clients before 3.9 expect here.
    response = groups.OffsetFetchResponse
    if failed.api_version >= _FIRST_OFFSET_FETCH_OF_GROUPS:
        return response(
            groups=[
                response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                for group in failed.request.groups
            ]
        )
    if failed.api_version >= _FIRST_OFFSET_FETCH_WITH_ERROR:
        return response(error_code=code)
    return response(
        topics=[
            response.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    response.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=_INVALID_OFFSET, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in failed.request.topics or ()
        ]
    )


def _join_group(failed: _Failed) -> Message:
    return groups.JoinGroupResponse(error_code=failed.code, member_id=failed.request.member_id)


def _heartbeat(failed: _Failed) -> Message:
    # A group that is being loaded has not lost the member: its session begins anew afterwards.
    is_loading = failed.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return groups.HeartbeatResponse(error_code=0 if is_loading else failed.code)


def _leave_group(failed: _Failed) -> Message:
    response = groups.LeaveGroupResponse
    if failed.code != ErrorCode.UNKNOWN_MEMBER_ID or failed.api_version < _FIRST_LEAVE_WITH_MEMBERS:
        return response(error_code=failed.code)
    return response(
        members=[
            response.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=failed.code
            )
            for member in failed.request.members
        ]
    )


def _sync_group(failed: _Failed) -> Message:
    return groups.SyncGroupResponse(error_code=failed.code)


def _describe_groups(failed: _Failed) -> Message:
    described = groups.DescribeGroupsResponse.DescribedGroup
    return groups.DescribeGroupsResponse(
        groups=[
            described(group_id=group_id, error_code=failed.code, error_message=failed.message)
            for group_id in failed.request.groups
        ]
    )


def _list_groups(failed: _Failed) -> Message:
    return groups.ListGroupsResponse(error_code=failed.code)


def _delete_groups(failed: _Failed) -> Message:
    result = groups.DeleteGroupsResponse.DeletableGroupResult
    return groups.DeleteGroupsResponse(
        results=[result(group_id=group_id, error_code=failed.code) for group_id in failed.request.groups_names]
    )


def _offset_delete(failed: _Failed) -> Message:
    return groups.OffsetDeleteResponse(error_code=failed.code)


def _consumer_group_heartbeat(failed: _Failed) -> Message:
    return groups.ConsumerGroupHeartbeatResponse(error_code=failed.code, error_message=failed.message)


def _consumer_group_describe(failed: _Failed) -> Message:
    described = groups.ConsumerGroupDescribeResponse.DescribedGroup
    return groups.ConsumerGroupDescribeResponse(
        groups=[
            described(group_id=group_id, error_code=failed.code, error_message=failed.message)
            for group_id in failed.request.group_ids
        ]
    )


def _of_transaction(failed: _Failed) -> Message:
    return refuse(failed.request, failed.api_version, ErrorCode(failed.code))


def _txn_offset_commit(failed: _Failed) -> Message:
    response = transactions.TxnOffsetCommitResponse
    return response(
        topics=[
            response.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    response.TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=failed.code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in failed.request.topics
        ]
    )


def _describe_transactions(failed: _Failed) -> Message:
    described = transactions.DescribeTransactionsResponse.TransactionState
    return transactions.DescribeTransactionsResponse(
        transaction_states=[
            described(transactional_id=transactional_id, error_code=failed.code)
            for transactional_id in failed.request.transactional_ids
        ]
    )


_RESPONSES: dict[int, Callable[[_Failed], Message]] = {
    8: _offset_commit,
    9: _offset_fetch,
    11: _join_group,
    12: _heartbeat,
    13: _leave_group,
    14: _sync_group,
    15: _describe_groups,
    16: _list_groups,
    22: _of_transaction,
    24: _of_transaction,
    25: _of_transaction,
    26: _of_transaction,
    28: _txn_offset_commit,
    42: _delete_groups,
    47: _offset_delete,
    65: _describe_transactions,
    68: _consumer_group_heartbeat,
    69: _consumer_group_describe,
}
