"""A topic of which most lies in a store alone, as tests of processes make and read it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 120.0
# Everything soon: copies, retention, manifests.
QUICK = {
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "remote.log.manifest.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "100000", "local.retention.bytes": "100000"}


def create(bootstrap: str, name: str = "t", *, replicas: int = 3, **settings: str) -> None:
    config = TOPIC | {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, replicas, config=config)])[name].result(DEADLINE_S)


def fill(bootstrap: str, numbers: range, name: str = "t", *, size: int = 1000) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.size": 20_000, "linger.ms": 5}
    )
    failed: list[str] = []
    for number in numbers:
        value = value_of(number, size)
        producer.produce(name, value, partition=0, on_delivery=lambda error, _: error and failed.append(str(error)))
        producer.poll(0)
        if number % 10_000 == 9_999:
            producer.flush(DEADLINE_S)  # Its queue is bounded.
    assert producer.flush(DEADLINE_S) == 0
    assert not failed, failed[:3]


def value_of(number: int, size: int = 1000) -> bytes:
    return b"%08d" % number + b"x" * (size - 8)


def local_start(log_folder: Path) -> int:
    return min((int(path.stem) for path in log_folder.glob("*.log")), default=-1)


def wait_cold(log_folder: Path, offset: int) -> None:
    wait(lambda: local_start(log_folder) >= offset, f"the local log of {log_folder} begins at {offset} or later")


def wait(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def read(bootstrap: str, count: int, name: str = "t", **settings: object) -> list[int]:
    """The numbers of the first records, as an ordinary consumer gets them; it never jumps."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "error"}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    values: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(values) < count:
            assert time.monotonic() < deadline, f"{len(values)} of {count} records were read"
            for message in consumer.consume(500, 0.2):
                error = message.error()
                assert error is None or error.retriable(), error
                if error is None:
                    assert message.offset() == len(values), "no gap, and nothing twice"
                    values.append(int((message.value() or b"")[:8]))
    finally:
        consumer.close()
    return values
