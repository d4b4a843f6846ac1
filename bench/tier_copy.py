"""Copies beside a hot load: `python -m bench.tier_copy [--load MB] [--rate MB] [--turns N]`.

A producer of its own process writes `--load` MB/s to one topic, in batches of 64 KB. Another writes 1 KB, one each
2 ms, and its times are what is told. In turns these two are alone, and beside the copying of a topic of half a GB to a
folder, which begins when remote.log.copy.disable ends; at `--rate` MB/s at most
(remote.log.manager.copy.max.bytes.per.second). The broker is a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.canned import produce_request, produce_response_bytes
from bench.tier_load import DEADLINE_S, SETTINGS, fill, measure_hot, told, used, wait
from tailrace.testing import Broker

HISTORY_BYTES = 600_000_000
SEGMENT_BYTES = 64 << 20
BATCH_RECORDS = 64
TOPIC = {
    "remote.storage.enable": "true",
    "remote.log.copy.disable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
}


def produce_load(bootstrap: str, bytes_per_second: float, written: Synchronized[int]) -> None:
    """In a process of its own, until it is ended."""
    host, _, port = bootstrap.rpartition(":")
    request, answer_bytes = (
        produce_request("load", records=BATCH_RECORDS, value_bytes=1000),
        produce_response_bytes("load"),
    )
    began = time.perf_counter()
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            connection.sendall(request)
            left = answer_bytes
            while left:
                left -= len(connection.recv(left))
            written.value += len(request)
            time.sleep(max(0.0, written.value / bytes_per_second - (time.perf_counter() - began)))


def allow_copies(bootstrap: str, topic: str) -> None:
    entry = ConfigEntry("remote.log.copy.disable", "false", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)


def copied_bytes(store: Path) -> int:
    return sum(each.stat().st_size for each in store.rglob("*.segment"))


def measure_copy(broker: Broker, topic: str, store: Path) -> tuple[list[float], float]:
    """The producer's times while it is copied, and how many bytes a second were."""
    before, times = copied_bytes(store), []
    allow_copies(broker.bootstrap, topic)
    began = time.perf_counter()
    done, deadline = HISTORY_BYTES - 2 * SEGMENT_BYTES, time.monotonic() + DEADLINE_S
    while (now := copied_bytes(store) - before) < done:
        assert time.monotonic() < deadline, "it is not copied in time"
        times += measure_hot(broker.bootstrap, 0.25)
    return times, now / (time.perf_counter() - began)


def run(broker: Broker, store: Path, written: Synchronized[int], turns: int) -> None:
    ratios = []
    for turn in range(turns):
        measure_hot(broker.bootstrap, 1.0)
        began, bytes_before = time.perf_counter(), written.value
        alone = measure_hot(broker.bootstrap, 4.0)
        rate = (written.value - bytes_before) / (time.perf_counter() - began) / 1e6
        print(f"turn {turn + 1}, load alone    {told(alone)}; load {rate:.0f} MB/s", flush=True)
        began, bytes_before, (_, cpu_before) = time.perf_counter(), written.value, used(broker.process_id)
        times, copied = measure_copy(broker, f"t{turn}", store)
        took_s, (_, cpu) = time.perf_counter() - began, used(broker.process_id)
        rate = (written.value - bytes_before) / took_s / 1e6
        print(
            f"turn {turn + 1}, with copies   {told(times)}; load {rate:.0f} MB/s, copies {copied / 1e6:.0f} MB/s, "
            f"{(cpu - cpu_before) / took_s:.0%} of a core",
            flush=True,
        )
        ratios.append(statistics.quantiles(times, n=100)[98] / statistics.quantiles(alone, n=100)[98])
    print(f"p99 beside copies by p99 without: {' '.join(f'{each:.2f}' for each in ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, default=50.0, help="MB/s")
    parser.add_argument("--rate", type=float, default=0.0, help="MB/s of copies; 0: no bound")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = SETTINGS | {"remote.log.storage.url": f"file://{folder}/store"}
        if options.rate:
            settings["remote.log.manager.copy.max.bytes.per.second"] = str(int(options.rate * 1e6))
        with Broker(settings=settings, data=f"{folder}/data") as broker:
            topics = [NewTopic(f"t{turn}", 1, 1, config=TOPIC) for turn in range(options.turns)]
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for future in admin.create_topics([*topics, NewTopic("hot", 1, 1), NewTopic("load", 1, 1)]).values():
                future.result(DEADLINE_S)
            for topic in topics:
                fill(broker.bootstrap, topic.topic, HISTORY_BYTES)
            spawn = multiprocessing.get_context("spawn")
            written = spawn.Value("q", 0)
            loading = spawn.Process(
                target=produce_load, args=(broker.bootstrap, options.load * 1e6, written), daemon=True
            )
            loading.start()
            wait(lambda: written.value > 0, "the load has begun")
            run(broker, Path(folder) / "store", written, options.turns)
            assert loading.is_alive(), "the load has failed"
            loading.kill()


if __name__ == "__main__":
    main()
