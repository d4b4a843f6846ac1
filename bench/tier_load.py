"""A broker beside cold readers: `python -m bench.tier_load [--readers N] [--seconds S] [--rate MB]`.

Most of a topic of 1.5 GB lies in a folder alone. A producer writes 1 KB records to another topic, one each 2 ms, and
waits for each; in turns it is alone, and beside readers of the history, who get `--rate` MB/s in sum
(remote.log.manager.fetch.max.bytes.per.second; what was downloaded once is not counted, so each reader has a part of
the history for itself, and never comes to its end). Broker, producer and readers are processes of their own. Told are
the producer's times, what readers got, the broker's CPU and how much its memory grew.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import selectors
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.canned import fetch_request, produce_request, produce_response_bytes
from tailrace.testing import Broker

HISTORY_BYTES = 1_500_000_000
VALUE_BYTES = 4_000
ANSWER_MAX_BYTES = 1 << 20
PAUSE_S = 0.002
DEADLINE_S = 180.0
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
}
COLD = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(64 << 20),
    "local.retention.bytes": str(64 << 20),
}
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") / 1024


def read_all(bootstrap: str, cold_end: int, readers: int, turn: int, got: Synchronized[int]) -> None:
    """In a process of its own, until it is ended. Behind all others: elsewhere readers have machines of their own."""
    os.nice(19)
    host, _, port = bootstrap.rpartition(":")
    share = cold_end // readers
    with selectors.DefaultSelector() as selector:
        for number in range(readers):
            connection = socket.create_connection((host, int(port)))
            # Each turn goes on where those before have not been.
            reader = Reader(connection, number * share + turn * share // 3)
            selector.register(connection, selectors.EVENT_READ, reader)
            reader.ask()
        while True:
            for key, _ in selector.select():
                got.value += key.data.receive()


class Reader:
    """One fetch after the other, with as little work as can be: only where batches end is looked at."""

    # Size and correlation id; throttle, topics, name, partitions; index, error, two offsets, no aborted ones, bytes.
    _BEFORE_RECORDS = 4 + 4 + 4 + 4 + (2 + len("t")) + 4 + 4 + 2 + 8 + 8 + 4 + 4

    def __init__(self, connection: socket.socket, offset: int) -> None:
        self._connection = connection
        self._offset = offset
        self._buffer = bytearray(ANSWER_MAX_BYTES + 1000)
        self._size = 0

    def ask(self) -> None:
        self._size = 0
        self._connection.sendall(fetch_request("t", offset=self._offset, max_bytes=ANSWER_MAX_BYTES, wait_ms=500))

    def receive(self) -> int:
        """Bytes of records, once an answer is whole."""
        self._size += self._connection.recv_into(memoryview(self._buffer)[self._size :])
        if self._size < 4 or self._size < 4 + struct.unpack_from(">i", self._buffer)[0]:
            return 0
        (error,) = struct.unpack_from(">h", self._buffer, self._BEFORE_RECORDS - 4 - 4 - 8 - 8 - 2)
        assert error == 0, error
        at = self._BEFORE_RECORDS
        while at < self._size:
            base, length, last = struct.unpack_from(">qi11xi", self._buffer, at)
            self._offset, at = base + last + 1, at + 12 + length
        self.ask()
        return at - self._BEFORE_RECORDS


def measure_hot(bootstrap: str, seconds: float) -> list[float]:
    host, _, port = bootstrap.rpartition(":")
    request, answer_bytes, times = (
        produce_request("hot", records=1, value_bytes=1000),
        produce_response_bytes("hot"),
        [],
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            connection.sendall(request)
            left = answer_bytes
            while left:
                left -= len(connection.recv(left))
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_S)
    return times


def used(process_id: int) -> tuple[float, float]:
    """Megabytes in memory that are its own, and seconds of CPU."""
    _, resident, shared, *_ = (int(each) for each in Path(f"/proc/{process_id}/statm").read_text().split())
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (resident - shared) * _PAGE_KB / 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"median {cuts[49]:6.2f} ms, p99 {cuts[98]:6.2f} ms of {len(times)}"


def run(broker: Broker, cold_end: int, readers: int, seconds: float) -> None:
    measure_hot(broker.bootstrap, 1.0)
    before_mb, _ = used(broker.process_id)
    spawn = multiprocessing.get_context("spawn")
    ratios = []
    for turn in range(3):
        alone = measure_hot(broker.bootstrap, seconds)
        print(f"turn {turn + 1}, alone            {told(alone)}", flush=True)
        got = spawn.Value("q", 0)
        reading = spawn.Process(target=read_all, args=(broker.bootstrap, cold_end, readers, turn, got), daemon=True)
        reading.start()
        while not got.value:
            assert reading.is_alive(), "the readers have failed"
            time.sleep(0.1)
        (_, began_cpu), began_bytes = used(broker.process_id), got.value
        times = measure_hot(broker.bootstrap, seconds)
        memory_mb, cpu = used(broker.process_id)
        assert reading.is_alive(), "the readers have failed"
        rate = (got.value - began_bytes) / seconds / 1e6
        print(
            f"turn {turn + 1}, {readers} cold readers  {told(times)}; {rate:.0f} MB/s cold, "
            f"{(cpu - began_cpu) / seconds:.0%} of a core, memory {memory_mb - before_mb:+.0f} MB",
            flush=True,
        )
        reading.kill()
        reading.join()
        ratios.append(statistics.quantiles(times, n=100)[98] / statistics.quantiles(alone, n=100)[98])
    print(f"p99 beside readers by p99 alone: {' '.join(f'{each:.2f}' for each in ratios)}")


def fill(bootstrap: str, topic: str, size_bytes: int) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "batch.size": 64_000,
        "linger.ms": 5,
        "queue.buffering.max.kbytes": 200_000,
    }
    producer, value = Producer(config), os.urandom(VALUE_BYTES)
    for number in range(size_bytes // VALUE_BYTES):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0, "not all was written"


def make_history(bootstrap: str, data: Path) -> int:
    """The topics; gives where the local log of the one begins, of which most lies in the store alone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 1, config=COLD), NewTopic("hot", 1, 1)]).values():
        future.result(DEADLINE_S)
    fill(bootstrap, "t", HISTORY_BYTES)

    def cold_end() -> int:
        return min((int(path.stem) for path in (data / "t-0").glob("*.log")), default=0)

    wait(lambda: cold_end() > 0.85 * HISTORY_BYTES / VALUE_BYTES, "most of it lies in the store")
    return cold_end()


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.2)


def read_options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=float, default=100.0, help="MB/s of cold reads; 0: no bound")
    return parser.parse_args()


def settings_for(folder: str, rate: float) -> dict[str, str]:
    settings = SETTINGS | {"remote.log.storage.url": f"file://{folder}/store"}
    if rate:
        settings["remote.log.manager.fetch.max.bytes.per.second"] = str(math.ceil(rate * 1e6))
    return settings


def main() -> None:
    options = read_options(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_for(folder, options.rate)
        with Broker(settings=settings, data=f"{folder}/data") as broker:
            cold_end = make_history(broker.bootstrap, Path(folder) / "data")
            broker.restart()  # What copying has left in memory is not the readers'.
            time.sleep(3)
            run(broker, cold_end, options.readers, options.seconds)


if __name__ == "__main__":
    main()
