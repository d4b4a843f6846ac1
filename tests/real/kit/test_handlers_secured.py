"""An application that may not create topics does not start, and says what to create; it needs no further rights."""

import asyncio

import pytest

from tailrace.kit import Admin, Message, Producer
from tailrace.kit.app import App, Retries, TopicMissingError
from tailrace.testing import Broker


@pytest.mark.long
def test_a_retry_topic_that_may_not_be_created():
    with Broker(secure=True, start_timeout_s=60) as broker:
        admin = broker.client_settings.java()
        worker = broker.user(
            "worker",
            [
                "read topic:orders",
                "read topic:orders.retry.50ms",
                "write topic:orders.retry.50ms",
                "write topic:orders.dlq",
                "read group:billing",
                "write transactional-id:billing-*",
            ],
        ).java()
        asyncio.run(_trial(admin, worker))


async def _trial(admin_options: dict[str, str], worker_options: dict[str, str]) -> None:
    seen: list[bytes | None] = []

    def application() -> App:
        app = App("billing", worker_options)

        @app.consume("orders", retries=Retries(on_the_spot=0, steps=("50ms",)))
        async def handle(message: Message) -> None:
            seen.append(message.raw_value)
            raise TimeoutError

        return app

    async with Admin(admin_options) as admin, Producer(admin_options) as producer:
        await admin.create_topic("orders")
        with pytest.raises(TopicMissingError, match=r"orders\.retry\.50ms.* is not there and cannot be created"):
            await asyncio.wait_for(application().serve(), 30)
        for name in ("orders.retry.50ms", "orders.dlq"):
            await admin.create_topic(name)
        await producer.produce("orders", b"x")
        app = application()
        serving = asyncio.create_task(app.serve())
        async with asyncio.timeout(30):
            while not any(status.counts.committed >= 2 for status in app.status()):
                assert not serving.done(), serving.exception()
                await asyncio.sleep(0.05)
        app.stop()
        await serving
    assert seen == [b"x", b"x"]
