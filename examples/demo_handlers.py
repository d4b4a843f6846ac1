"""The part of the demo that is about handlers: a poison record goes through a retry topic into the dead letters, is
looked at there, and is replayed once the handler is mended."""

import asyncio
import logging
from collections.abc import Callable

from tailrace.kit import Admin, Json, Message, Producer
from tailrace.kit.app import App, Retries
from tailrace.testing import Broker

TOPIC = "invoices"
WAIT_S = 30.0


def bury_and_replay(
    broker: Broker,
    command: Callable[..., None],
    show: Callable[[str], None],
    expect: Callable[[bool, str], None],
) -> None:
    logging.getLogger("tailrace.app").setLevel(logging.ERROR)  # A dead letter is a warning, and here the point.
    asyncio.run(_write(broker))
    shop = _Shop()
    asyncio.run(shop.serve(broker, until=lambda status: status.buried == 1 and status.committed >= 4))
    show(f"paid: {', '.join(shop.paid)}; {shop.attempts} attempts at eve's, one of them by {TOPIC}.retry.200ms")
    expect(shop.attempts == 3, f"the poison record was tried {shop.attempts} times")
    command(broker, "dlq", "list", f"{TOPIC}.dlq")
    shop.is_mended = True
    show("the handler is mended, and its letter given back to it")
    command(broker, "dlq", "replay", f"{TOPIC}.dlq", "--group", "cashier", "--execute")
    asyncio.run(shop.serve(broker, until=lambda _status: "eve" in shop.paid))
    show(f"paid: {', '.join(shop.paid)}")
    expect(sorted(shop.paid) == ["ann", "bob", "eve"], "an invoice was paid twice, or not at all")


class _Shop:
    def __init__(self) -> None:
        self.paid: list[str] = []
        self.attempts = 0
        self.is_mended = False

    async def serve(self, broker: Broker, *, until: Callable[..., bool]) -> None:
        app = App("cashier", bootstrap_servers=broker.bootstrap)

        @app.consume(TOPIC, values=Json(), retries=Retries(on_the_spot=1, steps=("200ms",)))
        async def pay(message: Message) -> None:
            name = message.value["name"]
            if name == "eve" and not self.is_mended:
                self.attempts += 1
                raise ValueError("eve has no account")
            self.paid.append(name)

        serving = asyncio.create_task(app.serve())
        async with asyncio.timeout(WAIT_S):
            while True:
                await asyncio.sleep(0.02)
                if any(until(status.counts) for status in app.status()):
                    break
            app.stop()
            await serving


async def _write(broker: Broker) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topic(TOPIC)
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        await producer.produce_many(TOPIC, [{"name": name} for name in ("ann", "eve", "bob")])
