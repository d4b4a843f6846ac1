"""What Spark's tasks write, accepted by Apache Kafka and read back by its clients' library."""

from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.client.partitioner import partition_for_key
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.sink.task import write_idempotently
from tests.apache_kafka import ApacheKafka

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COUNT = 3000


def test_apache_kafka_takes_what_the_sink_writes(kafka_class_path: str, tmp_path: Path) -> None:
    keys = [None if number % 7 == 0 else b"k%d" % number for number in range(COUNT)]
    values = [None if number % 11 == 0 else b"%05d" % number * 40 for number in range(COUNT)]
    headers = [[("n", b"%d" % number), ("none", None)] if number % 2 else None for number in range(COUNT)]
    rows = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    with ApacheKafka(kafka_class_path, tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            (created,) = admin.create_topics([NewTopic(codec, 3, 1)]).values()
            created.result(DEADLINE_S)
            # Small batches, so that many of each partition are under way at once.
            settings = {"kafka.batch.size": "4096", "kafka.compression.type": codec, "topic": codec}
            options = WriteOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap} | settings)
            assert write_idempotently([rows], options).records == COUNT

            found = read_all(kafka.bootstrap, codec)

            assert len(found) == COUNT
            keyed = {record.key(): record for record in found if record.key() is not None}
            for key, value, header in zip(keys, values, headers, strict=True):
                if key is not None:
                    record = keyed[key]
                    assert (record.value(), record.headers()) == (value, header)
                    assert record.partition() == partition_for_key(key, 3)


def read_all(bootstrap: str, topic: str) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    found = consumer.consume(COUNT + 1, timeout=5)
    consumer.close()
    return found
