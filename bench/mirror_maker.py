"""`python -m bench.mirror_maker`: Apache Kafka's MirrorMaker 2 beside our mirrors, between the same two brokers.

    speed   1 KB records in batches of up to 256 KB, mirrored from the beginning: from the first record to the last
    groups  a topic that transactions wrote, so that offsets differ at MirrorMaker's target; groups have committed at
            many places, and each is asked at the target: how many records would it read again, or never

Both mirror a source that is Tailrace into one that is Tailrace, all on this machine. MirrorMaker runs as one process
with a heap of 1 GB, fetches and writes in large batches, and keeps groups in step each second. Its start is not
counted.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.machine import commit, warm_memory
from bench.maven import bring_jars
from bench.mirror import fill, make
from tailrace.cli import main as tailrace
from tailrace.testing import Broker

_POM = Path(__file__).with_name("mirror_maker_pom.xml")
_DEADLINE_S = 240.0
_PARTITIONS, _MB = 4, 1 << 20
_TRANSACTIONS, _RECORDS_EACH = 300, 40
_GROUPS = 20
_SETTLE_S = 15.0  # In which whoever keeps groups in step has come round some times.
_SETTINGS = """\
clusters = dc1, dc2
dc1.bootstrap.servers = {source}
dc2.bootstrap.servers = {target}
dc1->dc2.enabled = true
dc1->dc2.topics = bulk|paid
dc1->dc2.groups = .*
dc2->dc1.enabled = false
emit.heartbeats.enabled = false
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
refresh.topics.interval.seconds = 2
refresh.groups.interval.seconds = 2
replication.factor = 1
checkpoints.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
tasks.max = 4
dc1.consumer.isolation.level = read_committed
dc1.consumer.auto.offset.reset = earliest
dc1.consumer.max.poll.records = 5000
dc1.consumer.max.partition.fetch.bytes = 8388608
dc2.producer.batch.size = 262144
dc2.producer.linger.ms = 5
dc2.producer.buffer.memory = 134217728
"""


@contextmanager
def _mirror_maker(source: Broker, target: Broker) -> Iterator[None]:
    class_path = f"{bring_jars(_POM, 'bench-mirror-maker')}/*"
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "mm2.properties"
        settings.write_text(_SETTINGS.format(source=source.bootstrap, target=target.bootstrap))
        with (Path(folder) / "log").open("wb") as log:
            words = [
                "-Xms1g",
                "-Xmx1g",
                "-cp",
                class_path,
                "org.apache.kafka.connect.mirror.MirrorMaker",
                str(settings),
            ]
            process = subprocess.Popen(["java", *words], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


@contextmanager
def _link(source: Broker, target: Broker) -> Iterator[None]:
    words = ("--source", source.bootstrap, "--prefix", "dc1.", "--set", "sync.interval.ms=1000")
    assert tailrace(["mirror", "create", "dc1", *words, "--bootstrap", target.bootstrap]) == 0
    yield


def _ends(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"}, logger=_Silent())
    try:
        told = [consumer.get_watermark_offsets(TopicPartition(topic, each), 10) for each in range(_PARTITIONS)]
        return [end for _start, end in told]
    except KafkaException:
        return [0]
    finally:
        consumer.close()


class _Silent:
    """While the topic is not there yet, the client that looks for it would complain."""

    def log(self, *_words: object) -> None:
        pass


def _until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _speed(source: Broker, target: Broker, size_bytes: int) -> float:
    """MB/s, from the first record on."""
    wanted = sum(_ends(source, "bulk"))
    _until(lambda: sum(_ends(target, "dc1.bulk")) > 0)
    began, first = time.monotonic(), sum(_ends(target, "dc1.bulk"))
    _until(lambda: sum(_ends(target, "dc1.bulk")) >= wanted)
    return (wanted - first) / wanted * size_bytes / _MB / (time.monotonic() - began)


def _pay(source: Broker) -> None:
    """Values are the numbers of the records in their partition."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "payer"})
    producer.init_transactions(_DEADLINE_S)
    for transaction in range(_TRANSACTIONS):
        producer.begin_transaction()
        for number in range(_RECORDS_EACH):
            value = str(transaction * _RECORDS_EACH + number)
            for partition in range(_PARTITIONS):
                producer.produce("paid", value, partition=partition)
        producer.commit_transaction(_DEADLINE_S)


def _commit(source: Broker) -> dict[str, int]:
    """By group, the number of the record that it reads next."""
    groups: dict[str, int] = {}
    for index in range(_GROUPS):
        read = (index + 1) * _TRANSACTIONS * _RECORDS_EACH // (_GROUPS + 1)
        offset = read + read // _RECORDS_EACH  # A marker behind each transaction.
        group = f"group-{index}"
        consumer = Consumer({"bootstrap.servers": source.bootstrap, "group.id": group})
        consumer.commit(
            offsets=[TopicPartition("paid", each, offset) for each in range(_PARTITIONS)], asynchronous=False
        )
        consumer.close()
        groups[group] = read
    return groups


def _errors(target: Broker, groups: dict[str, int]) -> tuple[list[int], list[int], int]:
    """Of each group and partition, the records that are read again, and those that are never read; and how many
    have no offset at all, who begin anew."""
    again, never, unknown = [], [], 0
    for group, read in groups.items():
        consumer = Consumer(
            {"bootstrap.servers": target.bootstrap, "group.id": group, "isolation.level": "read_committed"}
        )
        for found in consumer.committed([TopicPartition("dc1.paid", each) for each in range(_PARTITIONS)], 10):
            unknown += found.offset < 0
            consumer.assign([TopicPartition("dc1.paid", found.partition, max(0, found.offset))])
            message = None
            deadline = time.monotonic() + _DEADLINE_S
            while message is None or message.error():
                assert time.monotonic() < deadline
                message = consumer.poll(1)
            number = int(message.value())
            again.append(max(0, read - number))
            never.append(max(0, number - read))
        consumer.close()
    return again, never, unknown


def measure(
    kind: Callable[[Broker, Broker], AbstractContextManager[None]], size_bytes: int
) -> tuple[str, str, str, str]:
    with Broker() as source, Broker() as target:
        make(source.bootstrap, "bulk", _PARTITIONS)
        make(source.bootstrap, "paid", _PARTITIONS)
        fill(source.bootstrap, "bulk", size_bytes)
        _pay(source)
        groups = _commit(source)
        with kind(source, target):
            speed = _speed(source, target, size_bytes)
            _until(lambda: sum(_ends(target, "dc1.paid")) >= _TRANSACTIONS * _RECORDS_EACH * _PARTITIONS)
            time.sleep(_SETTLE_S)
            again, never, unknown = _errors(target, groups)
    middle = sorted(again)[len(again) // 2]
    return f"{speed:.0f} MB/s", f"{middle} ({max(again)} at most)", str(max(never)), f"{unknown} of {len(again)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000, help="that are mirrored from the beginning")
    options = parser.parse_args()
    warm_memory()
    headings = ("", "speed", "read again, in the middle", "never read, at most", "without an offset")
    table = Table(*headings, title=f"mirrors, {commit()}, load {os.getloadavg()[0]:.1f}")
    for name, kind in (("MirrorMaker 2, 4.3.0", _mirror_maker), ("Tailrace", _link)):
        table.add_row(name, *measure(kind, options.megabytes * _MB))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
