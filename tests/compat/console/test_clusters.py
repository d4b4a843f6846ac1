"""The console on a cluster that is balanced and then broken: every page opens, is clean, and says what is wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page

from tailrace.testing import Cluster
from tests.parts import need_node_clients

from .conftest import EVIL, LONG_NAME, console, fill
from .test_doors import FORM, ask, form

pytestmark = pytest.mark.long

DEADLINE_S = 120.0


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
