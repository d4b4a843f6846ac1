"""`python -m bench.mirror`: how fast a mirror is, what it costs beside a follower, and how late records are.

    speed   what the source has is mirrored from the beginning: 1 KB records in batches of 256 KB, one replica each
    cost    60 MB/s are written for some seconds: the CPU of the broker that mirrors, and of one that follows a leader
    delay   20,000 records of 200 bytes a second: how old they are when a consumer has them, there and at the mirror
    opening 1,000 partitions are failed over: from the command until each has acknowledged a first record of its own

All processes share this machine, producers and consumers too. Goals: 250 MB/s; at most 1.3 times the CPU of a
follower; a p99 of at most 50 ms behind the source's own; 10 s.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench.machine import commit, warm_memory
from tailrace.cli import main as tailrace
from tailrace.testing import Broker, Cluster

_DEADLINE_S = 120.0
_PARTITIONS = 4
_VALUE = os.urandom(1 << 10)
_RATE, _COST_BYTES_S = 20_000, 60 << 20
_MB = 1 << 20


def _cpu_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make(bootstrap: str, topic: str, partitions: int, brokers: tuple[int, ...] = ()) -> None:
    placed = {"replica_assignment": [list(brokers)] * partitions} if brokers else {"replication_factor": 1}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, **placed)])[topic].result(_DEADLINE_S)


def fill(bootstrap: str, topic: str, size_bytes: int, bytes_per_second: float | None = None) -> None:
    settings = {"bootstrap.servers": bootstrap, "batch.size": 262_144, "linger.ms": 50, "acks": 1}
    producer = Producer({**settings, "queue.buffering.max.kbytes": 200_000})
    began, sent = time.monotonic(), 0
    while sent < size_bytes:
        if bytes_per_second and sent > (time.monotonic() - began) * bytes_per_second:
            time.sleep(0.001)
            continue
        try:
            for _ in range(64):
                producer.produce(topic, _VALUE, partition=(sent // 262_144) % _PARTITIONS)
                sent += len(_VALUE)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(_DEADLINE_S) == 0


def _ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10)[1] for each in range(partitions)
        ]
    except Exception:
        return []
    finally:
        consumer.close()


def _until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _link(here: Broker, source: Broker, name: str, topic: str) -> None:
    words = ("--source", source.bootstrap, "--topics", topic, "--set", "sync.interval.ms=200")
    assert tailrace(["mirror", "create", name, *words, "--bootstrap", here.bootstrap]) == 0


def speed(source: Broker, here: Broker, size_bytes: int) -> float:
    """MB/s, from the first byte on until consumers are told of the last one."""
    make(source.bootstrap, "bulk", _PARTITIONS)
    fill(source.bootstrap, "bulk", size_bytes)
    wanted = _ends(source.bootstrap, "bulk", _PARTITIONS)
    folder = Path(here.data)

    def stored() -> int:
        return sum(path.stat().st_blocks * 512 for path in folder.rglob("bulk-*/*.log"))

    _link(here, source, "bulk", "bulk")
    _until(lambda: stored() > 0)
    began, first_bytes = time.monotonic(), stored()
    _until(lambda: stored() >= size_bytes)
    _until(lambda: _ends(here.bootstrap, "bulk", _PARTITIONS) == wanted)
    return (size_bytes - first_bytes) / _MB / (time.monotonic() - began)


def _cost(bootstrap: str, topic: str, process_id: int, seconds: float) -> float:
    """CPU seconds for each GB that is written meanwhile."""
    fill(bootstrap, topic, _COST_BYTES_S, _COST_BYTES_S)
    before, size_bytes = _cpu_s(process_id), int(seconds * _COST_BYTES_S)
    fill(bootstrap, topic, size_bytes, _COST_BYTES_S)
    return (_cpu_s(process_id) - before) / (size_bytes / (1 << 30))


def costs(source: Broker, here: Broker, seconds: float) -> tuple[float, float]:
    make(source.bootstrap, "live", _PARTITIONS)
    _link(here, source, "live", "live")
    _until(lambda: len(_ends(here.bootstrap, "live", _PARTITIONS)) == _PARTITIONS)
    mirror = _cost(source.bootstrap, "live", here.process_id, seconds)
    with Cluster(brokers=2) as cluster:
        make(cluster.bootstrap, "live", _PARTITIONS, (1, 2))
        follower = _cost(cluster.bootstrap, "live", cluster.process_id(2), seconds)
    return mirror, follower


def _delays(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """In ms, of the records of the last seconds."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "delay", "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "enable.auto.commit": False})  # What is committed there would be here, too.
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    found: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        messages = [each for each in consumer.consume(2000, 0.005) if not each.error()]
        now = time.time()
        found += [(now - float(each.value()[:17])) * 1000 for each in messages]
    consumer.close()
    return sorted(found[len(found) // 5 :])


def delays(source: Broker, here: Broker, seconds: float) -> tuple[float, float]:
    """The p99 at the source, and at the mirror."""
    make(source.bootstrap, "ticks", 1)
    _link(here, source, "ticks", "ticks")
    _until(lambda: len(_ends(here.bootstrap, "ticks", 1)) == 1)
    stops = threading.Event()

    def tick() -> None:
        producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 2, "acks": 1})
        began, sent = time.monotonic(), 0
        while not stops.is_set():
            due = int((time.monotonic() - began) * _RATE)
            now = f"{time.time():017.6f}".encode().ljust(200)
            for _ in range(min(due - sent, 2000)):
                producer.produce("ticks", now, partition=0)
                sent += 1
            producer.poll(0)
            time.sleep(0.002)
        producer.flush(_DEADLINE_S)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        p99 = []
        for broker in (source, here):
            found = _delays(broker.bootstrap, "ticks", seconds)
            assert len(found) > seconds * _RATE / 3, "the records have not come"
            p99.append(found[int(len(found) * 0.99)])
    finally:
        stops.set()
        thread.join()
    return p99[0], p99[1]


def opening(source: Broker, here: Broker) -> float:
    """In seconds."""
    topics = [f"many-{number}" for number in range(10)]
    for topic in topics:
        make(source.bootstrap, topic, 100)
    _write_each(source.bootstrap, topics)
    _link(here, source, "many", "many-*")
    _until(lambda: all(sum(_ends(here.bootstrap, topic, 100)) == 100 for topic in topics))
    began = time.monotonic()
    assert tailrace(["mirror", "failover", "many", "--bootstrap", here.bootstrap]) == 0
    _write_each(here.bootstrap, topics)
    return time.monotonic() - began


def _write_each(bootstrap: str, topics: list[str]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for topic in topics:
        for partition in range(100):
            producer.produce(topic, b"first", partition=partition, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(_DEADLINE_S) == 0
    assert failures == [None] * 100 * len(topics)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000, help="that are mirrored from the beginning")
    parser.add_argument("--seconds", type=float, default=10, help="for cost and delay, each")
    options = parser.parse_args()
    warm_memory()
    table = Table("what", "", title=f"mirrors, {commit()}, load {os.getloadavg()[0]:.1f}")
    with Broker() as source, Broker() as here:
        table.add_row("speed", f"{speed(source, here, options.megabytes * _MB):.0f} MB/s")
        at_source, at_mirror = delays(source, here, options.seconds)
        table.add_row("p99 of 20,000 records a second", f"{at_mirror:.1f} ms, at the source itself {at_source:.1f} ms")
        mirror, follower = costs(source, here, options.seconds)
        ratio = f"{mirror:.2f} CPU s for each GB, a follower {follower:.2f}: {mirror / follower:.2f}"
        table.add_row("cost", ratio)
        table.add_row("failover of 1,000 partitions", f"{opening(source, here):.1f} s")
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
