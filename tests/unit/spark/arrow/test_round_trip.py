"""What producers wrote, read by ranges and decoded, against our own broker on this loop."""

from collections.abc import AsyncIterator

import pytest

from tailrace.client.admin import Admin
from tailrace.client.fetching import ConsumerOptions, Isolation
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer, ProducerOptions
from tailrace.client.ranges import RangeReader
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.ports import real_ports
from tailrace.spark.arrow.decode import Columns, Decoder
from tailrace.testing import Broker
from tailrace.wire.records import Compression

PARTITION = TopicPartition("t", 0)
COMMITTED = ConsumerOptions(isolation=Isolation.READ_COMMITTED, retry_timeout_ms=500, fetch_max_wait_ms=50)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Broker(in_process=True) as broker:
        cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
        await Admin(cluster).create_topic("t", partition_count=1)
        yield cluster
        cluster.close()


async def read(
    cluster: Cluster, start: int, end: int, options: ConsumerOptions, *names: str
) -> list[tuple[object, ...]]:
    reader = RangeReader(cluster, PARTITION, start, end, options)
    decoder = Decoder(PARTITION, start, end, Columns(names))
    rows: list[tuple[object, ...]] = []
    try:
        while (fetched := await reader.next()) is not None:
            for batch in decoder.decode(fetched):
                rows += [tuple(row[name] for name in names) for row in batch.to_pylist()]
    finally:
        await reader.close()
    return rows


@pytest.mark.parametrize("codec", list(Compression))
async def test_a_range_in_many_small_fetches(cluster: Cluster, codec: Compression):
    sent = [(b"k%d" % n if n % 3 else None, b"v" * n if n % 5 else None, [("n", b"%d" % n)]) for n in range(600)]
    async with Producer(cluster, ProducerOptions(compression=codec, batch_bytes=5000)) as producer:
        for key, value, headers in sent:
            await producer.send("t", value, key=key, headers=headers)
    # Smaller than a batch: a broker gives a whole one nevertheless.
    options = ConsumerOptions(partition_max_bytes=100)
    found = await read(cluster, 17, 583, options, "offset", "key", "value", "headers")
    assert found == [
        (offset, key, value, [{"key": name, "value": text} for name, text in headers])
        for offset, (key, value, headers) in enumerate(sent)
        if 17 <= offset < 583
    ]


async def test_only_what_was_committed_is_seen(cluster: Cluster):
    async with TransactionalProducer(cluster, TransactionOptions("id")) as producer:
        for number in range(6):
            producer.begin()
            await (await producer.send("t", b"%d" % number))
            await (producer.abort if number % 3 == 0 else producer.commit)()
        # Each was followed by a marker.
        committed = [(2, b"1"), (4, b"2"), (8, b"4"), (10, b"5")]
        assert await read(cluster, 0, 12, COMMITTED, "offset", "value") == committed
        assert await read(cluster, 3, 9, COMMITTED, "offset", "value") == committed[1:3]
        everything = [(2 * number, b"%d" % number) for number in range(6)]
        assert await read(cluster, 0, 12, ConsumerOptions(), "offset", "value") == everything
        producer.begin()
        await (await producer.send("t", b"open"))
        with pytest.raises(KafkaError, match="a transaction is open since offset 12"):
            await read(cluster, 0, 13, COMMITTED, "value")
        await producer.commit()
        assert await read(cluster, 10, 14, COMMITTED, "offset", "value") == [(10, b"5"), (12, b"open")]
