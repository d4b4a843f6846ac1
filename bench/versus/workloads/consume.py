"""How fast librdkafka can read: what was just written, what has left memory, and by three groups at once."""

import itertools
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

from bench import librdkafka
from bench.versus.processes import DEADLINE_S, Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.produce import BASE, write
from bench.versus.workloads.topics import create_topic, topic

SECTION = "Consume"
PARTITIONS = BASE.partitions
GROUPS = 3
# Memory that the page cache surely has room for, and a reading that takes some tenths of a second.
HOT_BYTES = 300_000_000
_serial = itertools.count()
# The rate of the producer beside a reader that catches up: the machine's two cores have to do both.
_BESIDE_MESSAGES_PER_SECOND = 20_000


def hot(running: Running, effort: Effort, value_bytes: int, replicas: int) -> dict[str, float]:
    """MB/s of values, read again and again for the length of a round, and what brokers and client spent on each GB."""
    name, count = _written(running, value_bytes, replicas)
    brokers_s, client = running.stopwatch(), time.process_time()
    read = took_s = 0.0
    while took_s < effort.seconds:
        rate = librdkafka.consumed_per_second(name, count, partitions=PARTITIONS, **_settings(running))
        read += count
        took_s += count / rate
    gigabytes = read * value_bytes / 1e9
    return {
        "": gigabytes * 1e3 / took_s,
        "broker CPU s/GB": brokers_s() / gigabytes,
        "client CPU s/GB": (time.process_time() - client) / gigabytes,
    }


def catch_up(running: Running, _effort: Effort) -> dict[str, float]:
    """MB/s of a reader who starts where nothing is in memory any more, while another topic is written to."""
    name, count = _written(running, 1_000, 1)
    with topic(running, 1, replicas=1) as other:
        _drop_from_memory(running.data, name)
        stop = threading.Event()
        writer = threading.Thread(target=_write_steadily, args=(running, other, stop))
        brokers_s = running.stopwatch()
        writer.start()
        try:
            rate = librdkafka.consumed_per_second(name, count, partitions=PARTITIONS, **_settings(running))
        finally:
            spent_s = brokers_s()
            stop.set()
            writer.join()
        return {"": rate * 1_000 / 1e6, "broker CPU s/GB": spent_s / (count * 1_000 / 1e9)}


def fan_out(running: Running, _effort: Effort) -> dict[str, float]:
    """MB/s that three groups read together, each all of the topic, each in a process of its own: from the first record
    that came to any of them to the last."""
    name, count = _written(running, 1_000, 1)
    context = multiprocessing.get_context("spawn")
    brokers_s = running.stopwatch()
    with context.Pool(GROUPS) as pool:
        calls = [(name, count, running.bootstrap, f"group-{next(_serial)}") for _ in range(GROUPS)]
        drained = pool.starmap_async(_read_as_group, calls, chunksize=1).get(DEADLINE_S)
    elapsed_s = max(each.end for each in drained) - min(each.start for each in drained)
    gigabytes = sum(each.count for each in drained) * 1_000 / 1e9
    return {"": gigabytes * 1e3 / elapsed_s, "broker CPU s/GB": brokers_s() / gigabytes}


def _written(running: Running, value_bytes: int, replicas: int) -> tuple[str, int]:
    """A topic to read, for all the rounds of all rows that want the same, and its number of records. It is on the
    device before it is read: else whoever reads would share the machine with the kernel that writes it."""
    key = (SECTION, value_bytes, replicas)
    if key not in running.kept:
        name = create_topic(running, PARTITIONS, replicas=replicas, warm=False)
        count = 0
        while count * value_bytes < HOT_BYTES:
            count += write(running, name, 0.3, BASE._replace(value_bytes=value_bytes))[0]
        os.sync()
        running.kept[key] = (name, count)
    name, count = running.kept[key]
    return name, count


def _settings(running: Running) -> dict[str, Any]:
    return {"bootstrap_servers": running.bootstrap, "group_id": "versus", "enable_auto_commit": "false"}


def _drop_from_memory(data: list[Path], name: str) -> None:
    """Written to the device and forgotten, file by file, as a kernel does that needs the memory."""
    for folder in data:
        for file in folder.glob(f"{name}-*/*"):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _write_steadily(running: Running, name: str, stop: threading.Event) -> None:
    while not stop.is_set():
        librdkafka.ack_latencies_ms(
            name,
            rate=_BESIDE_MESSAGES_PER_SECOND,
            seconds=0.5,
            value_bytes=1_000,
            bootstrap_servers=running.bootstrap,
            acks="all",
        )


def _read_as_group(name: str, count: int, bootstrap: str, group: str) -> librdkafka.Drained:
    return librdkafka.consumed_in_group(name, count, bootstrap_servers=bootstrap, group_id=group)


CONSUME = (
    *(
        Row(
            name=f"consume-rf{replicas}-{word}",
            title=f"rf={replicas}, {word}, hot",
            section=SECTION,
            unit="MB/s",
            measure=lambda running, effort, size=size, replicas=replicas: hot(running, effort, size, replicas),
            brokers=replicas,
        )
        for replicas, word, size in ((1, "1KB", 1_000), (1, "100B", 100), (3, "1KB", 1_000))
    ),
    Row("consume-catch-up", "1 KB, from disk, while others produce", SECTION, "MB/s", catch_up),
    Row("consume-fan-out", "1 KB, three groups at once", SECTION, "MB/s", fan_out),
)
