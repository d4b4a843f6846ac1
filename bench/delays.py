"""The mover of delayed records: the memory that it takes for what waits, and how many a second it delivers.

    python -m bench.delays PENDING DUE

PENDING records wait for two hours to 80 days, DUE for one moment of the next minutes. A broker and the mover are
processes of their own. What was delivered is counted at the target topic, for readers of committed records.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tailrace.kit import Admin, Bytes, Outgoing, Producer
from tailrace.kit.delays import Delays
from tailrace.kit.delays.headers import Delayed, Room, Ticket, wrap
from tailrace.kit.delays.slots import slot_for
from tailrace.testing import Broker

VALUE = bytes(100)
CHUNK = 5000
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
PATIENCE_S = 240.0


def memory_mb(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def batches(count: int, room: Room, now_ms: int, *, due_ms: int | None) -> Iterator[tuple[str, list[Outgoing]]]:
    """As `Delays.send` writes them; those of one batch wait in one ring."""
    made = 0
    while made < count:
        topic, records = "", []
        for number in range(made, min(made + CHUNK, count)):
            # Of a batch all wait for hours, or all for days.
            far = (
                random.randrange(2 * _HOUR_MS, 25 * _HOUR_MS)
                if made // CHUNK % 8 == 0
                else random.randrange(2 * _DAY_MS, 80 * _DAY_MS)
            )
            ticket = Ticket(due_ms if due_ms is not None else now_ms + far, f"{number:032x}")
            slot = slot_for(ticket.due_ms, now_ms)
            topic = room.topic(slot.level)
            records.append(Outgoing(VALUE, None, wrap((), Delayed(ticket, "target", None)), partition=slot.partition))
        made += len(records)
        yield topic, records


async def fill(bootstrap: str, count: int, *, due_ms: int | None) -> None:
    began, now_ms = time.monotonic(), int(time.time() * 1000)
    async with Producer(bootstrap_servers=bootstrap, values=Bytes(), keys=Bytes()) as producer:
        for topic, records in batches(count, Room(), now_ms, due_ms=due_ms):
            await producer.send_many(topic, records)
    print(f"{count} records written in {time.monotonic() - began:.0f} s", flush=True)


async def delivered(admin: Admin) -> int:
    """With the markers of transactions, one or a few of which end a step of up to 10,000 records."""
    return sum((await admin.end_offsets(await admin.partitions_of("target"), committed_only=True)).values())


async def measure(bootstrap: str, pending: int, due: int) -> None:
    async with Delays(bootstrap_servers=bootstrap), Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topic("target", partitions=3)
        await fill(bootstrap, pending, due_ms=None)
        words = ("-m", "tailrace", "delays", "--bootstrap", bootstrap)
        mover = await asyncio.create_subprocess_exec(sys.executable, *words)
        try:
            await asyncio.sleep(15)
            print(f"mover with {pending} pending: {memory_mb(mover.pid)} MB", flush=True)
            due_ms = int(time.time() * 1000) + 30_000 + due // 20  # All are written by then.
            await fill(bootstrap, due, due_ms=due_ms)
            await asyncio.sleep(max(0.0, due_ms / 1000 - time.time()))
            began, most, count = time.monotonic(), 0, 0
            while count < due and time.monotonic() - began < PATIENCE_S:
                await asyncio.sleep(0.2)
                count, most = await delivered(admin), max(most, memory_mb(mover.pid))
            took = time.monotonic() - began
            print(
                f"{count} of {due} delivered in {took:.1f} s: {count / took:.0f}/s; mover {most} MB at most", flush=True
            )
        finally:
            mover.terminate()
            await mover.wait()


def main() -> None:
    pending, due = (int(word.replace("_", "")) for word in sys.argv[1:])
    with Broker() as broker:
        asyncio.run(measure(broker.bootstrap, pending, due))


if __name__ == "__main__":
    main()
