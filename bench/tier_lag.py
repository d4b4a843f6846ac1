"""How late a broker's loop is beside cold readers: `python -m bench.tier_lag [--readers N] [--seconds S] [--rate MB]`.

The topic, the producer and the readers are those of `bench.tier_load`, in processes of their own; the broker is in this
one, with a task beside it that sleeps for 2 ms again and again, and notes how much later it wakes up. In turns there is
the producer alone, and the producer with readers.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.tier_load import make_history, measure_hot, read_all, read_options, settings_for
from tailrace.testing import Broker
from tailrace.testing.in_process import InProcess

SLEEP_S = 0.002
TURNS = 3


@asynccontextmanager
async def noting_lateness() -> AsyncIterator[list[float]]:
    """In milliseconds."""
    late: list[float] = []

    async def look() -> None:
        while True:
            due = time.perf_counter() + SLEEP_S
            await asyncio.sleep(SLEEP_S)
            late.append((time.perf_counter() - due) * 1000)

    task = asyncio.create_task(look())
    try:
        yield late
    finally:
        task.cancel()


async def measure(bootstrap: str, seconds: float) -> float:
    """The 99th percentile beside a producer."""
    spawn = multiprocessing.get_context("spawn")
    producer = spawn.Process(target=measure_hot, args=(bootstrap, seconds + 1), daemon=True)
    producer.start()
    await asyncio.sleep(1)  # It has begun.
    async with noting_lateness() as late:
        await asyncio.sleep(seconds)
    await asyncio.to_thread(producer.join)
    cuts = statistics.quantiles(late, n=100)
    print(f"median {cuts[49]:5.2f} ms, p99 {cuts[98]:5.2f} ms, at most {max(late):5.1f} ms of {len(late)}", flush=True)
    return cuts[98]


async def run(data: str, settings: dict[str, str], cold_end: int, options: argparse.Namespace) -> None:
    broker = InProcess("127.0.0.1", 0, data, settings)
    bootstrap = f"127.0.0.1:{await broker.start()}"
    spawn = multiprocessing.get_context("spawn")
    added = []
    try:
        for turn in range(TURNS):
            print(f"turn {turn + 1}, alone            ", end="")
            alone = await measure(bootstrap, options.seconds)
            got = spawn.Value("q", 0)
            reading = spawn.Process(
                target=read_all, args=(bootstrap, cold_end, options.readers, turn, got), daemon=True
            )
            reading.start()
            while not got.value:
                assert reading.is_alive(), "the readers have failed"
                await asyncio.sleep(0.1)
            print(f"turn {turn + 1}, {options.readers} cold readers  ", end="")
            added.append(await measure(bootstrap, options.seconds) - alone)
            assert reading.is_alive(), "the readers have failed"
            reading.kill()
            await asyncio.to_thread(reading.join)
    finally:
        await broker.stop()
    print(f"p99 added by readers: {' '.join(f'{each:.2f}' for each in added)} ms")


def main() -> None:
    options = read_options(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        data, settings = f"{folder}/data", settings_for(folder, options.rate)
        with Broker(settings=settings, data=data) as broker:
            cold_end = make_history(broker.bootstrap, Path(data))
        asyncio.run(run(data, settings, cold_end, options))


if __name__ == "__main__":
    main()
