"""What a tier gives a cluster: `python -m bench.tier_cluster [--spark]`.

Nine tenths of a topic of 1 GB with three replicas lie in a folder alone. Told are how long a broker whose disk was
replaced takes until it is in sync, and what it has copied; with `--spark` how fast Spark reads the topic from the
folder, how fast a topic of the same size that lies on the disks of brokers, and what CPU these take meanwhile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.tier_load import COLD, DEADLINE_S, SETTINGS, VALUE_BYTES, wait
from tailrace.testing import Cluster

HISTORY_BYTES = 1_000_000_000
PARTITIONS = 4
SEGMENT_BYTES = 16 << 20
LOCAL_BYTES = 16 << 20


def create(bootstrap: str) -> None:
    cold = COLD | {"internal.segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": str(LOCAL_BYTES)}
    topics = [NewTopic("cold", PARTITIONS, 3, config=cold), NewTopic("local", PARTITIONS, 3)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result(DEADLINE_S)


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 256_000, "linger.ms": 5})
    value = os.urandom(VALUE_BYTES)
    for number in range(HISTORY_BYTES // VALUE_BYTES):
        while True:
            try:
                producer.produce(topic, value, partition=number // 50 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0, "not all was written"


def local_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("cold-*/*.log"))


def measure_replaced(cluster: Cluster, folders: dict[int, Path]) -> None:
    other = max(folders)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def in_sync() -> bool:
        # The other topic lies on the disks of brokers, and is not what is asked here.
        partitions = admin.list_topics("cold", timeout=30).topics["cold"].partitions.values()
        return all(len(each.isrs) == 3 for each in partitions)

    cluster.kill(other)
    shutil.rmtree(folders[other])
    began = time.perf_counter()
    cluster.start(other)
    ready_s = time.perf_counter() - began
    wait(in_sync, "the replaced broker is in sync")
    took_s = time.perf_counter() - began
    size_mb = local_bytes(folders[other]) / 1e6
    print(
        f"replaced broker: in sync {took_s:.1f} s after its start, {ready_s:.1f} s of them until it was ready; it has "
    )
    print(f"{size_mb:.0f} MB of the {HISTORY_BYTES / 1e6:.0f} MB", flush=True)


def measure_spark(cluster: Cluster, store: str) -> None:
    from bench.spark import spark_session

    def cpu() -> float:
        fields = [Path(f"/proc/{cluster.process_id(each)}/stat").read_text().rpartition(")")[2].split() for each in ids]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")

    ids = cluster.broker_ids
    ways = {"tier": ("cold", {"tier": f"file://{store}"}), "brokers": ("local", {})}
    with spark_session("local[2]") as session:
        for turn in range(3):
            for name, (topic, options) in ways.items():
                reader = session.read.format("tailrace").option("kafka.bootstrap.servers", cluster.bootstrap)
                frame = reader.option("subscribe", topic).options(**options).load()
                began, before = time.perf_counter(), cpu()
                frame.write.format("noop").mode("overwrite").save()
                took_s, used_s = time.perf_counter() - began, cpu() - before
                rate = HISTORY_BYTES / took_s / 1e6
                print(
                    f"turn {turn + 1}, Spark by {name:8s} {rate:6.0f} MB/s, CPU of brokers {used_s:.2f} s", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = SETTINGS | {"remote.log.storage.url": f"file://{folder}/store"}
        with Cluster(settings, brokers=3) as cluster:
            create(cluster.bootstrap)
            folders = {each: Path(cluster.data) / f"broker-{each}" for each in cluster.broker_ids}
            fill(cluster.bootstrap, "cold")
            for each in folders.values():
                bound = 2 * PARTITIONS * (SEGMENT_BYTES + LOCAL_BYTES)
                wait(lambda each=each, bound=bound: local_bytes(each) < bound, "most of it lies in the store")
            if options.spark:
                fill(cluster.bootstrap, "local")
                measure_spark(cluster, f"{folder}/store")
            measure_replaced(cluster, folders)


if __name__ == "__main__":
    main()
