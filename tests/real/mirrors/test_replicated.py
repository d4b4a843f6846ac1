"""A mirror with three replicas, of a source that compacts: its leaders die, and each replica has the source's bytes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.cli import main
from tailrace.testing import Broker, Cluster

DEADLINE_S = 60.0
CLEANER = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100, "log.retention.check.interval.ms": 200}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "200",
    "internal.segment.bytes": "50000",
}


def write(source: Broker, topic: str, count: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 2, "batch.size": 2000})
    for number in range(first, first + count):
        producer.produce(topic, b"%06d" % number * 10, key=b"%d" % (number % 97), partition=0)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def leader_of(cluster: Cluster) -> int:
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("latest", timeout=DEADLINE_S)
    return metadata.topics["latest"].partitions[0].leader


@pytest.mark.long
def test_every_replica_has_the_bytes_of_a_compacted_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with (
        Broker(CLEANER, data=tmp_path / "source") as source,
        Cluster({"log.cleaner.enable": False}, brokers=3, data=tmp_path / "here") as cluster,
    ):
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic("latest", 1, 1, config=COMPACTED)])["latest"].result(DEADLINE_S)
        write(source, "latest", 20_000)
        time.sleep(2)
        write(source, "latest", 100, first=20_000)
        time.sleep(2)
        words = ("--source", source.bootstrap, "--set", "sync.interval.ms=300", "--set", "max.bytes.per.second=30000")
        assert main(["mirror", "create", "dc1", *words, "--bootstrap", cluster.bootstrap]) == 0
        deadline = time.monotonic() + DEADLINE_S
        killed = []
        while True:
            capsys.readouterr()
            assert main(["mirror", "describe", "dc1", "--json", "--bootstrap", cluster.bootstrap]) == 0
            (found, *_) = [*map(json.loads, capsys.readouterr().out.splitlines()), None]
            if found is not None and found["high_watermark"] > 0 and len(killed) < 2:
                leader = leader_of(cluster)
                if leader > 0 and leader not in killed:
                    cluster.kill(leader)
                    killed.append(leader)
                    time.sleep(1)
                    cluster.start(leader)
            if len(killed) == 2 and found is not None and found["lag"] == 0:
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        here = list((tmp_path / "here").rglob("latest-0"))
        wanted = stored(tmp_path / "source" / "latest-0")
        assert len(here) == 3
        assert len(wanted) < 1_000_000, "it was compacted"
        while not all(stored(folder) == wanted for folder in here):
            assert time.monotonic() < deadline, [len(stored(folder)) for folder in here]
            time.sleep(0.5)
