"""The console on clusters that are empty, large, or balanced and then broken: every page opens, is clean, and says what
is wrong.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, expect

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
