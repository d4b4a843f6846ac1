"""A busy broker, a console beside it, and a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, sync_playwright

from tailrace.testing import Broker
from tests.parts import need_node_clients, need_program

EVIL = "<img src=x onerror=alert(1)>\"'&{{7*7}}"
LONG_NAME = "n" * 249


@contextmanager
def console(*options: str) -> Iterator[str]:
    """The address of a console that ends with the block."""
    command = [sys.executable, "-m", "tailrace", "console", "--port", "0", "--interval", "0.5", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("console: "), line
            yield line.removeprefix("console: ").strip()
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": 2}) as broker:
        fill(broker.bootstrap)
        yield broker


@pytest.fixture(scope="module")
def address(broker: Broker) -> Iterator[str]:
    with console("--bootstrap", broker.bootstrap) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """While it is there, its own event loop counts as running in this thread."""
    chromium = need_program("chromium")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        yield browser


def fill(bootstrap: str) -> None:
    """Topics, records of every shape, groups of both kinds, names that try to be more than names."""
    client = {"bootstrap.servers": bootstrap}
    admin = AdminClient(client)
    topics = [NewTopic("orders", 3, 1), NewTopic(LONG_NAME, 1, 1), NewTopic("empty", 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result(20)
    producer = Producer(client)
    for number in range(200):
        order = {"id": number, "customer": "ann" if number % 2 else "bob", "note": EVIL}
        headers = [("trace", str(number)), (EVIL, b"\xff\x00")]
        producer.produce("orders", key=str(number), value=json.dumps(order), headers=headers)
    for value in (None, b"", b"\x00\xff" * 50, EVIL.encode(), b"x" * 300_000, '{"grün": "水"}'.encode()):
        producer.produce(LONG_NAME, key=EVIL, value=value)
    assert producer.flush(20) == 0
    for protocol, group in (("classic", "billing"), ("consumer", f"fraud {EVIL}/x")):
        consumer = Consumer(client | {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert consumer.consume(100, 20)
        consumer.commit(asynchronous=False)
        consumer.close()


@pytest.fixture
def page(browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: page.problems.append(dialog.message))
    # What is away is told by the status of a page, too; that is no fault of a script.
    page.on("console", lambda said: page.problems.append(said.text) if _is_fault(said) else None)
    yield page
    page.close()


def _is_fault(said) -> bool:
    return said.type == "error" and not re.search(r"status of (404|502|503)", said.text)


def look_at_all(page: Page, address: str, paths: tuple[str, ...]) -> None:
    axe = (need_node_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    for path in paths:
        answer = page.goto(address + path)
        assert answer.status < 500 or page.get_by_role("alert").count(), path
        assert page.locator("img").count() == 0, path
        broken = page.evaluate(f"(async () => {{ {axe}; return (await axe.run()).violations; }})()")
        assert [(path, each["id"], each["nodes"][0]["html"]) for each in broken] == []
    assert page.problems == []
