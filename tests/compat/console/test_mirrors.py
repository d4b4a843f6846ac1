"""The console's page of mirrors: links, how far their topics are, and what keeps them."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Page, expect

from tailrace.cli import main
from tailrace.testing import Broker
from tests.parts import need_node_clients

from .conftest import console
from .test_doors import ask
from .test_tier import cells

DEADLINE_S = 30.0


def test_links_and_their_topics():
    with Broker() as source, Broker() as broker:
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for _ in range(7):
            producer.produce("orders", b"value", partition=0)
        assert producer.flush(DEADLINE_S) == 0
        words = ["--source", source.bootstrap, "--set", "sync.interval.ms=200", "--bootstrap", broker.bootstrap]
        assert main(["mirror", "create", "dc1", *words]) == 0
        with console("--bootstrap", broker.bootstrap) as address:
            deadline = time.monotonic() + DEADLINE_S
            while ">orders<" not in (page := ask(address, "/mirrors")[1]) or cells(page, "orders")[5] != "0":
                assert time.monotonic() < deadline, page
                time.sleep(0.2)
            assert cells(page, "orders")[1:5] == ["dc1", "orders", "mirroring", "1"]
            assert cells(page, "dc1")[2:] == [source.bootstrap, "● at work", "none"]
            source.kill()
            while "cannot reach" not in page:
                assert time.monotonic() < deadline, page
                time.sleep(0.2)
                page = ask(address, "/mirrors")[1]
            assert main(["mirror", "failover", "dc1", "--bootstrap", broker.bootstrap]) == 0
            while cells(page, "orders")[3] != "open":
                assert time.monotonic() < deadline, page
                page = ask(address, "/mirrors")[1]


def mirror(broker: Broker, *words: str) -> None:
    """In a process of its own: a browser's event loop runs in this one."""
    command = [sys.executable, "-m", "tailrace", "mirror", *words, "--bootstrap", broker.bootstrap]
    subprocess.run(command, check=True, timeout=DEADLINE_S, capture_output=True)


def write(broker: Broker, topic: str, **settings: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
    if settings:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return producer


@pytest.mark.long
def test_a_handover_and_what_stops_in_a_browser(browser):
    """The screens of both clusters, as an operator follows them: every state of a topic, and why it is in it."""
    page: Page = browser.new_page(viewport={"width": 1280, "height": 900})
    axe = (need_node_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()

    def look(address: str, topic: str, state: str | None = None, *words: str, region: str = "Mirrored topics") -> None:
        page.goto(f"{address}/mirrors")
        row = (
            page.get_by_role("region", name=region).get_by_role("row").filter(has=page.get_by_role("link", name=topic))
        )
        expect(row).to_be_visible(timeout=DEADLINE_S * 1000)
        if state is not None:
            expect(row.locator(".mark")).to_have_text(state, timeout=DEADLINE_S * 1000)
        for text in words:
            expect(row).to_contain_text(text, timeout=DEADLINE_S * 1000)
        assert page.evaluate(f"(async () => {{ {axe}; return (await axe.run()).violations; }})()") == []

    with Broker() as east, Broker() as west:
        write(east, "payments")
        hanging = write(east, "orders", **{"transactional.id": "open"})
        words = ("--source", east.bootstrap, "--set", "sync.interval.ms=200", "--set", "promote.quiet.ms=500")
        mirror(west, "create", "east", *words)
        with console("--bootstrap", east.bootstrap) as there, console("--bootstrap", west.bootstrap) as here:
            look(here, "payments", "mirroring")
            mirror(west, "promote", "east", "--topic", "orders")
            look(here, "orders", "promoting", "transactions", "open at the source")
            look(there, "orders", region="Topics handed over")
            hanging.abort_transaction(DEADLINE_S)
            look(here, "orders", "open")
            mirror(west, "reverse", "east", "--topic", "orders")
            look(there, "orders", "mirroring", "east-reversed")
            expect(page.get_by_text("Handed over")).to_have_count(0)
            admin = AdminClient({"bootstrap.servers": east.bootstrap})
            admin.delete_topics(["payments"])["payments"].result(DEADLINE_S)
            write(east, "payments")
            look(here, "payments", "stopped", "partition 0", "made again")
    page.close()
