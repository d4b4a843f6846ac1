"""`python -m bench.scrapes [--partitions 10000]`: how long whoever looks at a broker by HTTP holds its loop.

A broker runs in this process, on a loop that notes the CPU of each of its rounds: what a client of the broker waits for
if it comes in the middle of one, on a machine that has time for it. CPU, since on a busy machine a clock tells more of
the others. Who asks is a process of its own:

quiet      nobody asks
scrapes    four read /metrics all the time
hostile    two thousand connections: some say nothing, some a byte at a time, some send a head without an end, some what
           is no HTTP, some ask and do not read; those that are closed come again
"""

import argparse
import asyncio
import gc
import multiprocessing
import socket
import time
from contextlib import suppress
from http.client import HTTPConnection

from tailrace.client.admin import Admin
from tailrace.client.metadata import parse_bootstrap
from tailrace.real.cluster import open_cluster
from tailrace.testing import Broker

TOPICS = 100
SECONDS = 20.0
SCRAPERS, CROWD = 4, 2000
NAME_LENGTH = 249
ASKED = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
OPENINGS = (
    b"",
    b"G",
    b"GET /" + b"a" * 7000,
    b"\x16\x03\x01\x02\x00",
    ASKED,
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 3000,
    b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n",
)


class Rounds(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.taken_ms: list[float] = []
        self.collected_ms = [0.0]  # By the garbage collector, which is no round's own.
        self._collects_since = 0
        gc.callbacks.append(self._note_collection)

    def _note_collection(self, phase: str, _info: dict[str, int]) -> None:
        now = time.thread_time_ns()
        if phase == "start":
            self._collects_since = now
        else:
            self.collected_ms.append((now - self._collects_since) / 1e6)

    def _run_once(self) -> None:
        began = time.thread_time_ns()
        super()._run_once()  # type: ignore[misc]
        self.taken_ms.append((time.thread_time_ns() - began) / 1e6)


def scrape(port: int) -> None:
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.close()


def crowd(port: int) -> None:
    held: list[socket.socket] = []
    for number in range(1 << 40):
        if len(held) < CROWD:
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                held[-1].setblocking(False)
                held[-1].send(OPENINGS[number % len(OPENINGS)])
            continue
        each = held[number % CROWD]
        try:
            each.send(b"x")
        except BlockingIOError:
            continue
        except OSError:
            each.close()
            held.remove(each)


async def watch(loop: Rounds, name: str, port: int, *askers: object) -> None:
    processes = [multiprocessing.Process(target=each, args=(port,), daemon=True) for each in askers]  # type: ignore[arg-type]
    for process in processes:
        process.start()
    await asyncio.sleep(SECONDS / 4)
    loop.taken_ms.clear()
    loop.collected_ms[1:] = []
    await asyncio.sleep(SECONDS)
    taken = sorted(loop.taken_ms)
    for process in processes:
        process.kill()
        process.join()
    await asyncio.sleep(1)
    places = {"median": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100], "max": taken[-1]}
    print(
        f"{name:8} {len(taken):7} rounds, CPU in ms:", *(f"{key} {value:.2f}" for key, value in places.items()), end=""
    )
    print(f"; the longest collection {max(loop.collected_ms):.2f}")


async def run(loop: Rounds, partitions: int) -> None:
    async with Broker(in_process=True) as broker:
        cluster = open_cluster(parse_bootstrap(broker.bootstrap))
        each = partitions // TOPICS
        for number in range(TOPICS):
            await Admin(cluster).create_topic(f"{number:03}-".ljust(NAME_LENGTH, "x"), partition_count=each)
        port = int(broker.metrics_url.rpartition(":")[2])
        wanted = f"kafka_server_replicamanager_partitioncount {each * TOPICS}\n"
        while wanted not in (await asyncio.to_thread(_read, port)):  # noqa: ASYNC110 - a node is looked at from outside
            await asyncio.sleep(1)
        gc.freeze()  # As a node does that has started with so many.
        await watch(loop, "quiet", port)
        await watch(loop, "scrapes", port, *[scrape] * SCRAPERS)
        await watch(loop, "hostile", port, crowd)
        print(f"after it /metrics has {len(await asyncio.to_thread(_read, port)) / 1e6:.0f} MB")
        cluster.close()


def _read(port: int) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    loop = Rounds()
    try:
        loop.run_until_complete(run(loop, options.partitions))
    finally:
        loop.close()


if __name__ == "__main__":
    main()
