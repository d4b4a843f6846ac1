"""`kill -9` on both sides while topics change hands: the command is given again, what was acknowledged is somewhere,
and nobody writes to both sides."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.cli import main
from tailrace.testing import Broker, Cluster
from tests.real.mirrors.test_handover import DEADLINE_S, FAST, until

PARTITIONS = 4
KILLS = 6
PATIENCE_S = 120.0

pytestmark = pytest.mark.long


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    with Broker(data=tmp_path / "east") as east, Broker(data=tmp_path / "west") as west:
        yield east, west


class Killer(threading.Thread):
    """Kills one side at a time or both, at random moments, and starts them again: so often, or until it is ended."""

    def __init__(self, pair: tuple[Broker, Broker], seed: int) -> None:
        super().__init__()
        self.kills = 0
        self._pair, self._random = pair, random.Random(seed)
        self._is_ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_ended.wait(self._random.uniform(0.05, 1.5)):
            chosen = self._random.choice([self._pair[:1], self._pair[1:], self._pair])
            for broker in chosen:
                broker.kill()
            for broker in chosen:
                broker.start()
            self.kills += 1

    def end(self) -> None:
        self._is_ended.set()
        self.join(DEADLINE_S)


class Writer(threading.Thread):
    """Writes values that begin with its name to all partitions, until it is ended; what is refused is let go."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__()
        self.acked: list[str] = []
        self._name = name
        patient = {"message.timeout.ms": 20_000, "socket.timeout.ms": 2000, "reconnect.backoff.max.ms": 200}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **patient})
        self._is_ended = threading.Event()
        self.start()

    def run(self) -> None:
        number = 0
        while not self._is_ended.wait(0.005):
            self.write(f"{self._name} {number}", number % PARTITIONS)
            number += 1
            self._producer.poll(0)
        self._producer.flush(DEADLINE_S)

    def write(self, value: str, partition: int) -> None:
        def note(error: object, _message: object) -> None:
            if error is None:
                self.acked.append(value)

        self._producer.produce("orders", value, partition=partition, on_delivery=note)

    def end(self) -> list[str]:
        self._is_ended.set()
        self.join(DEADLINE_S)
        return self.acked


def persist(broker: Broker, *words: str) -> None:
    """As an operator does whose command was cut off."""
    deadline = time.monotonic() + PATIENCE_S
    while main(["mirror", *words, "--bootstrap", broker.bootstrap]) != 0:
        assert time.monotonic() < deadline, words
        time.sleep(0.2)


def fill(bootstrap: str, name: str, count: int) -> list[str]:
    values = [f"{name} {number}" for number in range(count)]
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd"})
    for number, value in enumerate(values):
        producer.produce("orders", value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    return values


def make(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, -1)])["orders"].result(DEADLINE_S)


def read(bootstrap: str, topic: str = "orders") -> list[tuple[int, int, str]]:
    """Partition, offset and value, up to the end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[tuple[int, int, str]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} has no end: {ended}"
        message = consumer.poll(0.5)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            found.append((message.partition(), message.offset(), message.value().decode()))
    consumer.close()
    return sorted(found)


def values_of(bootstrap: str, topic: str = "orders") -> list[str]:
    return [value for _partition, _offset, value in read(bootstrap, topic)]


def is_refused(bootstrap: str) -> bool:
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000})
    producer.produce("orders", "too late", partition=0, on_delivery=lambda error, _message: refused.append(error))
    producer.flush(DEADLINE_S)
    return "POLICY_VIOLATION" in str(refused)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_failover_and_a_reverse(pair: tuple[Broker, Broker], seed: int):
    east, west = pair
    make(east.bootstrap)
    common = fill(east.bootstrap, "common", 4000)
    assert main(["mirror", "create", "east", "--source", east.bootstrap, *FAST, "--bootstrap", west.bootstrap]) == 0
    until(lambda: has_topic(west.bootstrap) and len(read(west.bootstrap)) == len(common), "it is mirrored")
    persist(west, "pause", "east")
    alone = fill(east.bootstrap, "alone", 6000)
    killer = Killer(pair, seed)
    try:
        persist(west, "failover", "east")
        writer = Writer(west.bootstrap, "own")
        persist(west, "reverse", "east")
        until(lambda: killer.kills >= KILLS, "they are killed")
    finally:
        killer.end()
    own = writer.end()
    assert own, "somebody wrote meanwhile"
    until(lambda: read(east.bootstrap) == read(west.bootstrap), "the old source follows")
    here = values_of(west.bootstrap)
    assert {*common, *own} <= set(here)
    assert len(here) == len(set(here)), "nothing is doubled"
    assert set(alone) == set(values_of(east.bootstrap, "orders.cut")), "what was cut is saved, and nothing else"
    assert is_refused(east.bootstrap)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_promote_with_writers_on_both_sides(pair: tuple[Broker, Broker], seed: int):
    east, west = pair
    make(east.bootstrap)
    common = fill(east.bootstrap, "common", 4000)
    assert main(["mirror", "create", "east", "--source", east.bootstrap, *FAST, "--bootstrap", west.bootstrap]) == 0
    until(lambda: has_topic(west.bootstrap), "it is mirrored")
    writers = [Writer(east.bootstrap, "east"), Writer(west.bootstrap, "west")]
    killer = Killer(pair, seed)
    try:
        until(lambda: writers[0].acked, "somebody writes there")
        persist(west, "promote", "east", "--wait", "10")
        until(lambda: killer.kills >= KILLS and writers[1].acked, "somebody writes here")
    finally:
        killer.end()
        there, here = [writer.end() for writer in writers]
    found = values_of(west.bootstrap)
    assert {*common, *there, *here} <= set(found), "all that was acknowledged on either side"
    assert len(found) == len(set(found)), "nothing is doubled"
    assert is_refused(east.bootstrap)
    assert set(values_of(east.bootstrap)) <= set(found), "nothing came to the source behind the promote"


def test_the_link_breaks_and_leaders_and_controllers_die_between_the_steps_of_a_promote(tmp_path: Path):
    """The source is closed, and a transaction that is open there keeps the mirror from being opened."""
    with (
        Broker(data=tmp_path / "east") as east,
        Cluster({"default.replication.factor": 3}, brokers=3, data=tmp_path / "west") as west,
    ):
        make(east.bootstrap)
        common = fill(east.bootstrap, "common", 4000)
        words = ("--source", east.bootstrap, *FAST, "--bootstrap", west.bootstrap)
        assert main(["mirror", "create", "east", *words]) == 0
        until(lambda: has_topic(west.bootstrap) and len(read(west.bootstrap)) == len(common), "it is mirrored")
        settings = {
            "bootstrap.servers": east.bootstrap,
            "transactional.id": "hanging",
            "transaction.timeout.ms": 300_000,
        }
        hanging = Producer(settings)
        hanging.init_transactions(DEADLINE_S)
        hanging.begin_transaction()
        hanging.produce("orders", "hanging", partition=1)
        assert hanging.flush(DEADLINE_S) == 0
        assert main(["mirror", "promote", "east", "--bootstrap", west.bootstrap]) == 0
        until(lambda: is_refused(east.bootstrap), "the source is closed")
        for name in [each for each in west.nodes if each.startswith("controller-")]:
            east.pause()
            topics = AdminClient({"bootstrap.servers": west.bootstrap}).list_topics(timeout=DEADLINE_S).topics
            leader = topics["orders"].partitions[1].leader
            west.kill(name)
            west.kill(leader)
            time.sleep(2)
            east.resume()
            assert is_refused(west.bootstrap), "neither side takes records"
            assert is_refused(east.bootstrap), "neither side takes records"
            west.start(name)
            west.start(leader)
        hanging.abort_transaction(DEADLINE_S)
        assert main(["mirror", "promote", "east", "--wait", "60", "--bootstrap", west.bootstrap]) == 0
        own = fill(west.bootstrap, "own", 100)
        assert sorted(values_of(west.bootstrap)) == sorted([*common, *own])
        assert is_refused(east.bootstrap)


def has_topic(bootstrap: str) -> bool:
    try:
        return "orders" in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=5).topics
    except KafkaException:
        return False
