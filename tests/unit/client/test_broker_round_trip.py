"""Producer, consumer and admin client together, against our own broker on this loop."""

from collections.abc import AsyncIterator

import pytest

from tailrace.client.admin import RESOURCE_TOPIC, SOURCE_TOPIC, Admin
from tailrace.client.consumer import EARLIEST, LATEST, Consumer
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer, ProducerOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.ports import real_ports
from tailrace.testing import Broker
from tailrace.wire.records import Compression

NOW = 1_790_000_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Broker(in_process=True) as broker:
        cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
        yield cluster
        cluster.close()


@pytest.mark.parametrize("codec", list(Compression))
async def test_what_was_produced_is_consumed(cluster: Cluster, codec: Compression):
    await Admin(cluster).create_topic("t", partition_count=3)
    sent = [(b"k%d" % n if n % 3 else None, b"v" * n if n % 5 else None, [("n", b"%d" % n)]) for n in range(500)]
    async with Producer(cluster, ProducerOptions(compression=codec, batch_bytes=5000)) as producer:
        futures = [await producer.send("t", value, key=key, headers=headers) for key, value, headers in sent]
    consumer = Consumer(cluster)
    partitions = [TopicPartition("t", index) for index in range(3)]
    await consumer.assign(await consumer.offsets_at(partitions, EARLIEST))
    found = {}
    while len(found) < len(sent):
        records = await consumer.poll(5000)
        assert records
        for partition, some in records.items():
            found |= {(partition, record.offset): record for record in some}
    for future, (key, value, headers) in zip(futures, sent, strict=True):
        record = found[future.result().partition, future.result().offset]
        assert (record.key, record.value, record.headers) == (key, value, tuple(headers))
    await consumer.close()


async def test_the_cluster_is_described(cluster: Cluster):
    admin = Admin(cluster)
    (broker,) = await admin.brokers()
    assert (broker.node_id, broker.is_fenced) == (1, False)
    assert cluster.cluster_id is not None
    quorum = await admin.describe_quorum()
    assert (quorum.leader_id, [voter.node_id for voter in quorum.voters]) == (1, [1])
    assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0
    assert quorum.observers == ()


async def test_partitions_that_stay_where_they_are(cluster: Cluster):
    admin = Admin(cluster)
    await admin.create_topic("t", partition_count=2)
    partitions = [TopicPartition("t", index) for index in range(2)]
    assert await admin.elect_leaders(partitions) == dict.fromkeys(partitions, ErrorCode.ELECTION_NOT_NEEDED)
    await admin.reassign_partitions({partitions[0]: [1]})
    assert await admin.reassignments() == {}
    with pytest.raises(KafkaError, match="t-1 is not moved") as refused:
        await admin.reassign_partitions({partitions[1]: [7]})
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_an_unknown_broker_is_not_unregistered(cluster: Cluster):
    with pytest.raises(KafkaError, match="broker 7 is still registered") as refused:
        await Admin(cluster).unregister_broker(7)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_reading_by_time(cluster: Cluster):
    await Admin(cluster).create_topic("t")
    async with Producer(cluster, ProducerOptions(batch_bytes=300)) as producer:
        for number in range(100):
            await producer.send("t", b"%d" % number, timestamp=NOW + number * 1000)
    consumer = Consumer(cluster)
    partition = TopicPartition("t", 0)
    assert await consumer.offsets_at([partition], NOW + 41_500) == {partition: 42}
    assert await consumer.offsets_at([partition], NOW + 10**9) == {partition: 100}
    assert await consumer.offsets_at([partition], LATEST) == {partition: 100}


async def test_topics_are_created_described_altered_and_deleted(cluster: Cluster):
    admin = Admin(cluster)
    created = await admin.create_topic("t", partition_count=2, configs={"retention.ms": "1000"})
    assert (created.name, created.partition_count, created.replication_factor) == ("t", 2, 1)
    (topic,) = await admin.describe_topics(["t"])
    assert topic.id == created.id
    assert list(topic.partitions) == [0, 1]
    await admin.create_partitions("t", 4)
    assert [len(topic.partitions) for topic in await admin.topics()] == [4]
    await admin.alter_configs(RESOURCE_TOPIC, "t", changes={"segment.ms": "5000"}, removals=["retention.ms"])
    own = {
        entry.name: entry.value for entry in await admin.configs_of(RESOURCE_TOPIC, "t") if entry.source == SOURCE_TOPIC
    }
    assert own == {"segment.ms": "5000"}
    await admin.delete_topic("t")
    assert await admin.topics() == []


async def test_refusals_carry_the_code_and_the_cause(cluster: Cluster):
    admin = Admin(cluster)
    await admin.create_topic("t")
    refusals = {
        ErrorCode.TOPIC_ALREADY_EXISTS: lambda: admin.create_topic("t"),
        ErrorCode.INVALID_TOPIC_EXCEPTION: lambda: admin.create_topic("a/b"),
        ErrorCode.INVALID_CONFIG: lambda: admin.create_topic("u", configs={"no.such": "1"}),
        ErrorCode.INVALID_PARTITIONS: lambda: admin.create_partitions("t", 1),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: lambda: admin.delete_topic("u"),
    }
    for code, action in refusals.items():
        with pytest.raises(KafkaError) as raised:
            await action()
        assert raised.value.code is code
        assert raised.value.message
    await admin.create_topic("v", validate_only=True)
    assert [topic.name for topic in await admin.topics()] == ["t"]


async def test_a_topic_is_created_by_producing_only_if_asked(cluster: Cluster):
    async with Producer(cluster, ProducerOptions()) as producer:
        with pytest.raises(KafkaError, match="tailrace topic create new"):
            await producer.send("new", b"x")
    async with Producer(cluster, ProducerOptions(create_topics=True)) as producer:
        delivered = await producer.send("new", b"x")
    assert delivered.result().offset == 0
