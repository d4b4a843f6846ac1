"""Two faults at a time: the broker and the driver are killed, while rows are merged, copied, and become dead letters.

What is there in the end is read by deltalake and librdkafka.
"""

import json
import random
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from tailrace.testing import Broker
from tests.spark.test_operating import folder, running, tailrace
from tests.spark.test_pipeline_command import QUICK

__all__ = ["folder"]  # A fixture.

DEADLINE_S = 120.0
ROUNDS = 5
RECORDS_A_ROUND = 400
# Of the pipelines: what their checkpoints are called.
NAMES = ("copy", "last", "good")

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("java_for_spark")]


def declare(folder, bootstrap):
    """A copy of the topic, the last row of each key, and the records that can be read."""
    sinks = {
        "copy": ("SELECT value, partition FROM r", 'topic = "copied"', ""),
        "last": (
            "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v, partition, offset FROM r",
            f'table = "{folder}/last"\nformat = "delta"\nmerge_on = "k"\nomit = ["partition", "offset"]',
            "",
        ),
        "good": (
            "SELECT value.n FROM r",
            f'table = "{folder}/good"\nformat = "delta"',
            'format = "json"\nschema = "n INT"\ndead_letters = "dead"',
        ),
    }
    for name, (sql, sink, source) in sinks.items():
        file = folder / f"{name}.toml"
        file.write_text(f"""
name = "{name}"
bootstrap = "{bootstrap}"
checkpoint = "{folder}/{name}-checkpoint"
[sources.r]
topic = "source"
batch_records_max = 40
{source}
[transform]
sql = "{sql}"
[sink]
{sink}
""")
        yield file


def write(bootstrap, first):
    """Every tenth record cannot be read."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(first, first + RECORDS_A_ROUND):
        value = f"bad {n}" if n % 10 == 0 else json.dumps({"n": n})
        producer.produce("source", value, str(n % 23), n % 23 % 2)
    assert producer.flush(DEADLINE_S) == 0


def finished(folder, name):
    return sum(path.name.isdigit() for path in (folder / f"{name}-checkpoint" / "commits").glob("*"))


def values(bootstrap, topic, partitions):
    settings = {"bootstrap.servers": bootstrap, "group.id": "checker", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found, ended, deadline = [], set(), time.monotonic() + DEADLINE_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{topic} does not end"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
        elif message is not None:
            assert message.error().code() == -191, message.error()  # The end of a partition.
            ended.add(message.partition())
    consumer.close()
    return found


def test_the_broker_and_the_driver_are_killed_at_a_time(folder):
    chance = random.Random(22)
    with Broker(start_timeout_s=DEADLINE_S) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wanted = [NewTopic("source", 2, 1), NewTopic("copied", 2, 1), NewTopic("dead", 1, 1)]
        for created in admin.create_topics(wanted).values():
            created.result(DEADLINE_S)
        files = list(declare(folder, broker.bootstrap))
        for number in range(ROUNDS):
            write(broker.bootstrap, number * RECORDS_A_ROUND)
            before = {name: finished(folder, name) for name in NAMES}
            with running(*files) as driver:
                deadline = time.monotonic() + 2 * DEADLINE_S
                while any(finished(folder, name) <= before[name] for name in NAMES):
                    assert driver.poll() is None, driver.stderr.read()
                    assert time.monotonic() < deadline, "a pipeline does not begin"
                    time.sleep(0.05)
                time.sleep(chance.uniform(0, 2))
                broker.kill()
                if number % 2:  # The driver sees for a while that the broker is gone, or back.
                    time.sleep(chance.uniform(0, 2))
                if number == 3:
                    broker.start()
                    time.sleep(chance.uniform(0, 2))
                assert driver.poll() is None, driver.stderr.read()
            if number != 3:
                broker.start()
        tailrace("run", *files, "--once", "--master=local[2]", *QUICK)

        everything = range(ROUNDS * RECORDS_A_ROUND)
        texts = {n: f"bad {n}" if n % 10 == 0 else json.dumps({"n": n}) for n in everything}
        assert Counter(values(broker.bootstrap, "copied", 2)) == Counter(texts.values())
        # A letter may be there twice: its batch ran twice.
        assert set(values(broker.bootstrap, "dead", 1)) == {texts[n] for n in everything if n % 10 == 0}
    good = DeltaTable(str(folder / "good")).to_pyarrow_table()["n"].to_pylist()
    assert sorted(good) == [n for n in everything if n % 10]
    last = DeltaTable(str(folder / "last")).to_pyarrow_table().to_pylist()
    assert {row["k"]: row["v"] for row in last} == {str(n % 23): texts[n] for n in everything}
    assert len(last) == 23
