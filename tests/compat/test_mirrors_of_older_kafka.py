"""Apache Kafka 2.1, 2.8 and 3.9 as sources of a mirror: each knows less of what a mirror asks for than the next one.

Before 2.7 (KIP-595) a Fetch does not tell where histories part, and before 3.1 (KIP-516) it names no topic by an id.
Each source dies and comes back meanwhile, in a later leader epoch: a second broker, which has none of what is mirrored,
is there to notice it.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker
from tailrace.wire.records import read_header
from tests.apache_kafka import ApacheKafka
from tests.compat.conftest import maven_jars
from tests.compat.test_mirrors_of_kafka import (
    DEADLINE_S,
    LINK,
    SETTINGS,
    broker,
    committed,
    described,
    ends_of,
    mirror,
    read,
    stored,
    transact,
    wait_group,
    wait_mirrored,
    write,
)
from tests.older_kafka import KafkaWithZooKeeper

__all__ = ["broker", "mirror"]

pytestmark = pytest.mark.long

NODE_ID = 2
TOPICS = {"zipped": 3, "latest": 2, "money": 2}


@pytest.fixture(params=["2.1", "2.8", "3.9"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApacheKafka]:
    """The broker that has everything."""
    class_path = maven_jars(f"tests/compat/java/servers/{request.param}/pom.xml")
    folders = [tmp_path / "other", tmp_path / "kafka"]
    for folder in folders:
        folder.mkdir()
    kind = ApacheKafka if request.param == "3.9" else KafkaWithZooKeeper
    with (
        kind(class_path, folders[0], settings=SETTINGS) as other,
        kind(class_path, folders[1], settings=SETTINGS, node_id=NODE_ID, controller=other.controller) as running,
    ):
        yield running


def make(kafka: ApacheKafka, name: str, partitions: int, **settings: str) -> None:
    config = {key.replace("_", "."): text for key, text in settings.items()}
    topic = NewTopic(name, partitions, replica_assignment=[[NODE_ID]] * partitions, config=config)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([topic])[name].result(DEADLINE_S)


def fill(kafka: ApacheKafka) -> None:
    make(kafka, "zipped", 3, compression_type="zstd", segment_bytes="1048576")
    write(kafka, "zipped", 3000)
    write(kafka, "zipped", 2000, **{"enable.idempotence": True, "compression.type": "zstd"})
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "200"}
    make(kafka, "latest", 2, **settings)
    write(kafka, "latest", 3000)
    make(kafka, "money", 2)
    transact(kafka, "money", "one", "commit", "abort", "commit")


def epochs_in(batches: bytes) -> set[int]:
    """The leader epochs of whole batches."""
    epochs, position = set(), 0
    while position < len(batches):
        header = read_header(memoryview(batches), position)
        epochs.add(header.leader_epoch)
        position += header.size_bytes
    return epochs


def is_compacted(folder: Path) -> bool:
    return len(stored(folder, "latest", 0)) < 40_000


def test_bytes_offsets_and_groups_of_an_older_source(
    kafka: ApacheKafka, broker: Broker, mirror: Callable[..., str], tmp_path: Path
):
    fill(kafka)
    source, here = tmp_path / "kafka" / "data", tmp_path / "tailrace"
    for _ in range(20):  # Begins segments anew, so that the old ones are compacted.
        if is_compacted(source):
            break
        write(kafka, "latest", 60)
        time.sleep(0.5)
    assert is_compacted(source)
    hanging = transact(kafka, "money", "two", "commit", "open")
    first = read(kafka.bootstrap, "readers", "zipped", 1500, commits=True)
    mirror("create", "dc1", "--source", kafka.bootstrap, *LINK)
    before = {(each["topic"], each["partition"]): each for each in wait_mirrored(mirror, TOPICS)}
    assert [each["open_transactions"] != [] for key, each in before.items() if key[0] == "money"] == [True, True]
    kafka.kill()
    kafka.restart()
    write(kafka, "zipped", 500)  # In a later leader epoch.
    deadline = time.monotonic() + DEADLINE_S
    while ends_of(broker.bootstrap, "zipped", 3) != ends_of(kafka.bootstrap, "zipped", 3):
        assert time.monotonic() < deadline, described(mirror)
        time.sleep(0.2)
    after = {(each["topic"], each["partition"]): each for each in wait_mirrored(mirror, TOPICS)}
    epochs = epochs_in(stored(source, "zipped", 0))
    assert len(epochs) > 1
    assert all(after["zipped", index]["leader_epoch"] >= max(epochs) for index in range(3))
    assert all(each["problem"] is None for each in after.values())
    wait_group(broker, committed(kafka.bootstrap))

    for topic, count in TOPICS.items():
        assert ends_of(broker.bootstrap, topic, count) == ends_of(kafka.bootstrap, topic, count)
        for index in range(count):
            assert stored(here, topic, index) == stored(source, topic, index), f"{topic}-{index}"

    kafka.kill()
    mirror("failover", "dc1")
    own = Producer({"bootstrap.servers": broker.bootstrap})
    own.produce("zipped", b"own", partition=0)
    assert own.flush(DEADLINE_S) == 0
    rest = read(broker.bootstrap, "readers", "zipped", 5501 - len(first))
    assert len(first) + len(rest) == 5501, "the group goes on at its exact record"
    assert not {each[:2] for each in first} & {each[:2] for each in rest}
    money = [value for _partition, _offset, value in read(broker.bootstrap, "auditors", "money", 60, more_s=1)]
    assert sorted({value.split()[1] for value in money}) == [b"commit"]
    assert len(money) == 60
    del hanging


def test_a_topic_that_is_made_again_is_not_taken_for_the_one_before(
    kafka: ApacheKafka, broker: Broker, mirror: Callable[..., str]
):
    """Only the newest of these sources tells it by an id, and the link, which is paused, does not see it missing."""
    make(kafka, "orders", 1)
    write(kafka, "orders", 500)
    mirror("create", "dc1", "--source", kafka.bootstrap, *LINK)
    wait_mirrored(mirror, {"orders": 1})
    mirror("pause", "dc1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics(["orders"])["orders"].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    while "orders" in admin.list_topics(timeout=DEADLINE_S).topics:
        assert time.monotonic() < deadline
    while True:
        try:
            make(kafka, "orders", 1)
            break
        except KafkaException:  # It is being deleted still.
            assert time.monotonic() < deadline
            time.sleep(0.1)
    write(kafka, "orders", 900)
    mirror("resume", "dc1")
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (found,) = described(mirror)
        assert found["high_watermark"] == 500
        if found["state"] == "stopped":
            break
        assert time.monotonic() < deadline, (found["problem"], found["source_end_offset"])
        time.sleep(0.1)
    assert "made again" in found["problem"] or "made anew" in found["problem"]
