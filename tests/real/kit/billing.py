"""An application under trial: `python -m tests.real.kit.billing BOOTSTRAP`.

It bills orders, and each order fails as often as its number says: whoever knows the numbers knows how many records must
stand in each topic in the end, whatever died meanwhile.
"""

import asyncio
import random
import sys

from tailrace.kit import Message, Text
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
    app = App(GROUP, bootstrap_servers=bootstrap, transaction_timeout_ms=3000, retry_backoff_max_ms=200)

    @app.process(
        ORDERS,
        BILLS,
        values=Text(),
        retries=Retries(on_the_spot=0, steps=STEPS),
        commit_interval_ms=20,
        window_records=100,
        finish_ms=2000,
    )
    async def bill(message: Message) -> str:
        attempts = int(message.header("tailrace.retry.attempts") or b"0")
        await asyncio.sleep(random.random() * 0.01)
        if attempts < failures_of(int(message.value)):
            raise FailingError(f"order {message.value}, attempt {attempts + 1}")
        return str(message.value)

    return app


if __name__ == "__main__":
    application(sys.argv[1]).run()
