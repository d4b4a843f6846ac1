"""How each API is refused as a whole: where the error code stands in its answer. The catalogue names the form.

    nothing named            at the top of the answer, in `error_code`, with the reason in `error_message` where there
                             is one
    "topics > responses",    in each item: an answer's item for each of the request's, along these arrays, with the
    "partitions"             fields that both have. `> groups.group_id`: the request's items are plain values, and this
                             is the field that they go to. An `error_code` at the top is set too
    the name of a function   in this module, for what depends on the version, the code or the request

As in Kafka's own client, so that every client finds the code where it looks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tailrace.broker.context import UnanswerableError
from tailrace.catalogue import CATALOGUE
from tailrace.coordinator.transactions.waiters import refuse as refuse_transaction
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ANONYMOUS, Principal
from tailrace.wire import apis
from tailrace.wire.apis import admin, data, groups, security, shares, transactions
from tailrace.wire.schema import Message, Struct

_INVALID_OFFSET = -1
_NO_TIMESTAMP = -1
_FIRST_OFFSET_FETCH_WITH_ERROR = 2
_FIRST_OFFSET_FETCH_OF_GROUPS = 8
_FIRST_LEAVE_WITH_MEMBERS = 3
_FIRST_FETCH_WITHOUT_PARTITIONS = 13
_FIRST_FIND_OF_MANY = 4
_FIRST_DELETION_DISABLED = 3


def refuse(request: Message, api_version: int, error: KafkaError) -> Message:
    """The answer to a request that fails as a whole. Raises UnanswerableError for one that asked for none."""
    form = CATALOGUE[request.api_key].failure
    if isinstance(form, str):
        return cast("Message", globals()[form](request, api_version, error))
    response = apis.response_type(request.api_key)()
    if hasattr(response, "error_code"):
        _fill(response, error)
    if form:
        _fill_items(request, response, form, error)
    return response


def _fill(item: Any, error: KafkaError) -> None:
    item.error_code = int(error.code)
    if hasattr(item, "error_message"):
        item.error_message = error.message or None


def _fill_items(asked: Any, answer: Struct, arrays: Sequence[str], error: KafkaError) -> None:
    """For each item of an array of the request one in an array of the answer, and so on inwards."""
    source, _, target = arrays[0].partition(" > ")
    target, _, value_field = (target or source).partition(".")
    item_type = next(field.struct for field in answer.fields if field.name == target)
    assert item_type is not None, f"{target} is an array of structs"
    items = getattr(answer, target)
    for each in getattr(asked, source) or ():
        item: Any = item_type()
        if value_field:
            setattr(item, value_field, each)
        else:
            _copy(each, item)
        if arrays[1:]:
            _fill_items(each, item, arrays[1:], error)
        else:
            _fill(item, error)
        items.append(item)


def _copy(source: Struct, target: Struct) -> None:
    """What both have, but for arrays, which have forms of their own."""
    names = {field.name for field in source.fields if field.kind != "array"}
    for field in target.fields:
        if field.name in names:
            value = getattr(source, field.name)
            if value is not None or field.nullable:
                setattr(target, field.name, value)


# ---- forms that depend on the version, the code or the request


def of_produce(request: data.ProduceRequest, _api_version: int, error: KafkaError) -> Message:
    if request.acks == 0:
        raise UnanswerableError
    response = data.ProduceResponse()
    _fill_items(request, response, ("topic_data > responses", "partition_data > partition_responses"), error)
    for answer in (each for topic in response.responses for each in topic.partition_responses):
        answer.base_offset = answer.log_start_offset = _INVALID_OFFSET
    return response


def of_share_offsets(
    request: shares.AlterShareGroupOffsetsRequest | shares.DeleteShareGroupOffsetsRequest,
    _api_version: int,
    error: KafkaError,
) -> Message:
    """What is wrong with topics is told of them, and all else at the top alone."""
    response = apis.response_type(request.api_key)()
    if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        is_by_partition = isinstance(request, shares.AlterShareGroupOffsetsRequest)
        _fill_items(request, response, ("topics > responses", *["partitions"] * is_by_partition), error)
    else:
        _fill(response, error)
    return response


def of_delete_records(request: data.DeleteRecordsRequest, _api_version: int, error: KafkaError) -> Message:
    response = data.DeleteRecordsResponse()
    _fill_items(request, response, ("topics", "partitions"), error)
    for answer in (each for topic in response.topics for each in topic.partitions):
        answer.low_watermark = _INVALID_OFFSET
    return response


def of_fetch(request: data.FetchRequest, api_version: int, error: KafkaError) -> Message:
    """Clients before topic ids look at the partitions."""
    response = data.FetchResponse(error_code=int(error.code), session_id=request.session_id)
    if api_version < _FIRST_FETCH_WITHOUT_PARTITIONS:
        partition = data.FetchResponse.PartitionData
        response.responses = [
            data.FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    partition(partition_index=each.partition, error_code=int(error.code), high_watermark=-1)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


def of_metadata(request: data.MetadataRequest, _api_version: int, error: KafkaError) -> Message:
    """Each topic. The code at the top has a meaning of its own, to begin anew (KIP-1102), and stays empty."""
    response = data.MetadataResponse()
    _fill_items(request, response, ("topics",), error)
    for topic in response.topics:
        topic.name = topic.name or ""  # One that was asked for by its id.
    return response


def of_alter_replica_log_dirs(
    request: admin.AlterReplicaLogDirsRequest, _api_version: int, error: KafkaError
) -> Message:
    response = admin.AlterReplicaLogDirsResponse
    partition = response.AlterReplicaLogDirPartitionResult
    return response(
        results=[
            response.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[partition(partition_index=index, error_code=int(error.code)) for index in topic.partitions],
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


def of_alter_user_scram_credentials(
    request: security.AlterUserScramCredentialsRequest, _api_version: int, error: KafkaError
) -> Message:
    response = security.AlterUserScramCredentialsResponse
    names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    results = [response.AlterUserScramCredentialsResult(user=name) for name in dict.fromkeys(names)]
    for result in results:
        _fill(result, error)
    return response(results=results)


def of_create_delegation_token(
    _request: security.CreateDelegationTokenRequest, _api_version: int, error: KafkaError
) -> Message:
    return refused_token(error.code, owner=ANONYMOUS, requester=ANONYMOUS)


def refused_token(code: ErrorCode, *, owner: Principal, requester: Principal) -> security.CreateDelegationTokenResponse:
    return security.CreateDelegationTokenResponse(
        error_code=int(code),
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=_NO_TIMESTAMP,
        expiry_timestamp_ms=_NO_TIMESTAMP,
        max_timestamp_ms=_NO_TIMESTAMP,
    )


def of_delete_topics(request: admin.DeleteTopicsRequest, api_version: int, error: KafkaError) -> Message:
    if error.code is ErrorCode.TOPIC_DELETION_DISABLED and api_version < _FIRST_DELETION_DISABLED:
        error = KafkaError(ErrorCode.INVALID_REQUEST, error.message)  # KIP-322.
    response = admin.DeleteTopicsResponse()
    _fill_items(request, response, ("topic_names > responses.name",), error)
    _fill_items(request, response, ("topics > responses",), error)
    return response


def of_alter_client_quotas(request: admin.AlterClientQuotasRequest, _api_version: int, error: KafkaError) -> Message:
    response = admin.AlterClientQuotasResponse
    return response(
        entries=[
            response.EntryData(
                error_code=int(error.code),
                error_message=error.message or None,
                entity=[
                    response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def of_describe_client_quotas(
    _request: admin.DescribeClientQuotasRequest, _api_version: int, error: KafkaError
) -> Message:
    return admin.DescribeClientQuotasResponse(error_code=int(error.code), error_message=error.message, entries=None)


def of_find_coordinator(request: groups.FindCoordinatorRequest, api_version: int, error: KafkaError) -> Message:
    nobody: dict[str, Any] = {"node_id": -1, "host": "", "port": -1}
    told: dict[str, Any] = {"error_code": int(error.code), "error_message": error.message or None}
    response = groups.FindCoordinatorResponse
    if api_version < _FIRST_FIND_OF_MANY:
        return response(**nobody, **told)
    return response(coordinators=[response.Coordinator(key=key, **nobody, **told) for key in request.coordinator_keys])


def of_offset_fetch(request: groups.OffsetFetchRequest, api_version: int, error: KafkaError) -> Message:
    code = int(error.code)
    if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        code = ErrorCode.NOT_COORDINATOR  # The only one of the two that clients before 3.9 expect here.
    response = groups.OffsetFetchResponse
    if api_version >= _FIRST_OFFSET_FETCH_OF_GROUPS:
        group = response.OffsetFetchResponseGroup
        return response(groups=[group(group_id=each.group_id, error_code=code) for each in request.groups])
    if api_version >= _FIRST_OFFSET_FETCH_WITH_ERROR:
        return response(error_code=code)
    partition = response.OffsetFetchResponsePartition
    return response(
        topics=[
            response.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    partition(partition_index=index, committed_offset=_INVALID_OFFSET, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def of_join_group(request: groups.JoinGroupRequest, _api_version: int, error: KafkaError) -> Message:
    return groups.JoinGroupResponse(error_code=int(error.code), member_id=request.member_id)


def of_heartbeat(_request: groups.HeartbeatRequest, _api_version: int, error: KafkaError) -> Message:
    # A group that is being loaded has not lost the member: its session begins anew afterwards.
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return groups.HeartbeatResponse(error_code=0 if is_loading else int(error.code))


def of_leave_group(request: groups.LeaveGroupRequest, api_version: int, error: KafkaError) -> Message:
    response = groups.LeaveGroupResponse()
    if error.code is ErrorCode.UNKNOWN_MEMBER_ID and api_version >= _FIRST_LEAVE_WITH_MEMBERS:
        _fill_items(request, response, ("members",), error)
    else:
        response.error_code = int(error.code)
    return response


def of_transaction(request: Message, api_version: int, error: KafkaError) -> Message:
    if isinstance(request, transactions.AddPartitionsToTxnRequest) and not request.transactions:
        return _of_old_add_partitions(request, error)
    return refuse_transaction(request, api_version, error.code)


def _of_old_add_partitions(request: transactions.AddPartitionsToTxnRequest, error: KafkaError) -> Message:
    """The form for clients, older than the one that brokers use among themselves."""
    response = transactions.AddPartitionsToTxnResponse
    partition = response.AddPartitionsToTxnPartitionResult
    return response(
        error_code=int(error.code),
        results_by_topic_v3_and_below=[
            response.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    partition(partition_index=index, partition_error_code=int(error.code)) for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ],
    )
