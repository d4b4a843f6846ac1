"""Commits and deletions of offsets that are refused, and odd names that are not; the codes are those of Kafka 4.3."""

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import DeleteGroupsRequest, OffsetDeleteRequest

from .asker import Asker


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "no-such-topic"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": ""}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"committed_metadata": "x" * 4096}, ErrorCode.NONE),
        ({"committed_metadata": "x" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"committed_metadata": None}, ErrorCode.NONE),
        ({"generation_id_or_member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"generation_id_or_member_epoch": 1, "member_id": "stranger"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"generation_id_or_member_epoch": 1, "member_id": "stranger", "version": 8}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.NONE),
        ({"group": ""}, ErrorCode.NONE),
    ],
)
def test_a_commit_without_membership(asker: Asker, group: str, topic: str, fields: dict[str, Any], error: ErrorCode):
    code = asker.commit(**{"group": group, "topic": topic, **fields})
    assert ErrorCode(code) == error


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_to_a_group_with_members(
    asker: Asker, group: str, topic: str, fields: dict[str, Any], error: ErrorCode
):
    member_id, generation = asker.join_alone(group)
    code = asker.commit(
        **{
            "group": group,
            "topic": topic,
            "member_id": member_id,
            "generation_id_or_member_epoch": generation,
            **fields,
        }
    )
    assert ErrorCode(code) == error
    assert asker.committed(group, topic) == (-1 if error else 1)


@pytest.mark.parametrize("name", ["a/b", " ", "..", "é\n\x1b[2J", "x" * 20_000, "\0"])
def test_a_group_may_have_any_name(asker: Asker, topic: str, fresh_group: Callable[[], str], name: str):
    group = f"{fresh_group()}{name}"
    assert asker.commit(group, topic, committed_offset=7) == 0
    assert asker.committed(group, topic) == 7
    deleted = asker.ask(DeleteGroupsRequest(groups_names=[group, group]))
    assert [each.error_code for each in deleted.results] == [0] * len(deleted.results)
    assert asker.committed(group, topic) == -1


def test_offsets_of_a_subscribed_topic_stay(asker: Asker, group: str, topic: str):
    # A subscription of version 0 to the topic, without user data.
    metadata = b"\0\0" + b"\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"
    member_id, generation = asker.join_alone(group, protocols={"range": metadata})
    assert asker.commit(group, topic, member_id=member_id, generation_id_or_member_epoch=generation) == 0
    answer = asker.ask(_deletion(group, topic))
    assert answer.error_code == 0
    assert ErrorCode(answer.topics[0].partitions[0].error_code) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert asker.committed(group, topic) == 1
    deleted = asker.ask(DeleteGroupsRequest(groups_names=[group, "no-such-group"]))
    assert {each.group_id: ErrorCode(each.error_code) for each in deleted.results} == {
        group: ErrorCode.NON_EMPTY_GROUP,
        "no-such-group": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_offsets_of_nobody_are_not_deleted(asker: Asker, topic: str):
    answer = asker.ask(_deletion("no-such-group", topic))
    assert ErrorCode(answer.error_code) == ErrorCode.GROUP_ID_NOT_FOUND


def _deletion(group: str, topic: str) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    )
