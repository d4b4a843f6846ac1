"""Two brokers that change places: a promote closes the source, a reverse makes it the mirror, and what only it had is
saved. The clients are librdkafka's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.cli import main
from tailrace.testing import Broker
from tailrace.wire.records import read_header

DEADLINE_S = 60.0
FAST = ("--set", "sync.interval.ms=200", "--set", "promote.quiet.ms=500")

pytestmark = pytest.mark.long


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    with Broker(data=tmp_path / "east") as east, Broker(data=tmp_path / "west") as west:
        yield east, west


def mirror(broker: Broker, *words: str, code: int = 0) -> None:
    assert main(["mirror", *words, "--bootstrap", broker.bootstrap]) == code


def write(broker: Broker, *values: str, topic: str = "orders", **settings: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _message: error and failures.append(error)
        )
    assert producer.flush(DEADLINE_S) == 0
    if failures:
        raise KafkaException(failures[0])


def read(broker: Broker, topic: str = "orders") -> list[tuple[int, str]]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error():
            consumer.close()
            return found
        if message is not None:
            found.append((message.offset(), message.value().decode()))
    raise AssertionError(f"{topic} has no end: {found[-5:]}")


def until(look: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def make(broker: Broker, topic: str = "orders") -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)


def has(broker: Broker, topic: str, count: int) -> bool:
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=DEADLINE_S).topics
    return topic in topics and len(read(broker, topic)) == count


def test_there_and_back_with_a_producer_that_never_stops(
    pair: tuple[Broker, Broker], capsys: pytest.CaptureFixture[str]
):
    east, west = pair
    make(east)
    write(east, "1", "2", "3")
    mirror(west, "create", "east", "--source", east.bootstrap, *FAST)
    until(lambda: has(west, "orders", 3), "it is mirrored")
    mirror(west, "promote", "east", "--wait", "30")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        write(east, "too late")
    mirror(east, "list")
    assert "orders was handed over to the cluster " in capsys.readouterr().err
    write(west, "4")
    mirror(west, "reverse", "east")
    until(lambda: read(east) == read(west), "the old source follows")
    assert [value for _offset, value in read(east)] == ["1", "2", "3", "4"]
    assert "orders.cut" not in AdminClient({"bootstrap.servers": east.bootstrap}).list_topics(timeout=DEADLINE_S).topics
    mirror(east, "promote", "east-reversed", "--wait", "30")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        write(west, "too late")
    write(east, "5")
    mirror(east, "reverse", "east-reversed", "--as", "east")
    until(lambda: read(east) == read(west), "and back")
    assert [value for _offset, value in read(west)] == ["1", "2", "3", "4", "5"]


def test_a_promote_that_is_taken_back_opens_the_source_again(pair: tuple[Broker, Broker]):
    east, west = pair
    make(east)
    write(east, "1")
    mirror(west, "create", "east", "--source", east.bootstrap, "--set", "sync.interval.ms=200", "--set",
           "promote.quiet.ms=60000")  # fmt: skip
    until(lambda: has(west, "orders", 1), "it is mirrored")
    mirror(west, "promote", "east")

    def is_closed() -> bool:
        try:
            write(east, "2")
        except KafkaException:
            return True
        return False

    until(is_closed, "the source is closed")
    mirror(west, "promote", "east", "--cancel")
    until(lambda: not is_closed(), "the source is open again")
    until(lambda: read(east) == read(west), "it is mirrored on")


def test_what_the_old_source_has_alone_is_saved_before_it_is_cut(pair: tuple[Broker, Broker]):
    east, west = pair
    make(east)
    write(east, *map(str, range(100)))
    mirror(west, "create", "east", "--source", east.bootstrap, *FAST)
    until(lambda: has(west, "orders", 100), "it is mirrored")
    mirror(west, "pause", "east")
    write(east, *(f"lost {number}" for number in range(500)), **{"compression.type": "zstd"})
    mirror(west, "failover", "east")
    write(west, "after", "the", "failover")
    mirror(west, "reverse", "east", "--dry-run")
    assert len(read(east)) == 600
    mirror(west, "reverse", "east")
    until(lambda: read(east) == read(west), "the old source follows")
    assert len(read(west)) == 103
    assert [value for _offset, value in read(east, "orders.cut")] == [f"lost {number}" for number in range(500)]
    with pytest.raises(KafkaException):
        write(east, "it is a mirror")


@pytest.mark.parametrize("kind", ["idempotent", "transactional"])
def test_a_producer_that_has_the_id_of_one_of_the_sources(pair: tuple[Broker, Broker], tmp_path: Path, kind: str):
    """Two clusters give out the same ids, and both producers count their batches from 0 on."""
    east, west = pair
    make(east)
    produce(east, kind, "there", 5)
    mirror(west, "create", "east", "--source", east.bootstrap, *FAST)
    until(lambda: has(west, "orders", 5), "it is mirrored")
    mirror(west, "promote", "east", "--wait", "30")
    produce(west, kind, "here", 5)
    assert [value for _offset, value in read(west)] == [f"{where} {n}" for where in ("there", "here") for n in range(5)]
    theirs, ours = (batches(tmp_path / side) for side in ("east", "west"))
    assert ours[: len(theirs)] == theirs
    assert set(theirs) & set(ours[len(theirs) :]), "the same ids, epochs and numbers of batches"


def produce(broker: Broker, kind: str, name: str, count: int) -> None:
    """A batch each."""
    is_transactional = kind == "transactional"
    settings = {"transactional.id": "payer"} if is_transactional else {"enable.idempotence": True}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    if is_transactional:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
    for number in range(count):
        producer.produce("orders", f"{name} {number}", partition=0)
        assert producer.flush(DEADLINE_S) == 0
    if is_transactional:
        producer.commit_transaction(DEADLINE_S)


def batches(folder: Path) -> list[tuple[int, int, int]]:
    (found,) = folder.rglob("orders-0/*.log")
    data, position, told = memoryview(found.read_bytes()), 0, []
    while position < len(data):
        header = read_header(data, position)
        if not header.is_control:
            told.append((header.producer_id, header.producer_epoch, header.base_sequence))
        position += header.size_bytes
    return told
