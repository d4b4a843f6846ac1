"""docs/tiered-storage.md, the drill, word for word; and clients that others wrote, on the cluster that came back."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PurePartition

from tailrace.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "tiered-storage.md"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 120.0
COUNT = 2000
COMMITTED = 700
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "100",
    "remote.log.manifest.interval.ms": "200",
    "remote.log.export.interval.ms": "300",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "offsets.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "100000", "local.retention.bytes": "100000"}


@dataclass
class Recovered:
    bootstrap: str
    end: int  # Of what was recovered.
    drilled: int  # Records that the drill has counted.
    log: str


def value(number: int) -> bytes:
    return b"%06d" % number + b"x" * 1000


@pytest.fixture(scope="module")
def recovered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recovered]:
    folder = tmp_path_factory.mktemp("drill")
    url = f"file://{folder}/bucket"
    rehearsal, disaster = BLOCK.findall(PAGE.read_text().partition("### The drill")[2])[:2]
    port, drill_port = free_port(), free_port()
    broker = Broker(settings={**SETTINGS, "remote.log.storage.url": url}, data=folder / "old")
    broker.start()
    try:
        fill(broker.bootstrap)
        wait_copied(folder, broker.bootstrap)
        # While the old cluster is at work.
        drilled = run(folder, rehearsal.replace("9192", str(drill_port)), url).stdout.split()[-1]
        broker.kill()
    finally:
        broker.close()
    shutil.rmtree(folder / "old", ignore_errors=True)
    words = ["bash", "-ec", f"{disaster.replace('9092', str(port))}\necho RECOVERED\nread || true\nkill %1\nwait"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline().decode()) and line != "RECOVERED\n":
            lines.append(line)
        log = "".join(lines)
        assert line, log
        try:
            end = next(int(row.split("\t")[3]) for row in lines if row.startswith("orders\t0\t"))
            yield Recovered(f"127.0.0.1:{port}", end, int(drilled), log)
        finally:
            process.stdin.close()
            process.wait(DEADLINE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(url: str) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "BUCKET": url}


def run(folder: Path, block: str, url: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-ec", f"{block}wait"],
        cwd=folder,
        env=environment(url),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config=TOPIC)])["orders"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 20_000, "log_level": 0})
    for number in range(COUNT):
        producer.produce("orders", key=b"%d" % number, value=value(number))
    producer.flush(DEADLINE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, COMMITTED)], asynchronous=False)
    consumer.close()


def wait_copied(folder: Path, bootstrap: str) -> None:
    """Until nine tenths of it are named by a manifest, and an export knows the group."""
    deadline = time.monotonic() + DEADLINE_S
    words = [sys.executable, "-m", "tailrace", "tier", "recover", f"file://{folder}/bucket", "--dry-run"]
    while True:
        done = subprocess.run([*words, "--data", f"{folder}/none"], capture_output=True, text=True, check=False)
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        if rows and int(rows[0][3]) >= COUNT * 0.9 and "1 group" in done.stderr:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.2)


def test_the_drill(recovered: Recovered) -> None:
    assert COUNT * 0.9 <= recovered.end < COUNT
    assert recovered.drilled == recovered.end
    assert "as generation 1" in recovered.log


def test_confluent_kafka_goes_on(recovered: Recovered) -> None:
    settings = {"bootstrap.servers": recovered.bootstrap, "group.id": "readers", "auto.offset.reset": "error"}
    consumer = Consumer(settings)
    (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=DEADLINE_S)
    assert committed.offset == COMMITTED
    consumer.assign([committed])
    read = [take(consumer) for _ in range(recovered.end - COMMITTED)]
    assert read == [value(number) for number in range(COMMITTED, recovered.end)]
    producer = Producer({"bootstrap.servers": recovered.bootstrap, "enable.idempotence": True, "batch.size": 20_000})
    offsets: list[int] = []
    for number in range(300):
        producer.produce("orders", value=value(number), on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.flush(DEADLINE_S)
    assert offsets == list(range(recovered.end, recovered.end + 300))
    assert [take(consumer) for _ in range(300)] == [value(number) for number in range(300)]
    consumer.close()


def take(consumer: Consumer) -> bytes:
    message = consumer.poll(DEADLINE_S)
    assert message is not None, "nothing comes"
    assert message.error() is None, message.error()
    return bytes(message.value() or b"")


def test_aiokafka(recovered: Recovered) -> None:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=recovered.bootstrap)
        await consumer.start()
        try:
            partition = AioPartition("orders", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await asyncio.wait_for(consumer.getone(), DEADLINE_S)).value for _ in range(recovered.end)]
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == [value(number) for number in range(recovered.end)]


def test_kafka_python(recovered: Recovered) -> None:
    consumer = KafkaConsumer(bootstrap_servers=recovered.bootstrap, consumer_timeout_ms=DEADLINE_S * 1000)
    partition = PurePartition("orders", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert [next(consumer).value for _ in range(recovered.end)] == [value(number) for number in range(recovered.end)]
    consumer.close()


@pytest.mark.needs("kcat")
def test_kcat(recovered: Recovered) -> None:
    words = ["kcat", "-C", "-b", recovered.bootstrap, "-t", "orders", "-o", "beginning", "-c", str(recovered.end)]
    done = subprocess.run(
        [*words, "-q", "-f", "%o %k\\n"], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert done.stdout.splitlines() == [f"{number} {number}" for number in range(recovered.end)]


@pytest.mark.long
def test_the_java_client(recovered: Recovered, compile_java: Callable[[str], list[str]]) -> None:
    words = compile_java("ReadTopic")
    done = subprocess.run(
        [*words, recovered.bootstrap, "orders", str(recovered.end)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{number} {value(number)[:6].decode()}" for number in range(recovered.end)]
