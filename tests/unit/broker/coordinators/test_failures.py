"""A request to a coordinator that fails as a whole: every group API can say so in each of its versions."""

from typing import Any

import pytest

from tailrace.broker.context import BoundListener, RequestContext
from tailrace.broker.coordinators.calls import CoordinatorCall
from tailrace.catalogue import CATALOGUE
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire import apis
from tailrace.wire.apis import groups
from tailrace.wire.compile import decode, encode

SERVED = {api.key: api.for_clients for api in CATALOGUE.values() if api.for_clients}
COMMIT, FETCH, LEAVE = groups.OffsetCommitRequest, groups.OffsetFetchRequest, groups.LeaveGroupRequest
REQUESTS: dict[int, Any] = {
    8: COMMIT(
        topics=[
            COMMIT.OffsetCommitRequestTopic(
                name="t",
                partitions=[COMMIT.OffsetCommitRequestPartition(partition_index=index) for index in (3, 4)],
            )
        ]
    ),
    9: FETCH(
        topics=[FETCH.OffsetFetchRequestTopic(name="t", partition_indexes=[3, 4])],
        groups=[FETCH.OffsetFetchRequestGroup(group_id="g"), FETCH.OffsetFetchRequestGroup(group_id="h")],
    ),
    11: groups.JoinGroupRequest(member_id="m"),
    12: groups.HeartbeatRequest(),
    13: LEAVE(members=[LEAVE.MemberIdentity(member_id="m", group_instance_id="i")]),
    14: groups.SyncGroupRequest(),
    15: groups.DescribeGroupsRequest(groups=["g", "h"]),
    42: groups.DeleteGroupsRequest(groups_names=["g", "h"]),
    47: groups.OffsetDeleteRequest(),
    68: groups.ConsumerGroupHeartbeatRequest(),
    69: groups.ConsumerGroupDescribeRequest(group_ids=["g", "h"]),
}


def failure_response(request: Any, version: int, error: KafkaError) -> Any:
    context = RequestContext(
        api_key=request.api_key,
        api_version=version,
        correlation_id=1,
        client_id="c",
        peer="h:1",
        listener=BoundListener("PLAINTEXT", "h", 1),
    )
    return CoordinatorCall(context, request).failure(error)


def codes(message: Any) -> set[int]:
    """All error codes in it, but for the zero of the whole where its items have them."""
    items = [
        *getattr(message, "groups", ()),
        *getattr(message, "results", ()),
        *(each for topic in getattr(message, "topics", ()) for each in topic.partitions),
    ]
    return {each.error_code for each in items} or {message.error_code}


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (api_key, version)
        for api_key in REQUESTS
        for version in range(SERVED[api_key].version_min, SERVED[api_key].version_max + 1)
    ],
)
def test_every_version_has_a_place_for_it(api_key: int, version: int) -> None:
    request = REQUESTS[api_key]
    response = failure_response(request, version, KafkaError(ErrorCode.NOT_COORDINATOR, "elsewhere"))
    told = decode(apis.response_type(api_key), version, bytes(encode(response, version)))
    assert codes(told) == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_errors_of_the_log_become_errors_of_the_coordinator(inner: ErrorCode, outer: ErrorCode) -> None:
    response: Any = failure_response(REQUESTS[68], 1, KafkaError(inner, "about it"))
    assert response.error_code == outer
    assert response.error_message == ("about it" if inner is outer else None)


def test_offset_fetch_is_never_told_that_the_coordinator_is_not_available() -> None:
    response: Any = failure_response(REQUESTS[9], 5, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert response.error_code == ErrorCode.NOT_COORDINATOR


def test_a_heartbeat_to_a_coordinator_that_loads_is_good() -> None:
    response: Any = failure_response(REQUESTS[12], 4, KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [2, 3])
def test_members_of_a_group_that_does_not_exist_are_unknown_one_by_one(version: int) -> None:
    response: Any = failure_response(REQUESTS[13], version, KafkaError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert response.error_code == (ErrorCode.UNKNOWN_MEMBER_ID if version < 3 else 0)
    assert [(each.member_id, each.error_code) for each in response.members] == (
        [] if version < 3 else [("m", ErrorCode.UNKNOWN_MEMBER_ID)]
    )
