"""The tables `groups` and `consumer_offsets`."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from tailrace.client.groups.admin import DescribedGroup, GroupAdmin, GroupMember
from tailrace.client.groups.offsets import Committed
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.spark.tables.table import Row, SystemTable
from tailrace.spark.tables.topics import read_high_watermarks


async def _read_groups(cluster: Cluster) -> list[Row]:
    admin = GroupAdmin(cluster)
    rows: list[Row] = []
    for group in await admin.groups():
        described = await _describe(admin, group.group_id)
        rows.append(
            (
                group.group_id,
                group.type or (described.type if described else None),
                group.protocol_type,
                described.state if described else group.state,
                group.coordinator_id,
                (described.assignor or None) if described else None,
                described.epoch if described else None,
                [_member_row(member) for member in described.members] if described else None,
            )
        )
    return rows


async def _describe(admin: GroupAdmin, group_id: str) -> DescribedGroup | None:
    """None if it is of a kind that is described in another way, or has gone meanwhile."""
    try:
        return await admin.describe(group_id)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise


def _member_row(member: GroupMember) -> Row:
    assignment = [(topic, int(index)) for topic, index in member.assignment]
    return member.member_id, member.instance_id, member.client_id, member.client_host, assignment


async def _read_consumer_offsets(cluster: Cluster) -> list[Row]:
    admin = GroupAdmin(cluster)
    committed = {group.group_id: await _committed(admin, group.group_id) for group in await admin.groups()}
    # Asked last, so that a group that keeps up is not shown ahead of the end.
    high_watermarks = await read_high_watermarks(cluster)
    return [
        _offset_row(group_id, partition, offset, high_watermarks.get(partition))
        for group_id, offsets in committed.items()
        for partition, offset in sorted(offsets.items())
    ]


async def _committed(admin: GroupAdmin, group_id: str) -> dict[TopicPartition, Committed]:
    """Without waiting for open transactions: this is for people who look, also at a transaction that hangs."""
    try:
        return await admin.offsets_of(group_id, lambda offsets: offsets.fetch(require_stable=False))
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise


def _offset_row(group_id: str, partition: TopicPartition, committed: Committed, high_watermark: int | None) -> Row:
    return (
        group_id,
        partition.topic,
        int(partition.partition),
        committed.offset,
        committed.leader_epoch if committed.leader_epoch >= 0 else None,
        committed.metadata,
        high_watermark,
        None if high_watermark is None else max(0, high_watermark - committed.offset),
    )


_ASSIGNED = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
    ]
)
_MEMBER = StructType(
    [
        StructField("member_id", StringType(), nullable=False),
        StructField("instance_id", StringType()),
        StructField("client_id", StringType(), nullable=False),
        StructField("host", StringType(), nullable=False),
        StructField("assignment", ArrayType(_ASSIGNED), nullable=False),
    ]
)

GROUPS = SystemTable(
    StructType(
        [
            StructField("group_id", StringType(), nullable=False),
            # Null if the broker is too old to tell.
            StructField("type", StringType()),
            StructField("protocol_type", StringType(), nullable=False),
            StructField("state", StringType(), nullable=False),
            StructField("coordinator", IntegerType(), nullable=False),
            StructField("assignor", StringType()),
            # Classic groups do not tell their generation.
            StructField("epoch", IntegerType()),
            # Null for groups that are not described in the way of consumers.
            StructField("members", ArrayType(_MEMBER)),
        ]
    ),
    _read_groups,
)

CONSUMER_OFFSETS = SystemTable(
    StructType(
        [
            StructField("group_id", StringType(), nullable=False),
            StructField("topic", StringType(), nullable=False),
            StructField("partition", IntegerType(), nullable=False),
            StructField("committed_offset", LongType(), nullable=False),
            StructField("leader_epoch", IntegerType()),
            StructField("metadata", StringType()),
            # Null if the partition has no leader, or is gone.
            StructField("high_watermark", LongType()),
            StructField("lag", LongType()),
        ]
    ),
    _read_consumer_offsets,
)
