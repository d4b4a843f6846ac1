"""Bytes of old segments that change on the disk of one broker: found by the scrub, repaired from the others, and told
to readers where nobody else has them."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tailrace.testing import LOW_LATENCY, Broker, Cluster
from tests.real.raw import RawClient

from .observe import assert_replicas_equal, create_topic, leader_of, wait_in_sync

TOPIC = "rotten"
SCRUB = {
    "log.segment.bytes": 1 << 20,
    "log.initial.task.delay.ms": 200,
    "log.scrub.interval.ms": 1000,
    "log.scrub.max.bytes.per.second": 1 << 30,
    "log.flush.offset.checkpoint.interval.ms": 300,
}
RECORDS = 5000
WAIT_S = 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster({**LOW_LATENCY, **SCRUB}, brokers=3) as cluster:
        create_topic(cluster.bootstrap, TOPIC, 1)
        wait_in_sync(cluster.bootstrap, TOPIC)
        produce(cluster.bootstrap)
        time.sleep(2)  # Closed segments are synced within a second, and a checkpoint tells of it.
        yield cluster


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 32_768})
    failures: list[object] = []
    for number in range(RECORDS):
        value = b"%08d" % number + random.Random(number).randbytes(1000)
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: error and failures.append(error))
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failures == []


def first_segment(data: str, node: int | None = None) -> Path:
    folder = Path(data) if node is None else Path(data) / f"broker-{node}"
    return folder / f"{TOPIC}-0" / f"{0:020d}.log"


def flip(path: Path, position: int = 300_000) -> bytes:
    """Gives what the file was."""
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x04]))
    return before


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.1)


def read_all(bootstrap: str) -> list[int]:
    """The numbers of all records, by a client that checks CRCs, from the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True})
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(int(message.value()[:8]))
    finally:
        consumer.close()
    return found


def test_a_followers_segment_is_repaired_from_its_leader(cluster: Cluster):
    leader = leader_of(cluster.bootstrap, TOPIC)
    follower = next(node for node in cluster.broker_ids if node != leader)
    path = first_segment(cluster.data, follower)
    sound = flip(path)
    wait_until(lambda: path.read_bytes() == sound, "the segment is as it was")
    assert leader_of(cluster.bootstrap, TOPIC) == leader
    assert f"partition={TOPIC}-0" in cluster.log(follower)
    assert "records are damaged on the disk" in cluster.log(follower)
    assert "damaged records are repaired" in cluster.log(follower)
    assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)
    assert read_all(cluster.bootstrap) == list(range(RECORDS))


def test_a_leader_with_damage_hands_over_and_is_repaired(cluster: Cluster):
    leader = leader_of(cluster.bootstrap, TOPIC)
    path = first_segment(cluster.data, leader)
    sound = flip(path)
    wait_until(lambda: path.read_bytes() == sound, "the segment is as it was")
    assert "the lead moves to a replica that can read" in cluster.log(leader)
    assert read_all(cluster.bootstrap) == list(range(RECORDS))
    wait_in_sync(cluster.bootstrap, TOPIC)
    assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)


def test_kills_at_any_moment_of_a_repair_leave_a_good_log(cluster: Cluster):
    leader = leader_of(cluster.bootstrap, TOPIC)
    follower = next(node for node in cluster.broker_ids if node != leader)
    path = first_segment(cluster.data, follower)
    sound = path.read_bytes()
    chance = random.Random(1)
    for number in range(6):
        flip(path, 100_000 + 100_000 * number)
        time.sleep(chance.uniform(0.0, 2.0))
        cluster.kill(follower)
        files = os.listdir(path.parent)
        assert any(name.startswith(path.name) for name in files), files
        cluster.start(follower)
        wait_until(lambda: path.exists() and path.read_bytes() == sound, f"round {number}")
    wait_in_sync(cluster.bootstrap, TOPIC)
    assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)
    assert read_all(cluster.bootstrap) == list(range(RECORDS))


def test_with_one_replica_readers_are_told_and_everything_around_is_read():
    with Broker(SCRUB) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce(broker.bootstrap)
        time.sleep(2)
        flip(first_segment(broker.data))
        wait_until(lambda: "records are damaged on the disk" in broker.log(), "the log says so")
        with pytest.raises(KafkaException) as told:
            read_all(broker.bootstrap)
        assert told.value.args[0].code() == KafkaError.INVALID_MSG
        (line,) = [line for line in broker.log().splitlines() if "records are damaged on the disk" in line]
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        first, last = int(words["first_offset"]), int(words["last_offset"])
        assert words["partition"] == f"{TOPIC}-0"
        assert f"{0:020d}.log" in words["file"]
        assert "not repaired yet" in broker.log()
        with RawClient(broker.bootstrap) as client:
            failed = "kafka_server_brokertopicmetrics_failedfetchrequests_total"
            before = broker.metrics().value(failed, topic=TOPIC)
            assert [client.fetch(TOPIC, offset)[0] for offset in (first - 1, first, last, last + 1)] == [0, 2, 2, 0]
            assert broker.metrics().value(failed, topic=TOPIC) == before + 2


def test_an_active_segment_that_was_cut_after_a_clean_stop_is_looked_at():
    with Broker(SCRUB) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce(broker.bootstrap)
        broker.stop()
        active = max(first_segment(broker.data).parent.glob("*.log"))
        with active.open("r+b") as file:
            file.truncate(active.stat().st_size - 5)
        broker.start()
        assert "a clean stop is not trusted" in broker.log()
        # What is written now is read: no torn batch lies before it.
        with RawClient(broker.bootstrap) as client:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce(TOPIC, b"after", partition=0)
            assert producer.flush(10) == 0
            assert client.fetch(TOPIC, 0)[0] == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "check.crcs": True})
        try:
            consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
            deadline, last = time.monotonic() + WAIT_S, b""
            while last != b"after" and time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is not None:
                    assert message.error() is None
                    last = message.value()
            assert last == b"after"
        finally:
            consumer.close()
