"""A broker beside cold readers: `python -m bench.tier_load [--readers N] [--seconds S]`.

Nine tenths of a topic lie in a folder alone. A producer writes 1 KB records to another topic and waits for each; in
turns it is alone, and beside readers that go through the history at 100 MB/s in sum
(remote.log.manager.fetch.max.bytes.per.second). Readers begin at different places, so that they do not share what was
downloaded. Told are the producer's times, what readers got, the broker's CPU and how much its memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import struct
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from tailrace.testing import Broker
from tailrace.wire.apis.data import FetchRequest
from tailrace.wire.frame import decode_response, encode_request
from tests.real.raw import RawClient, batch
from tests.real.tier.topics import QUICK, create, fill, local_start, wait

RECORDS = 200_000
RATE_BYTES = 100_000_000
VERSION = 12
SETTINGS = QUICK | {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.fetch.max.bytes.per.second": str(RATE_BYTES),
    "remote.log.index.file.cache.total.size.bytes": str(64 << 20),
}
TOPIC = {"segment_bytes": str(8 << 20), "local_retention_bytes": str(8 << 20), "internal_segment_bytes": str(8 << 20)}
_PAGE_KB = 4


def read_all(bootstrap: str, cold_end: int, readers: int, got: Synchronized[int]) -> None:
    """In a process of its own, until it is ended."""

    async def run() -> None:
        share = cold_end // readers
        await asyncio.gather(*(read(bootstrap, each * share, each * share + share, got) for each in range(readers)))

    asyncio.run(run())


async def read(bootstrap: str, offset: int, end: int, got: Synchronized[int]) -> None:
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    begin = offset
    try:
        while True:
            part = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchRequest.FetchTopic(topic="t", partitions=[part])
            request = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])
            request.session_epoch = -1
            for each in encode_request(request.api_key, VERSION, 1, "reader", request):
                writer.write(bytes(each))  # type: ignore[arg-type]
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            response: Any = decode_response(request.api_key, VERSION, await reader.readexactly(size))[1]
            answer = response.responses[0].partitions[0]
            assert answer.error_code == 0, answer.error_code
            data, at = memoryview(bytes(answer.records or b"")), 0
            while at + 61 <= len(data):
                base, length = struct.unpack_from(">qi", data, at)
                if at + 12 + length > len(data):
                    break
                offset = base + struct.unpack_from(">i", data, at + 23)[0] + 1
                at += 12 + length
            got.value += at
            if offset >= end:
                offset = begin
    finally:
        writer.close()


def measure_hot(bootstrap: str, seconds: float) -> list[float]:
    times = []
    records = batch(b"x" * 1000)
    with RawClient(bootstrap) as client:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            assert client.produce("hot", records).error == 0
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(0.002)
    return times


def used(process_id: int) -> tuple[float, float]:
    """Megabytes in memory, and seconds of CPU."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return pages * _PAGE_KB / 1024, (int(fields[11]) + int(fields[12])) / 100


def told(times: list[float]) -> str:
    cuts = statistics.quantiles(times, n=100)
    return f"median {cuts[49]:6.2f} ms, p99 {cuts[98]:6.2f} ms of {len(times)}"


def run(bootstrap: str, process_id: int, cold_end: int, readers: int, seconds: float) -> None:
    before_mb, _ = used(process_id)
    spawn = multiprocessing.get_context("spawn")
    for turn in range(3):
        print(f"turn {turn + 1}, alone            {told(measure_hot(bootstrap, seconds))}")
        got = spawn.Value("q", 0)
        reading = spawn.Process(target=read_all, args=(bootstrap, cold_end, readers, got), daemon=True)
        reading.start()
        while not got.value:
            assert reading.is_alive(), "the readers have failed"
            time.sleep(0.1)
        (_, began_cpu), began_bytes = used(process_id), got.value
        times = measure_hot(bootstrap, seconds)
        memory_mb, cpu = used(process_id)
        assert reading.is_alive(), "the readers have failed"
        rate = (got.value - began_bytes) / seconds / 1e6
        print(
            f"turn {turn + 1}, {readers} cold readers  {told(times)}; {rate:.0f} MB/s cold, "
            f"{(cpu - began_cpu) / seconds:.0%} of a core, memory {memory_mb - before_mb:+.0f} MB"
        )
        reading.kill()
        reading.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = SETTINGS | {"remote.log.storage.url": f"file://{folder}/store"}
        with Broker(settings=settings, data=f"{folder}/data") as broker:
            create(broker.bootstrap, replicas=1, **TOPIC)
            create(broker.bootstrap, "hot", replicas=1, remote_storage_enable="false")
            fill(broker.bootstrap, range(RECORDS))
            log = Path(folder) / "data" / "t-0"
            wait(lambda: local_start(log) > RECORDS * 8 // 10, "most of it lies in the store")
            cold_end = local_start(log)
            run(broker.bootstrap, broker.process_id, cold_end, options.readers, options.seconds)


if __name__ == "__main__":
    main()
