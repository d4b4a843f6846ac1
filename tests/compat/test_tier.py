"""Clients that others wrote read a topic of which nine tenths lie in the store alone."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PurePartition

from tailrace.testing import Broker
from tests.compat.conftest import maven_jars

COUNT = 2000
DEADLINE_S = 120.0
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "100000", "local.retention.bytes": "100000"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store: Path = tmp_path_factory.mktemp("store")
    with Broker(settings={**SETTINGS, "remote.log.storage.url": f"file://{store}"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result(DEADLINE_S)
        fill(broker.bootstrap)
        wait_cold(Path(str(broker.data)) / "t-0")
        yield broker.bootstrap


def fill(bootstrap: str) -> None:
    """Every hundred records a transaction; every third of them is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "filler", "batch.size": 20_000})
    producer.init_transactions(DEADLINE_S)
    for first in range(0, COUNT, 100):
        producer.begin_transaction()
        for number in range(first, first + 100):
            producer.produce("t", key=b"%d" % number, value=b"%06d" % number + b"x" * 1000)
        if first // 100 % 3 == 2:
            producer.flush(DEADLINE_S)  # Or nothing of it would be in the log.
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)


def wait_cold(folder: Path) -> None:
    """Markers of transactions have offsets too, so the log ends a little behind COUNT."""
    deadline = time.monotonic() + DEADLINE_S
    while min(int(path.stem) for path in folder.glob("*.log")) < COUNT * 0.9:
        assert time.monotonic() < deadline, sorted(path.name for path in folder.glob("*.log"))
        time.sleep(0.2)


def committed() -> list[bytes]:
    return [b"%06d" % number for number in range(COUNT) if number // 100 % 3 != 2]


def test_confluent_kafka(bootstrap: str) -> None:
    found = {}
    for level in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": level, "isolation.level": level, "auto.offset.reset": "error"}
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        wanted, values, deadline = len(committed()) if level == "read_committed" else COUNT, [], time.monotonic() + 60
        while len(values) < wanted and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                values.append((message.value() or b"")[:6])
        found[level] = values
        consumer.close()
    assert found["read_committed"] == committed()
    assert found["read_uncommitted"] == [b"%06d" % number for number in range(COUNT)]


def test_aiokafka(bootstrap: str) -> None:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
        await consumer.start()
        try:
            consumer.assign([AioPartition("t", 0)])
            consumer.seek(AioPartition("t", 0), 0)
            async with asyncio.timeout(DEADLINE_S):
                return [(await consumer.getone()).value[:6] for _ in committed()]
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == committed()


def test_kafka_python(bootstrap: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    partition = PurePartition("t", 0)
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    consumer.seek(partition, 0)
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < len(committed()) and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=500).values():
            values += [record.value[:6] for record in records]
    consumer.close()
    assert values == committed()


@pytest.mark.long
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("version", ["4.3", "3.9"])
def test_java(bootstrap: str, compile_java: Callable[..., list[str]], version: str, level: str) -> None:
    class_path = None if version == "4.3" else maven_jars("tests/compat/java/old/pom.xml")
    expected = committed() if level == "read_committed" else [b"%06d" % number for number in range(COUNT)]
    command = [*compile_java("ReadCold", class_path), bootstrap, "t", level, str(len(expected))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    *values, earliest, time_1, local, tiered = done.stdout.split("\n")[:-1]
    assert values == [value.decode() for value in expected]
    assert (earliest, time_1) == ("earliest 0", "time 1 0")
    local_offset, tiered_offset = int(local.removeprefix("local ")), int(tiered.removeprefix("tiered "))
    assert COUNT * 0.9 <= local_offset <= tiered_offset < COUNT * 1.1
