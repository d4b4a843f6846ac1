"""Takes the pictures of docs/console.md from a cluster at work: python docs/console_pictures.py (two minutes).

Needs Debian's chromium, and the development packages.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import sync_playwright

from tailrace.testing import Cluster

PICTURES = Path(__file__).parent / "pictures"
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "messages": "/topics/orders/messages?limit=4",
    "group": "/groups/billing",
}
WORK_S = 90.0


def main() -> None:
    with Cluster(brokers=3) as cluster:
        work = threading.Thread(target=_work, args=(cluster.bootstrap, time.monotonic() + WORK_S))
        work.start()
        command = [sys.executable, "-m", "tailrace", "console", "--port", "0", "--bootstrap", cluster.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
            try:
                assert console.stdout is not None
                address = console.stdout.readline().removeprefix("console: ").strip()
                time.sleep(WORK_S - 10)
                _take(address)
            finally:
                console.terminate()
        work.join()


def _work(bootstrap: str, end: float) -> None:
    client = {"bootstrap.servers": bootstrap}
    topics = [NewTopic("orders", 6, 3), NewTopic("payments", 3, 3), NewTopic("clicks", 12, 3)]
    admin = AdminClient(client)
    for created in admin.create_topics(topics).values():
        created.result(30)
    producer = Producer(client)
    groups = {"billing": ("orders", "consumer"), "fraud": ("payments", "classic")}
    consumers = [
        (Consumer(client | {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}), topic)
        for group, (topic, protocol) in groups.items()
    ]
    for consumer, topic in consumers:
        consumer.subscribe([topic])
    number = 0
    while time.monotonic() < end:
        for _ in range(random.randint(40, 160)):
            number += 1
            customer = random.choice(["ann", "bob", "eve"])
            order = {"id": number, "customer": customer, "total": random.randint(5, 900)}
            producer.produce("orders", key=customer, value=json.dumps(order), headers=[("trace", f"t-{number}")])
            producer.produce("payments", key=str(number), value=json.dumps({"order": number, "paid": True}))
            producer.produce("clicks", value=json.dumps({"page": f"/item/{random.randint(1, 500)}"}))
        producer.poll(0)
        for consumer, _ in consumers:
            consumer.consume(random.randint(20, 140), 0.05)
        time.sleep(0.1)
    producer.flush(30)
    for consumer, _ in consumers:
        consumer.close()


def _take(address: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 700})
        for name, path in PAGES.items():
            page.goto(address + path)
            page.wait_for_timeout(500)
            page.screenshot(path=PICTURES / f"console-{name}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
