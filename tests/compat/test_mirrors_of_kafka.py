"""Apache Kafka as the source of a mirror: the same bytes at the same offsets, and clients go on where they were."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.cli import main
from tailrace.testing import Broker
from tests.apache_kafka import ApacheKafka
from tests.compat.test_dump_log import _complaints, _dump

DEADLINE_S = 30.0
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
LINK = ("--set", "sync.interval.ms=300", "--set", "promote.quiet.ms=1000")


@pytest.fixture
def kafka(kafka_class_path: str, tmp_path: Path) -> Iterator[ApacheKafka]:
    folder = tmp_path / "kafka"
    folder.mkdir()
    with ApacheKafka(kafka_class_path, folder, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data=tmp_path / "tailrace") as running:
        yield running


@pytest.fixture
def mirror(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`tailrace mirror`, and what it prints."""

    def run(*words: str, code: int = 0) -> str:
        assert main(["mirror", *words, "--bootstrap", broker.bootstrap]) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def make(kafka: ApacheKafka, name: str, partitions: int, **settings: str) -> None:
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): text for key, text in settings.items()})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([topic]).values():
        made.result(DEADLINE_S)


def write(kafka: ApacheKafka, topic: str, count: int, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 2, **settings})
    for number in range(count):
        producer.produce(topic, key=b"%d" % (number % 50), value=b"%06d" % number * 5)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def transact(kafka: ApacheKafka, topic: str, name: str, *ends: str) -> Producer:
    """Transactions that end so; the last one may stay open."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(DEADLINE_S)
    for end in ends:
        producer.begin_transaction()
        for number in range(20):
            producer.produce(topic, key=b"%d" % number, value=f"{name} {end} {number}")
        producer.flush(DEADLINE_S)
        if end == "commit":
            producer.commit_transaction(DEADLINE_S)
        elif end == "abort":
            producer.abort_transaction(DEADLINE_S)
    return producer


def described(mirror: Callable[..., str], link: str = "dc1") -> list[dict[str, Any]]:
    return [json.loads(line) for line in mirror("describe", link, "--json").splitlines()]


def wait_mirrored(mirror: Callable[..., str], topics: dict[str, int]) -> list[dict[str, Any]]:
    """Until all that the source has is here."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = described(mirror)
        here = [each for each in found if each["topic"] in topics and each["lag"] == 0]
        if len(here) == sum(topics.values()):
            return here
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def stored(folder: Path, topic: str, partition: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / f"{topic}-{partition}").glob("*.log")))


def ends_of(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), DEADLINE_S) for each in range(partitions)]
    consumer.close()
    return ends


def read(
    bootstrap: str, group: str, topic: str, count: int, *, commits: bool = False, more_s: float = 0.0
) -> list[tuple[int, int, bytes]]:
    """By a member of a group, committed records only; `more_s` for what should not come after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    records: list[tuple[int, int, bytes]] = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            records.append((message.partition(), message.offset(), message.value()))
        if len(records) == count:
            deadline = min(deadline, time.monotonic() + more_s)
    if commits:
        consumer.commit(
            offsets=[
                TopicPartition(topic, index, 1 + max(each[1] for each in records if each[0] == index))
                for index in {each[0] for each in records}
            ],
            asynchronous=False,
        )
    consumer.close()
    return records


@pytest.mark.long
def test_the_same_bytes_at_the_same_offsets_and_a_failover(
    *,
    kafka: ApacheKafka,
    broker: Broker,
    mirror: Callable[..., str],
    kafka_tool: Callable[..., str],
    kafka_class_path: str,
    tmp_path: Path,
):
    make(kafka, "zipped", 3, compression_type="zstd", segment_bytes="1048576")
    write(kafka, "zipped", 3000)
    write(kafka, "zipped", 2000, **{"enable.idempotence": True, "compression.type": "lz4"})
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "200"}
    make(kafka, "latest", 2, **settings)
    write(kafka, "latest", 3000)
    time.sleep(0.3)
    write(kafka, "latest", 60)  # Begins segments anew, so that the old ones are compacted.
    make(kafka, "money", 2)
    transact(kafka, "money", "one", "commit", "abort", "commit")
    hanging = transact(kafka, "money", "two", "commit", "open")
    first = read(kafka.bootstrap, "readers", "zipped", 1500, commits=True)
    make(kafka, "wide", 100)
    write(kafka, "wide", 5000)
    topics = {"zipped": 3, "latest": 2, "money": 2, "wide": 100}
    time.sleep(1)  # For the cleaner.
    mirror("create", "dc1", "--source", kafka.bootstrap, *LINK)
    progress = wait_mirrored(mirror, topics)
    assert all(each["leader_epoch"] >= 0 and each["problem"] is None for each in progress)
    broker.kill()
    broker.restart()
    write(kafka, "zipped", 500)  # And what comes later.
    wait_mirrored(mirror, topics)
    wait_group(broker, committed(kafka.bootstrap))

    source, here = tmp_path / "kafka" / "data", tmp_path / "tailrace"
    for topic, count in topics.items():
        assert ends_of(broker.bootstrap, topic, count) == ends_of(kafka.bootstrap, topic, count)
        for index in range(count):
            assert stored(here, topic, index) == stored(source, topic, index), f"{topic}-{index}"
    assert [each["open_transactions"] != [] for each in progress if each["topic"] == "money"] == [True, True]
    assert len(stored(source, "latest", 0)) < 100_000, "it was compacted at the source"

    refused = []
    own = Producer({"bootstrap.servers": broker.bootstrap})
    own.produce("zipped", b"own", callback=lambda error, _message: refused.append(error.code()))
    own.flush(DEADLINE_S)
    assert refused == [KafkaError.POLICY_VIOLATION]

    kafka.kill()
    lost = mirror("failover", "dc1").splitlines()
    assert len(lost) == 107
    assert {line.split("\t")[4] for line in lost} == {"0"}, "nothing is known to be missing"
    placed: list[Any] = []
    own.produce("zipped", b"own", partition=0, callback=lambda error, message: placed.append(error or message.offset()))
    own.flush(DEADLINE_S)
    assert isinstance(placed[0], int), placed
    rest = read(broker.bootstrap, "readers", "zipped", 5501 - len(first))
    assert len(first) + len(rest) == 5501, "the group goes on at its exact record"
    assert not {each[:2] for each in first} & {each[:2] for each in rest}
    money = [value for _partition, _offset, value in read(broker.bootstrap, "auditors", "money", 60, more_s=1)]
    assert sorted({value.split()[1] for value in money}) == [b"commit"]
    assert len(money) == 60, "what was open at the failover is aborted, and holds up nobody"
    own.produce("money", b"own commit", partition=0)  # Behind the barrier.
    own.flush(DEADLINE_S)
    words = ("--topic", "money", "--from-beginning", "--max-messages", "61", "--timeout-ms", "20000")
    told = kafka_tool(
        "consumer.ConsoleConsumer",
        "--bootstrap-server",
        broker.bootstrap,
        "--isolation-level",
        "read_committed",
        *words,
    )
    assert sorted(told.splitlines()) == sorted([*(value.decode() for value in money), "own commit"])
    broker.stop()
    segments = [path for topic in topics for path in sorted((here / f"{topic}-0").glob("*.log"))]
    assert _complaints(_dump(kafka_class_path, segments, "--deep-iteration")) == []
    del hanging


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    found = consumer.committed([TopicPartition("zipped", index) for index in range(3)], DEADLINE_S)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def wait_group(broker: Broker, wanted: dict[int, int]) -> None:
    assert wanted
    deadline = time.monotonic() + DEADLINE_S
    while (found := committed(broker.bootstrap)) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.2)


class Writer(threading.Thread):
    """Writes numbers to a topic until it is told to stop, and has flushed then."""

    def __init__(self, bootstrap: str, topic: str, first: int) -> None:
        super().__init__()
        self.acked: list[int] = []
        self._next = first
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._is_stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._is_stopping.wait(0.005):
            for _ in range(10):
                number, self._next = self._next, self._next + 1
                self._producer.produce(self._topic, b"%d" % number, key=b"%d" % number, on_delivery=self._note(number))
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0

    def _note(self, number: int) -> Callable[[Any, Any], None]:
        return lambda error, _message: None if error else self.acked.append(number)

    def finish(self) -> list[int]:
        self._is_stopping.set()
        self.join(DEADLINE_S)
        return self.acked


@pytest.mark.long
def test_a_cluster_under_load_moves_here(kafka: ApacheKafka, broker: Broker, mirror: Callable[..., str]):
    make(kafka, "orders", 6)
    writer = Writer(kafka.bootstrap, "orders", 0)
    try:
        mirror("create", "move", "--source", kafka.bootstrap, *LINK)
        time.sleep(5)
        before = read(kafka.bootstrap, "readers", "orders", 1000, commits=True)
    finally:
        acked = writer.finish()
    begun = time.monotonic()
    mirror("promote", "move", "--wait", "30")
    writer = Writer(broker.bootstrap, "orders", 1_000_000)
    while not writer.acked and time.monotonic() < begun + DEADLINE_S:
        time.sleep(0.01)
    pause_s = time.monotonic() - begun
    time.sleep(1)
    acked += writer.finish()
    assert len(acked) > 2000
    after = read(broker.bootstrap, "readers", "orders", len(acked) - len(before), more_s=1)
    values = sorted(int(value) for _partition, _offset, value in (*before, *after))
    assert values == sorted(acked), "nothing is lost, and nothing doubled"
    print(f"{len(acked)} records moved, and {pause_s:.1f} s without a write")
    assert pause_s < 15
