"""ConsumerGroupHeartbeat (KIP-848) as no member should send it; the codes are those of Kafka 4.3."""

from typing import Any

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest

from .asker import Asker


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": " "}, ErrorCode.NONE),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "version": 0}, ErrorCode.NONE),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": 0}, ErrorCode.NONE),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.NONE),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (
            {"topic_partitions": [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=bytes(16), partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"server_assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "(?=a)"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": "", "subscribed_topic_names": None}, ErrorCode.NONE),
        ({"subscribed_topic_regex": "(a*)*b", "subscribed_topic_names": None}, ErrorCode.NONE),
        ({"epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_first_heartbeat(asker: Asker, group: str, fields: dict[str, Any], error: ErrorCode):
    if fields.get("group") == " ":
        fields = {"group": f"{group} "}
    answer = asker.heartbeat(**{"group": group, **fields})
    assert ErrorCode(answer.error_code) == error, answer.error_message


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 99}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_id": "stranger", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2, "instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"rebalance_timeout_ms": 0}, ErrorCode.NONE),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "["}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"epoch": -1}, ErrorCode.NONE),
    ],
)
def test_a_later_heartbeat(asker: Asker, group: str, fields: dict[str, Any], error: ErrorCode):
    joined = asker.heartbeat(group)
    assert joined.error_code == 0
    answer = asker.heartbeat(**{"group": group, "epoch": joined.member_epoch, **fields})
    assert ErrorCode(answer.error_code) == error, answer.error_message


def test_an_identity_has_one_member(asker: Asker, group: str):
    assert asker.heartbeat(group, "one", instance_id="static").error_code == 0
    answer = asker.heartbeat(group, "two", instance_id="static")
    assert ErrorCode(answer.error_code) == ErrorCode.UNRELEASED_INSTANCE_ID
    assert asker.heartbeat(group, "one", epoch=-2, instance_id="static").error_code == 0
    assert asker.heartbeat(group, "two", instance_id="static").error_code == 0
    answer = asker.heartbeat(group, "one", epoch=1, instance_id="static")
    assert ErrorCode(answer.error_code) in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_group_is_full_at_its_limit(asker: Asker, group: str):
    codes = [asker.heartbeat(group, f"member-{index}").error_code for index in range(4)]
    assert codes == [0, 0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_the_offsets_of_a_member_need_its_epoch(asker: Asker, group: str, topic: str):
    epoch = asker.heartbeat(group).member_epoch
    for fields, error in (
        ({"member_id": "member", "generation_id_or_member_epoch": epoch}, ErrorCode.NONE),
        ({"member_id": "member", "generation_id_or_member_epoch": epoch + 1}, ErrorCode.STALE_MEMBER_EPOCH),
        ({"member_id": "stranger", "generation_id_or_member_epoch": epoch}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert ErrorCode(asker.commit(group, topic, **fields)) == error
    # An old client would take the code for another one.
    old = asker.commit(group, topic, 8, member_id="member", generation_id_or_member_epoch=epoch + 1)
    assert ErrorCode(old) == ErrorCode.UNSUPPORTED_VERSION


def test_a_classic_member_of_another_kind_finds_no_place(asker: Asker, group: str):
    assert asker.heartbeat(group).error_code == 0
    answer = asker.join(group, version=3, protocol_type="connect")
    assert ErrorCode(answer.error_code) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
