"""A full disk: the partition that cannot write says so, others go on, nothing acknowledged is lost, and it recovers.

RLIMIT_FSIZE stands in for the full disk: the kernel lets no file of the broker grow past it (EFBIG), it can be set on a
running process and taken back, and it needs no rights. A small tmpfs is the real thing, where it can be mounted.
"""

import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.model.errors import ErrorCode
from tailrace.testing import Broker

from .raw import RawClient, batch

VALUE = bytes(64 * 1024)
LIMIT_BYTES = 2 << 20
RECOVERY_S = 20


def test_partition_without_room_leaves_the_others_alone(fresh_tailrace_broker: Broker):
    broker = fresh_tailrace_broker
    _create(broker, "large", "small")
    with RawClient(broker.bootstrap) as client:
        resource.prlimit(broker.process_id, resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
        acked = _fill(client, "large")
        assert client.produce("small", batch(b"small")).error == 0
        assert client.fetch("small")[0] == 0

        resource.prlimit(broker.process_id, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        _wait_writable(client, "large")
        assert _count(client, "large") == acked + 1
        broker.restart()
    with RawClient(broker.bootstrap) as client:
        assert _count(client, "large") == acked + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tailrace-test", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a tmpfs can be mounted by root only")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_full_disk_loses_nothing(small_disk: Path):
    with Broker(data=small_disk / "data") as broker:
        _create(broker, "large")
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(4 << 20))
        with RawClient(broker.bootstrap) as client:
            acked = _fill(client, "large")
            broker.kill()
            ballast.unlink()
            broker.start()
        with RawClient(broker.bootstrap) as client:
            assert _count(client, "large") == acked
            assert client.produce("large", batch(VALUE)).error == 0


def _create(broker: Broker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result(10)


def _fill(client: RawClient, topic: str) -> int:
    """Writes until the broker refuses; the number of records that it has acknowledged."""
    for acked in range(10_000):
        answer = client.produce(topic, batch(VALUE))
        if answer.error != 0:
            assert ErrorCode(answer.error) == ErrorCode.KAFKA_STORAGE_ERROR
            assert acked > 0
            return acked
    raise AssertionError("the disk never became full")


def _wait_writable(client: RawClient, topic: str) -> None:
    deadline = time.monotonic() + RECOVERY_S
    while client.produce(topic, batch(VALUE)).error != 0:
        assert time.monotonic() < deadline, f"the partition did not recover within {RECOVERY_S} s"
        time.sleep(0.1)


def _count(client: RawClient, topic: str) -> int:
    """Batches in the log; each holds one record."""
    size = len(batch(VALUE))
    count = 0
    while True:
        error, stored = client.fetch(topic, count)
        assert error == 0
        assert len(stored) % size == 0
        if not stored:
            return count
        count += len(stored) // size
