"""The console's page of dead letters: where each came from and what failed, and nothing of what it says."""

from __future__ import annotations

import asyncio

from tailrace.kit import Admin, Outgoing, Producer
from tailrace.kit.retries.headers import STAGE_HANDLER, Failure, Origin, Trail, buried_headers
from tailrace.testing import Broker

from .conftest import console
from .test_doors import ask
from .test_tier import cells


def test_letters_are_shown_without_what_they_say(tailrace_broker: Broker):
    asyncio.run(_write(tailrace_broker.bootstrap))
    with console("--bootstrap", tailrace_broker.bootstrap) as address:
        page = ask(address, "/letters")[1]
        assert int(cells(page, "console-shop.dlq")[1]) >= 1
        page = ask(address, "/letters?topic=console-shop.dlq")[1]
        letter, _, group, origin, attempts, error = cells(page, "0:0")
        assert (letter, group, origin, attempts, error) == (
            "0:0",
            "&lt;b&gt;",
            "console-shop-2 at 77",
            "6",
            "ValueError",
        )
        assert "secret" not in page
        assert 'href="/topics/console-shop.dlq/messages/0/0"' in page
        assert "does not exist" in ask(address, "/letters?topic=nothing.dlq")[1]


async def _write(bootstrap: str) -> None:
    options = {"bootstrap.servers": bootstrap}
    trail = Trail(Origin("console-shop", 2, 77), "<b>", 3, 6)
    headers = buried_headers([], trail, Failure(ValueError("secret error"), STAGE_HANDLER, 1_700_000_000_000))
    async with Admin(options) as admin, Producer(options) as producer:
        await admin.create_topic("console-shop.dlq")
        await producer.produce_many("console-shop.dlq", [Outgoing("a secret value", "k", headers)])
