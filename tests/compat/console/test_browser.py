"""The console as a person meets it: in a real browser."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from tailrace.testing import Broker
from tests.parts import need_node_clients

from .conftest import EVIL, LONG_NAME, console

PAGES = (
    "/",
    "/?span=day",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/topics?internal=1&by=size",
    "/topics/orders",
    f"/topics/{LONG_NAME}",
    "/topics/empty",
    "/topics/orders/messages",
    "/topics/orders/messages?start=oldest&limit=5&filter=value.customer+%3D+%22ann%22",
    "/topics/orders/messages?filter=nonsense",
    f"/topics/{LONG_NAME}/messages",
    "/topics/empty/messages",
    "/topics/__consumer_offsets/messages",
    f"/topics/{LONG_NAME}/messages/0/2",
    "/groups",
    "/groups/billing",
    f"/groups/{quote('fraud ' + EVIL + '/x', safe='')}",
    "/topics/orders/segments",
    "/transactions?hanging=1",
    "/connections",
    "/audit?find=orders",
    "/access",
    "/schemas",
    "/queues",
    "/letters",
    "/pipelines",
    "/mirrors",
    "/tier",
    "/alerts",
    "/balance?plan=1",
    "/no/such/page",
)


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(20_000)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("dialog", lambda dialog: page.problems.append(dialog.message))
    # A page that is not there is told by its status too; that is no fault of a script.
    page.on(
        "console",
        lambda said: page.problems.append(said.text) if said.type == "error" and "404" not in said.text else None,
    )
    yield page
    page.close()


@pytest.mark.parametrize("color", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_every_page_is_clean_and_open_to_everyone(address: str, page: Page, color: str):
    """No error of a script, nothing of what clients wrote becomes part of a page, no rule of accessibility broken."""
    axe = (need_node_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    page.emulate_media(color_scheme=color)
    for path in PAGES:
        page.goto(address + path)
        assert page.locator("img").count() == 0, path
        assert "49" not in page.title()
        # The policy of our pages lets no foreign script in: axe comes by the debugger, as only a tester's can.
        broken = page.evaluate(f"(async () => {{ {axe}; return (await axe.run()).violations; }})()")
        assert [(path, each["id"], each["nodes"][0]["html"]) for each in broken] == []
    assert page.problems == []


@pytest.mark.long
def test_on_a_phone_nothing_is_wider_than_the_screen(address: str, page: Page):
    page.set_viewport_size({"width": 375, "height": 700})
    for path in PAGES:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 376, path


@pytest.mark.long
def test_on_a_phone_pages_are_in_a_menu(address: str, page: Page):
    page.set_viewport_size({"width": 375, "height": 700})
    page.goto(f"{address}/topics")
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages).to_be_hidden()
    page.get_by_role("button", name="Menu").press("Enter")
    expect(pages.get_by_role("link", name="Topics")).to_have_attribute("aria-current", "page")
    axe = (need_node_clients() / "node_modules" / "axe-core" / "axe.min.js").read_text()
    assert page.evaluate(f"(async () => {{ {axe}; return (await axe.run()).violations; }})()") == []
    page.keyboard.press("Escape")
    expect(pages).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    pages.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(pages).to_be_visible()
    assert page.problems == []


@pytest.mark.long
def test_a_chart_tells_the_value_under_the_pointer(address: str, page: Page):
    page.goto(address)
    chart = page.locator("[data-chart]").nth(1)
    chart.wait_for()
    told = page.locator("figure strong").nth(1)
    last = told.inner_text()
    chart.hover()
    expect(told).to_have_text(re.compile(r"^[\d.,]+ [KMG]?B at \d\d:\d\d:\d\d$"))
    page.locator("h1").hover()
    expect(told).to_have_text(re.compile(r"^[\d.,]+ [KMG]?B$"))
    assert last.endswith("B")
    assert page.problems == []


def test_a_topic_is_made_changed_and_deleted(address: str, page: Page):
    page.goto(f"{address}/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_role("textbox", name="Name").fill("made-here")
    page.get_by_label("Partitions").fill("2")
    page.get_by_label("Settings, one a line").fill("retention.ms=3600000")
    page.get_by_role("button", name="Look at it first").click()
    expect(page.get_by_text("Topic made-here is created, with 2 partitions on 1 replicas.")).to_be_visible()
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("status")).to_contain_text("Topic made-here was created.")

    page.get_by_text("Change a setting").click()
    page.locator("select[name=setting]").select_option("retention.ms")
    page.get_by_role("textbox", name="Value").fill("7200000")
    page.locator("form[action$='/settings'] button").click()
    expect(page.get_by_text("retention.ms is 3600000 now and becomes 7200000.")).to_be_visible()
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("cell", name="7200000")).to_be_visible()

    page.get_by_text("Delete the topic").click()
    page.locator("form[action$='/delete'] button").click()
    page.get_by_label("Type made-here to do it").fill("something else")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    page.get_by_label("Type made-here to do it").fill("made-here")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("status")).to_contain_text("Topic made-here was deleted.")
    assert page.problems == []


def test_what_arrives_is_shown_at_once(address: str, broker: Broker, page: Page):
    page.goto(f"{address}/topics/empty/messages")
    page.get_by_role("button", name="Follow").click()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    # The first ones may come before the console follows.
    for number in range(50):
        producer.produce("empty", value=f"news {number} {EVIL}")
        producer.flush(10)
        if page.locator("tr.new").count():
            break
        page.wait_for_timeout(100)
    expect(page.locator("tr.new").first).to_contain_text(EVIL)
    assert page.locator("img").count() == 0
    page.goto(f"{address}/topics/orders")
    before = page.locator("#tiles").inner_text()
    producer.produce("orders", value="{}")
    producer.flush(10)
    expect(page.locator("#tiles")).not_to_have_text(before, timeout=20_000)
    assert page.problems == []


def test_a_record_is_written_and_read(address: str, page: Page):
    page.goto(f"{address}/topics/orders/messages")
    page.get_by_text("Write a record").click()
    form = page.locator("form[method=post]")
    form.get_by_label("Key", exact=True).fill("from-the-console")
    form.get_by_label("Value", exact=True).fill('{"id": "here"}')
    form.get_by_label("Headers").fill("who=me")
    form.get_by_role("button").click()
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_text("Written to partition")).to_be_visible()
    page.get_by_label("Filter").fill('value.id = "here" and header.who = "me"')
    page.get_by_role("button", name="Read").click()
    expect(page.locator("#rows tr")).to_have_count(1)
    expect(page.locator("#rows")).to_contain_text("from-the-console")


def test_groups_show_why_they_rebalanced_and_go_back(address: str, page: Page):
    page.goto(f"{address}/groups/billing")
    expect(page.locator("#history")).to_contain_text("member joined")
    page.get_by_text("Set other offsets").click()
    page.locator("form[action$='/reset'] button").click()
    expect(page.locator(".words")).to_contain_text("to 0.")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("status")).to_contain_text("The offsets of billing in orders were set.")


@pytest.mark.long
def test_a_cluster_that_is_away_is_told_with_what_was_seen_last(page: Page):
    with Broker() as broker, console("--bootstrap", broker.bootstrap, "--timeout", "2") as address:
        page.goto(address)
        expect(page.locator("#health")).to_contain_text("All well")
        broker.kill()
        page.wait_for_timeout(3000)
        page.goto(f"{address}/brokers")
        expect(page.get_by_role("alert")).to_contain_text("The cluster does not answer")
        broker.start()
        page.wait_for_timeout(2000)
        page.goto(address)
        expect(page.locator("#health")).to_contain_text("All well")
