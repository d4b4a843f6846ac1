"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as no member should send them; the codes are those of Kafka 4.3."""

import time
from typing import Any

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import DescribeGroupsRequest, HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest

from .asker import CLIENT_ID, TIMEOUT_S, Asker, Background, join_request


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": ""}, ErrorCode.NONE),
    ],
)
def test_a_join_that_makes_no_sense(asker: Asker, group: str, fields: dict[str, Any], error: ErrorCode):
    answer = asker.join(group, **fields)
    assert ErrorCode(answer.error_code) == error
    assert answer.generation_id == (-1 if error else 1)


def test_a_first_join_is_told_its_member_id(asker: Asker, group: str):
    answer = asker.join(group)
    assert (ErrorCode(answer.error_code), answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    assert answer.member_id.startswith(f"{CLIENT_ID}-")
    again = asker.join(group, answer.member_id)
    assert (again.error_code, again.member_id, again.leader) == (0, answer.member_id, answer.member_id)


def test_members_must_agree_on_type_and_protocol(asker: Asker, group: str):
    asker.join_alone(group, protocols={"range": b"1", "sticky": b"2"})
    for fields in ({"protocol_type": "connect"}, {"protocols": {"other": b""}}):
        answer = asker.join(group, version=3, **fields)
        assert ErrorCode(answer.error_code) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_is_full_at_its_limit(bootstrap: str, asker: Asker, group: str):
    # The group.max.size of these tests is 2.
    asker.join_alone(group, group_instance_id="first")
    second = Background(bootstrap, join_request(group, group_instance_id="second"), 9)
    _wait_rebalance(asker, group)
    assert asker.join(group, group_instance_id="first").error_code == 0
    assert second.result().error_code == 0
    third = asker.join(group, group_instance_id="third")
    assert ErrorCode(third.error_code) == ErrorCode.GROUP_MAX_SIZE_REACHED


def _wait_rebalance(asker: Asker, group: str) -> None:
    """Until the group wants its members to join again."""
    deadline = time.monotonic() + TIMEOUT_S
    while asker.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0].group_state != "PreparingRebalance":
        assert time.monotonic() < deadline, f"nobody else joins {group}"
        time.sleep(0.01)


def _member(asker: Asker, group: str) -> tuple[str, int]:
    return asker.join_alone(group, group_instance_id="static")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "stranger"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "stranger", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "no-such-group"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("kind", [HeartbeatRequest, SyncGroupRequest])
def test_a_member_is_known_by_all_that_it_says(
    asker: Asker, group: str, kind: type[Any], fields: dict[str, Any], error: ErrorCode
):
    member_id, generation = _member(asker, group)
    request = kind(
        **{
            "group_id": group,
            "member_id": member_id,
            "generation_id": generation,
            "group_instance_id": "static",
            **fields,
        }
    )
    assert ErrorCode(asker.ask(request, 3).error_code) == error


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
        ({"protocol_type": "connect", "protocol_name": "range"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_must_repeat_what_was_agreed(asker: Asker, group: str, fields: dict[str, str], error: ErrorCode):
    member_id, generation = asker.join_alone(group)
    request = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member_id, **fields)
    assert ErrorCode(asker.ask(request, 5).error_code) == error


def test_who_leaves_must_be_a_member(asker: Asker, group: str):
    member_id, _ = _member(asker, group)
    identities = [
        ("stranger", None),
        ("stranger", "static"),
        ("", "nobody"),
        (member_id, "static"),
        (member_id, "static"),
    ]
    members = [LeaveGroupRequest.MemberIdentity(member_id=name, group_instance_id=at) for name, at in identities]
    answer = asker.ask(LeaveGroupRequest(group_id=group, members=members), 5)
    assert answer.error_code == 0
    assert [ErrorCode(each.error_code) for each in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    old = asker.ask(LeaveGroupRequest(group_id=group, member_id=member_id), 2)
    assert ErrorCode(old.error_code) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_subscription_too_large_to_be_stored(asker: Asker, group: str):
    """It is more than max.message.bytes of the topic of offsets: the group is not harmed for long."""
    answer = asker.join(group, version=3, protocols={"range": bytes(2_000_000)})
    assert answer.error_code == 0
    request = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")],
    )
    synced = asker.ask(request, 3)
    assert ErrorCode(synced.error_code) == ErrorCode.UNKNOWN_SERVER_ERROR
    asker.ask(LeaveGroupRequest(group_id=group, member_id=answer.member_id), 2)
    asker.join_alone(group)
