"""The tables `topics` and `partitions`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tailrace.client.admin import RESOURCE_TOPIC, SOURCE_TOPIC, Admin
from tailrace.client.consumer import Isolation
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.offsets import EARLIEST, LATEST, list_offsets
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition, uuid_text
from tailrace.spark.tables.table import Row, SystemTable


async def _read_topics(cluster: Cluster) -> list[Row]:
    admin = Admin(cluster)
    return [
        (
            topic.name,
            uuid_text(topic.id),
            topic.is_internal,
            len(topic.partitions),
            max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
            await _own_configs(admin, topic.name),
        )
        for topic in await admin.topics()
    ]


async def _read_topic_ids(cluster: Cluster) -> list[Row]:
    return [(topic.name, uuid_text(topic.id)) for topic in (await cluster.refresh(None)).values()]


async def _own_configs(admin: Admin, topic: str) -> dict[str, str | None] | None:
    """None if we may not see them."""
    try:
        entries = await admin.configs_of(RESOURCE_TOPIC, topic)
    except KafkaError as error:
        if error.code.retriable:
            raise
        return None
    return {entry.name: entry.value for entry in entries if entry.source == SOURCE_TOPIC}


async def _read_partitions(cluster: Cluster) -> list[Row]:
    topics = await remember_topics(cluster)
    led = led_partitions(topics)
    starts = await _ask_offsets(cluster, led, EARLIEST, Isolation.READ_UNCOMMITTED)
    high_watermarks = await _ask_offsets(cluster, led, LATEST, Isolation.READ_UNCOMMITTED)
    last_stable = await _ask_offsets(cluster, led, LATEST, Isolation.READ_COMMITTED)
    rows: list[Row] = []
    for name, topic in sorted(topics.items()):
        for index, partition in topic.partitions.items():
            where = TopicPartition(name, partition.partition)
            rows.append(
                (
                    name,
                    index,
                    partition.leader_id if partition.leader_id >= 0 else None,
                    partition.leader_epoch if partition.leader_epoch >= 0 else None,
                    list(partition.replicas),
                    list(partition.isr),
                    list(partition.offline_replicas),
                    starts.get(where),
                    high_watermarks.get(where),
                    last_stable.get(where),
                )
            )
    return rows


async def read_high_watermarks(cluster: Cluster) -> dict[TopicPartition, int]:
    """The high watermarks of all partitions that have a leader."""
    led = led_partitions(await remember_topics(cluster))
    return await _ask_offsets(cluster, led, LATEST, Isolation.READ_UNCOMMITTED)


async def remember_topics(cluster: Cluster) -> dict[str, TopicMetadata]:
    """All of them, kept by the cluster, so that their leaders are not asked for one by one."""
    names = list(await cluster.refresh(None))
    return await cluster.refresh(names)


def led_partitions(topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in topics.values()
        for partition in topic.partitions.values()
        if partition.leader_id >= 0
    ]


async def _ask_offsets(
    cluster: Cluster, partitions: list[TopicPartition], which: int, isolation: Isolation
) -> dict[TopicPartition, int]:
    return await list_offsets(
        cluster,
        dict.fromkeys(partitions, which),
        isolation=isolation,
        timeout_ms=cluster.limits.request_timeout_ms,
    )


TOPICS = SystemTable(
    StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("topic_id", StringType(), nullable=False),
            StructField("is_internal", BooleanType(), nullable=False),
            StructField("partition_count", IntegerType(), nullable=False),
            StructField("replication_factor", IntegerType(), nullable=False),
            # Those that the topic does not leave to the defaults.
            StructField("configs", MapType(StringType(), StringType())),
        ]
    ),
    _read_topics,
)

# One request for all of them, where `topics` asks for the settings of each.
TOPIC_IDS = SystemTable(
    StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("topic_id", StringType(), nullable=False),
        ]
    ),
    _read_topic_ids,
)

PARTITIONS = SystemTable(
    StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("partition", IntegerType(), nullable=False),
            # Null while there is none; so are the offsets then, which only a leader tells.
            StructField("leader", IntegerType()),
            StructField("leader_epoch", IntegerType()),
            StructField("replicas", ArrayType(IntegerType()), nullable=False),
            StructField("isr", ArrayType(IntegerType()), nullable=False),
            StructField("offline_replicas", ArrayType(IntegerType()), nullable=False),
            StructField("log_start_offset", LongType()),
            StructField("high_watermark", LongType()),
            StructField("last_stable_offset", LongType()),
        ]
    ),
    _read_partitions,
)
