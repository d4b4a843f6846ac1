"""One copy of a partition is damaged while all brokers are down, and its broker comes back first: nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest

from tailrace.testing import LOW_LATENCY, Cluster

from .observe import assert_replicas_equal, create_topic, leader_of, partitions_of, wait_in_sync

TOPIC = "orders"
RECORDS = 5_000
# The damaged broker is alone for so long: longer than an election among replicas that were away waits.
ALONE_S = 4.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(LOW_LATENCY) as cluster:
        yield cluster


def flip_a_byte(folder: Path) -> None:
    (segment,) = folder.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 4)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def flip_a_length(folder: Path) -> None:
    """The second batch now seems to reach beyond the end of the file, as one that was torn does."""
    (segment,) = folder.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(8)
        second = 12 + int.from_bytes(file.read(4), "big")
        file.seek(second + 8)
        file.write(b"\x7f")


def cut_at_a_batch(folder: Path) -> None:
    """What is left is a sound log: it just ends too early."""
    (segment,) = folder.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(8)
        file.truncate(12 + int.from_bytes(file.read(4), "big"))


def lose_the_segment(folder: Path) -> None:
    for path in folder.glob("*.log"):
        path.unlink()


DAMAGES = (flip_a_byte, flip_a_length, cut_at_a_batch, lose_the_segment, shutil.rmtree)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_leader_that_is_back_first_takes_nothing_from_the_others(
    cluster: Cluster, damage: Callable[[Path], None]
) -> None:
    topic = f"{TOPIC}-{damage.__name__}"
    create_topic(cluster.bootstrap, topic, 1)
    wait_in_sync(cluster.bootstrap, topic)
    values = produce(cluster.bootstrap, topic)
    leader = leader_of(cluster.bootstrap, topic)
    others = [node for node in cluster.broker_ids if node != leader]
    # All at once: where the others are known to be dead before the leader is, it has been alone in sync.
    with ThreadPoolExecutor() as threads:
        list(threads.map(cluster.kill, (*others, leader)))
    damage(Path(cluster.data) / f"broker-{leader}" / f"{topic}-0")
    cluster.start(leader)
    time.sleep(ALONE_S)
    for node in others:
        cluster.start(node)
    assert consume(cluster.bootstrap, topic, RECORDS) == values
    wait_in_sync(cluster.bootstrap, topic)
    assert_replicas_equal(cluster.data, cluster.bootstrap, topic)


def produce(bootstrap: str, topic: str) -> list[bytes]:
    values = [b"%08d" % number for number in range(RECORDS)]
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 100})
    refused: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not refused
    return values


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(1000, timeout=1.0) if message.error() is None]
    consumer.close()
    return found


def test_a_partition_whose_only_sound_replicas_are_away_waits_for_them(cluster: Cluster) -> None:
    topic = "waiting"
    create_topic(cluster.bootstrap, topic, 1)
    wait_in_sync(cluster.bootstrap, topic)
    produce(cluster.bootstrap, topic)
    leader = leader_of(cluster.bootstrap, topic)
    others = [node for node in cluster.broker_ids if node != leader]
    session_s = LOW_LATENCY["broker.session.timeout.ms"] / 1000
    for node in others:
        cluster.kill(node)
    time.sleep(3 * session_s)  # Fenced before the leader: a leader that goes first is not counted on any more.
    cluster.kill(leader)
    time.sleep(3 * session_s)  # Now all are fenced, and all are eligible.
    shutil.rmtree(Path(cluster.data) / f"broker-{leader}" / f"{topic}-0")
    cluster.start(leader)
    time.sleep(ALONE_S)
    assert partitions_of(cluster.bootstrap, topic)[0].leader_id == -1
    command = [sys.executable, "-m", "tailrace", "cluster", "describe", "--json", "--bootstrap", cluster.bootstrap]
    described = subprocess.run(command, capture_output=True, check=True, timeout=60)
    awaited = json.loads(described.stdout)["waits_for"][f"{topic}-0"]
    assert awaited, "one that was killed last"
    assert set(awaited) <= set(others)
    assert "a damaged replica is filled again from the others" in cluster.log(leader)
    for node in others:
        cluster.start(node)
    wait_in_sync(cluster.bootstrap, topic)
