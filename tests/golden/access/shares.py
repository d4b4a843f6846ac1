"""Requests of share groups, as `cases` has those of others."""

from __future__ import annotations

from tailrace.model.acls import CLUSTER_NAME, Kind, Operation
from tailrace.model.ids import Uuid
from tailrace.wire.apis import shares
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.schema import Message
from tests.golden.access.cases import Case
from tests.golden.access.requests import OTHER, TOPIC, State, plain

SHARE_GROUP = "sharers"
_READ_GROUP = (Operation.READ, Kind.GROUP, SHARE_GROUP)
_DESCRIBE_GROUP = (Operation.DESCRIBE, Kind.GROUP, SHARE_GROUP)
_DELETE_GROUP = (Operation.DELETE, Kind.GROUP, SHARE_GROUP)
_READ_TOPIC = (Operation.READ, Kind.TOPIC, TOPIC)
_DESCRIBE_TOPIC = (Operation.DESCRIBE, Kind.TOPIC, TOPIC)
_CLUSTER_ACTION = ((Operation.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME),)
_MEMBER = "ab0123456789abcdefghij"


def _beat(epoch: int) -> Message:
    topics = [TOPIC, OTHER] if epoch == 0 else None
    return shares.ShareGroupHeartbeatRequest(
        group_id=SHARE_GROUP, member_id=_MEMBER, member_epoch=epoch, subscribed_topic_names=topics
    )


def _ids(state: State) -> list[Uuid]:
    return [Uuid(state.topic_ids[name]) for name in (TOPIC, OTHER)]


def _fetch(state: State) -> Message:
    request = shares.ShareFetchRequest
    partition = request.FetchPartition(partition_index=0)
    topics = [request.FetchTopic(topic_id=each, partitions=[partition]) for each in _ids(state)]
    # An epoch of 0 opens a session anew each time.
    return request(group_id=SHARE_GROUP, member_id=_MEMBER, max_records=1, max_bytes=1, topics=topics)


def _acknowledge(state: State) -> Message:
    request = shares.ShareAcknowledgeRequest
    partition = request.AcknowledgePartition(partition_index=0)
    topics = [request.AcknowledgeTopic(topic_id=each, partitions=[partition]) for each in _ids(state)]
    return request(group_id="strangers", member_id=_MEMBER, share_session_epoch=1, topics=topics)


def _describe_offsets(_: State) -> Message:
    request = shares.DescribeShareGroupOffsetsRequest
    topic = request.DescribeShareGroupOffsetsRequestTopic
    topics = [topic(topic_name=name, partitions=[0]) for name in (TOPIC, OTHER)]
    return request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=topics)])


def _alter_offsets(_: State) -> Message:
    request = shares.AlterShareGroupOffsetsRequest
    partition = request.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topic = request.AlterShareGroupOffsetsRequestTopic
    return request(
        group_id=SHARE_GROUP, topics=[topic(topic_name=name, partitions=[partition]) for name in (TOPIC, OTHER)]
    )


def _delete_offsets(_: State) -> Message:
    request = shares.DeleteShareGroupOffsetsRequest
    topic = request.DeleteShareGroupOffsetsRequestTopic
    return request(group_id=SHARE_GROUP, topics=[topic(topic_name=name) for name in (TOPIC, OTHER)])


SHARE_CASES = (
    Case(
        "ShareGroupDescribe",
        plain(
            shares.ShareGroupDescribeRequest(group_ids=[SHARE_GROUP, "strangers"], include_authorized_operations=True)
        ),
        (1, 1),
        (_DESCRIBE_GROUP,),
    ),
    Case("ShareFetch", _fetch, (1, 2), (_READ_GROUP, _READ_TOPIC)),
    Case("ShareAcknowledge", _acknowledge, (1, 2), ((Operation.READ, Kind.GROUP, "strangers"), _READ_TOPIC)),
    Case("DescribeShareGroupOffsets", _describe_offsets, (0, 1), (_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    Case("AlterShareGroupOffsets", _alter_offsets, (0, 0), (_READ_GROUP, _READ_TOPIC)),
    Case("DeleteShareGroupOffsets", _delete_offsets, (0, 0), (_DELETE_GROUP, _READ_TOPIC)),
    *(
        Case(request.__name__.removesuffix("Request"), plain(request(group_id=SHARE_GROUP)), versions, _CLUSTER_ACTION)
        for request, versions in (
            (shares.InitializeShareGroupStateRequest, (0, 0)),
            (shares.ReadShareGroupStateRequest, (0, 0)),
            (shares.WriteShareGroupStateRequest, (0, 1)),
            (shares.DeleteShareGroupStateRequest, (0, 0)),
            (shares.ReadShareGroupStateSummaryRequest, (0, 1)),
        )
    ),
    # Last: from then on the group has a member.
    Case(
        "ShareGroupHeartbeat",
        plain(
            shares.ShareGroupHeartbeatRequest(
                group_id=SHARE_GROUP, member_id=_MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC]
            )
        ),
        (1, 1),
        (_READ_GROUP, _DESCRIBE_TOPIC),
    ),
)

# What makes a group that has read: its coordinator is found, a member joins, its states are there, it leaves.
JOINING = (
    (FindCoordinatorRequest(key_type=0, coordinator_keys=[SHARE_GROUP]), 4),
    (_beat(0), 1),
    (_describe_offsets(State({})), 1),
    (_beat(-1), 1),
)
