"""An application under trial: `python -m tests.real.kit.billing BOOTSTRAP [POINT COUNT [PROCESS ...] | shared]`.

It bills orders, and each order fails as often as its number says: whoever knows the numbers knows how many records must
stand in each topic in the end, whatever died meanwhile. With a point it kills these processes there, or itself, when it
comes by for the COUNTth time; 0 is itself. Shared it is a member of a share group, and writes its bills by a producer
of its own.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any

from tailrace.kit import Message, Producer, Text
from tailrace.kit.app import App, Retries

ORDERS, BILLS, DEAD = "orders", "bills", "orders.dlq"
STEPS = ("100ms", "300ms")
RETRIES = [f"{ORDERS}.retry.{step}" for step in STEPS]
GROUP = "billing"


class FailingError(Exception):
    pass


def failures_of(number: int) -> int:
    """One order of ten fails once, one twice, one for ever."""
    return {7: 1, 8: 2, 9: 3}.get(number % 10, 0)


def application(bootstrap: str) -> App:
    app = App(
        GROUP,
        bootstrap_servers=bootstrap,
        group_protocol=os.environ.get("TRIAL_PROTOCOL", "consumer"),
        session_timeout_ms=2000,  # These two are of the protocol classic.
        heartbeat_interval_ms=300,
        transaction_timeout_ms=3000,
        retry_backoff_max_ms=200,
    )

    @app.process(
        ORDERS,
        BILLS,
        values=Text(),
        retries=Retries(on_the_spot=0, steps=STEPS),
        commit_interval_ms=20,
        window_records=100,
        concurrency=4,
        finish_ms=2000,
    )
    async def bill(message: Message) -> str:
        return await billed(message)

    return app


def shared_application(bootstrap: str) -> App:
    app = App(GROUP, bootstrap_servers=bootstrap, transaction_timeout_ms=3000, retry_backoff_max_ms=200)
    producer = Producer(bootstrap_servers=bootstrap)

    @app.consume(
        ORDERS, values=Text(), retries=Retries(on_the_spot=0, steps=STEPS), concurrency=4, finish_ms=2000, share=True
    )
    async def bill(message: Message) -> None:
        await producer.produce(BILLS, await billed(message))

    return app


async def billed(message: Message) -> str:
    attempts = int(message.header("tailrace.retry.attempts") or b"0")
    await asyncio.sleep(random.random() * 0.03)
    if attempts < failures_of(int(message.value)):
        raise FailingError(f"order {message.value}, attempt {attempts + 1}")
    return str(message.value)


# The method of the producer, and whether the end comes before it or after it.
POINTS = {
    "written": ("send_offsets_to_transaction", "before"),
    "complete": ("commit", "before"),
    "committed": ("commit", "after"),
}


def die_at(point: str, count: int, processes: Sequence[int]) -> None:
    name, when = POINTS[point]
    method = getattr(Producer, name)
    left = count

    async def mortal(producer: Producer, *given: Any) -> None:
        nonlocal left
        left -= 1
        if when == "after":
            await method(producer, *given)
        if not left:
            await producer.flush()
            for process in processes or [0]:
                os.kill(process or os.getpid(), signal.SIGKILL)
        if when == "before":
            await method(producer, *given)

    setattr(Producer, name, mortal)


if __name__ == "__main__":
    if sys.argv[2:] == ["shared"]:
        shared_application(sys.argv[1]).run()
    else:
        if sys.argv[2:]:
            die_at(sys.argv[2], int(sys.argv[3]), [int(word) for word in sys.argv[4:]])
        application(sys.argv[1]).run()
