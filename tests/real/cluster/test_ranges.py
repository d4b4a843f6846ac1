"""A range is read to its end while the leader of its partition is killed, and another one after it."""

import asyncio

import pytest
from confluent_kafka import Producer

from tailrace import testing
from tailrace.client.fetching import ConsumerOptions
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.ranges import RangeReader
from tailrace.model.ids import TopicPartition
from tailrace.real.ports import real_ports
from tailrace.spark.arrow.decode import Columns, Decoder

from .observe import create_topic, leader_of, wait_in_sync

TOPIC = "range"
RECORDS = 20_000
DEADLINE_S = 60


@pytest.mark.long
def test_leaders_die_while_a_range_is_read():
    with testing.Cluster(testing.LOW_LATENCY) as nodes:
        create_topic(nodes.bootstrap, TOPIC, 1)
        wait_in_sync(nodes.bootstrap, TOPIC)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "batch.size": 10_000, "linger.ms": 5})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        assert asyncio.run(_read_while_leaders_die(nodes)) == [b"%d" % number for number in range(RECORDS)]


async def _read_while_leaders_die(nodes: testing.Cluster) -> list[bytes]:
    cluster = Cluster(real_ports(), parse_bootstrap(nodes.bootstrap))
    partition = TopicPartition(TOPIC, 0)
    reader = RangeReader(cluster, partition, 0, RECORDS, ConsumerOptions(partition_max_bytes=10_000))
    decoder = Decoder(partition, 0, RECORDS, Columns(("value",)))
    values: list[bytes] = []
    deaths = [RECORDS // 4, RECORDS // 2]
    while (fetched := await asyncio.wait_for(reader.next(), DEADLINE_S)) is not None:
        for batch in decoder.decode(fetched):
            values += batch.column("value").to_pylist()
        if deaths and len(values) >= deaths[0]:
            deaths.pop(0)
            leader = await asyncio.to_thread(leader_of, nodes.bootstrap, TOPIC)
            await asyncio.to_thread(nodes.kill, leader)
            if deaths:
                # Two of three have to be there for the third to lead.
                await asyncio.to_thread(nodes.start, leader)
                await asyncio.to_thread(wait_in_sync, nodes.bootstrap, TOPIC)
    assert not deaths, "the range was read before all leaders had died"
    await reader.close()
    cluster.close()
    return values
