"""The console on clusters that are empty, large, or balanced and then broken, and where something hangs or moves: every
page opens, is clean, and says what is wrong.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, expect

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster as Client
from tailrace.client.metadata import parse_bootstrap
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.real.ports import real_ports
from tailrace.testing import Broker, Cluster

from .conftest import EVIL, LONG_NAME, console, fill, look_at_all
from .test_doors import FORM, ask, form
from .test_messages import memory_mb

pytestmark = pytest.mark.long

DEADLINE_S = 120.0


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.2)


def test_a_broken_cluster_and_a_balanced_one(page: Page):
    group = quote(f"fraud {EVIL}/x", safe="")
    paths = ("/", "/brokers", "/brokers/2", "/topics", "/topics/orders", "/topics/orders/messages", "/groups")
    paths += (
        f"/groups/{group}",
        f"/topics/{LONG_NAME}/messages",
        "/transactions",
        "/access",
        "/alerts",
        "/balance",
        "/tier",
    )
    with Cluster(brokers=3) as cluster, console("--bootstrap", cluster.bootstrap, "--timeout", "5") as address:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        leads = [NewTopic("uneven", 12, replica_assignment=[[1, 2, 3]] * 12), NewTopic("thin", 3, 3)]
        for created in admin.create_topics(leads).values():
            created.result(60)
        fill(cluster.bootstrap)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50})
        for number in range(2000):
            producer.produce("uneven", b"x" * 1000, partition=number % 12)
        assert producer.flush(60) == 0
        wait(lambda: "uneven" in ask(address, "/topics")[1])
        balance(address)

        cluster.kill(2)
        wait(lambda: "fewer replicas in sync" in ask(address, "/")[1])
        look_at_all(page, address, paths)
        for name in [each for each in cluster.nodes if each.startswith("controller")]:
            cluster.kill(name)
        wait(lambda: "Nobody describes the quorum" in ask(address, "/brokers")[1])
        look_at_all(page, address, paths)
        answer, text = ask(address, "/topics")
        cookie = answer.getheader("Set-Cookie").split(";")[0]
        answer, said = ask(
            address, "/topics", method="POST", body=form(text, name="new"), Content_Type=FORM, Cookie=cookie
        )
        assert answer.status >= 500
        assert "The cluster did not do it" in said


def balance(address: str) -> None:
    """A plan, in words, and a run of it; a second one meanwhile is refused."""
    answer, text = ask(address, "/balance?plan=1")
    assert "moves, " in text, text
    cookie = answer.getheader("Set-Cookie").split(";")[0]

    def post(path: str, **fields: str):
        body = form(text, **fields)
        return ask(address, path, method="POST", body=body, Content_Type=FORM, Cookie=cookie)

    for wrong in ({"rate": "-1"}, {"rate": "x"}, {"drain": "one"}):
        assert post("/balance/run", **wrong)[0].status == 400
    _, said = post("/balance/run", rate="1000000", drain="3")
    assert "nothing moves" in said  # Three replicas need three brokers.
    _, said = post("/balance/run", rate="5000000")
    assert re.search(r"\d+ partitions get other replicas or another leader", said)
    assert "has moved nothing yet" in ask(address, "/balance")[1]
    assert post("/balance/run", rate="5000000", confirm="yes")[0].status == 303
    wait(lambda: "partitions were moved" in ask(address, "/balance")[1])
    assert "Nothing has to move." in ask(address, "/balance?plan=1")[1]
    assert post("/balance/stop", confirm="yes")[0].status == 303
    wait(lambda: "the throttles are gone" in ask(address, "/balance")[1])


def test_an_empty_cluster(page: Page):
    paths = ("/", "/brokers", "/brokers/1", "/topics", "/groups", "/transactions?hanging=1", "/access", "/audit")
    paths += ("/connections", "/alerts", "/balance?plan=1", "/schemas", "/topics/none", "/groups/none")
    with Broker() as broker, console("--bootstrap", broker.bootstrap) as address:
        wait(lambda: "All well" in ask(address, "/")[1])
        look_at_all(page, address, paths)
        assert "There are no topics yet." in ask(address, "/topics")[1]
        assert "There are no groups yet" in ask(address, "/groups")[1]
        assert "No transaction hangs." in ask(address, "/transactions?hanging=1")[1]


def test_a_large_cluster(page: Page):
    """A thousand topics with ten thousand partitions. What it prints are the figures of docs/console.md."""
    paths = ("/", "/brokers", "/brokers/1", "/topics", "/topics?by=size&find=9", "/topics/many-0500", "/groups")
    paths += ("/topics/many-0500/messages", "/topics/many-0500/segments?partition=9", "/transactions", "/connections")
    with Broker() as broker, console("--bootstrap", broker.bootstrap) as address:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for start in range(0, 1000, 50):
            some = [NewTopic(f"many-{each:04}", 10, 1) for each in range(start, start + 50)]
            for created in admin.create_topics(some, operation_timeout=120, request_timeout=120).values():
                created.result(180)
        fill(broker.bootstrap)
        wait(lambda: "many-0400" in ask(address, "/topics")[1])
        for path in ("/", "/topics", "/topics/many-0500"):
            times = []
            for _ in range(5):
                began = time.monotonic()
                assert ask(address, path)[0].status == 200
                times.append(time.monotonic() - began)
            print(f"{path}: {min(times):.3f} to {max(times):.3f} s")
        look_at_all(page, address, paths)
        print(f"{memory_mb(address):.0f} MB")
        assert memory_mb(address) < 120


def test_a_cluster_that_dies_while_somebody_follows(page: Page):
    """The page says so, and goes on when it is asked to, once the cluster is there again."""
    with Broker({"num.partitions": 1}) as broker, console("--bootstrap", broker.bootstrap, "--timeout", "3") as address:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        page.goto(f"{address}/topics/t/messages")
        page.get_by_role("button", name="Follow").click()
        send_until_seen(broker, page, "before")
        broker.kill()
        expect(page.locator("#looked")).to_contain_text("cannot reach", timeout=60_000)
        expect(page.get_by_role("button", name="Follow")).to_be_visible()
        broker.start()
        page.get_by_role("button", name="Follow").click()
        send_until_seen(broker, page, "after")
        assert "before" in page.locator("#rows").inner_text()
        assert page.problems == []


def send_until_seen(broker: Broker, page: Page, value: str) -> None:
    """What is sent before the console follows is not shown."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    deadline = time.monotonic() + DEADLINE_S
    while value not in page.locator("#rows").inner_text():
        assert time.monotonic() < deadline
        producer.produce("t", value)
        producer.flush(10)
        page.wait_for_timeout(200)


def test_a_transaction_that_hangs_is_found_and_ended(page: Page):
    """Its coordinator has lost all that it knew, so nobody will end it."""
    with Broker({"num.partitions": 1}) as broker, console("--bootstrap", broker.bootstrap) as address:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"pay {EVIL}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", b"never committed")
        assert producer.flush(30) == 0
        look_at_all(page, address, ("/transactions",))
        expect(page.locator("#transactions")).to_contain_text("Ongoing")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["__transaction_state"])["__transaction_state"].result(30)
        Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "other"}).init_transactions(60)
        wait(lambda: "no coordinator has it open" in ask(address, "/transactions?hanging=1")[1])
        for color in ("light", "dark"):
            page.emulate_media(color_scheme=color)
            look_at_all(page, address, ("/transactions?hanging=1",))
        row = page.get_by_role("region", name="Hanging").locator("tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("orders-0")
        page.set_viewport_size({"width": 375, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 376
        where = ["--topic", "orders", "--partition", "0", "--start-offset", "0"]
        command = ["transaction", "abort", *where, "--execute", "--bootstrap", broker.bootstrap]
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        page.goto(f"{address}/transactions?hanging=1")
        expect(page.get_by_text("No transaction hangs.")).to_be_visible()


def reassign(bootstrap: str, replicas: Sequence[int]) -> None:
    async def run() -> None:
        ports = real_ports()
        client = Client(ports, parse_bootstrap(bootstrap))
        await Admin(client).reassign_partitions({TopicPartition("orders", PartitionIndex(0)): replicas})
        client.close()
        ports.background.close()

    with ThreadPoolExecutor(1) as elsewhere:  # The browser's loop runs in this thread.
        elsewhere.submit(lambda: asyncio.run(run())).result(60)


def test_a_partition_that_moves_is_seen_on_its_way(page: Page):
    """To a broker that stands still; then it goes on."""
    with Cluster(brokers=3) as cluster, console("--bootstrap", cluster.bootstrap, "--timeout", "5") as address:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[1, 2]])])["orders"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for _ in range(2000):
            producer.produce("orders", b"x" * 1000)
        assert producer.flush(60) == 0
        cluster.kill(3)
        wait(lambda: "✕ away" in ask(address, "/brokers")[1])
        reassign(cluster.bootstrap, [1, 3])
        wait(lambda: "1 partition move" in ask(address, "/brokers")[1])
        for color in ("light", "dark"):
            page.emulate_media(color_scheme=color)
            look_at_all(page, address, ("/brokers", "/topics/orders"))
        expect(page.get_by_text("moves").or_(page.get_by_text("thin")).first).to_be_visible()
        page.goto(f"{address}/brokers")
        row = page.get_by_role("region", name="Partitions on their way").locator("tbody tr")
        expect(row).to_contain_text("orders-0")
        page.set_viewport_size({"width": 375, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 376
        cluster.start(3)
        expect(page.locator("#moving")).to_contain_text("None.", timeout=120_000)
