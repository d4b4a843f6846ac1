"""The pictures of docs/console.md, from a cluster at work: REWRITE=1 takes them anew.

REWRITE=1 .venv/bin/python -m pytest -m long tests/compat/console/test_pictures.py
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from playwright.sync_api import Page

from tailrace.cli import main
from tailrace.kit import Admin, Outgoing
from tailrace.kit import Producer as KitProducer
from tailrace.kit.retries.headers import STAGE_HANDLER, Failure, Origin, Trail, buried_headers
from tailrace.real.runs.folder import FOLDER_VARIABLE, RunFile
from tailrace.real.runs.status import RunStatus, State
from tailrace.testing import Broker

from .conftest import look_at_all
from .test_tier import SETTINGS as TIER

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    "overview": "/",
    "brokers": "/brokers",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/payments/messages?limit=3",
    "message": "/topics/orders/messages/0/3",
    "segments": "/topics/clicks/segments",
    "connections": "/connections",
    "groups": "/groups",
    "transactions": "/transactions?hanging=1",
    "audit": "/audit",
    "schemas": "/schemas/payments-value",
    "group": "/groups/billing",
    "queue": "/queues/thumbnails",
    "queues": "/queues",
    "letters": "/letters?topic=invoices.dlq",
    "pipelines": "/pipelines",
    "tier": "/tier",
    "mirrors": "/mirrors",
    "access": "/access",
    "alerts": "/alerts",
    "balance": "/balance?plan=1",
}
FIELDS = [{"name": "order", "type": "int"}, {"name": "customer", "type": "string"}]
METHOD = {"name": "method", "type": "string", "default": "card"}
FIRST = json.dumps({"type": "record", "name": "Payment", "fields": FIELDS})
SECOND = json.dumps({"type": "record", "name": "Payment", "fields": [*FIELDS, METHOD]})
# What a busy machine provokes says nothing of the console.
RULES = """\
[[rule]]
name = "LoopLag"
enabled = false
[[rule]]
name = "DiskFullSoon"
enabled = false
"""
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.bytes": "20000"}
WORK_S = 60.0 if "REWRITE" in os.environ else 10.0
SIZE_MAX_BYTES = 160_000


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where broker, registry and console of a cluster are that everything is joined in."""
    command = [sys.executable, "-m", "tailrace", "up", "--brokers", "3", "--port", "0"]
    folder = tmp_path_factory.mktemp("pictures")
    rules = folder / "alerts.toml"
    rules.write_text(RULES)
    for name, value in {**TIER, "remote.log.storage.url": f"file://{folder}/store"}.items():
        command += ["--set", f"{name}={value}"]
    command += ["--registry-port", "0", "--console-port", "0", "--alerts", str(rules)]
    command += ["--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
    command += ["--set", "super.users=User:ANONYMOUS"]
    home = os.environ | {FOLDER_VARIABLE: str(folder / "runs")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=home) as up:
        timer = threading.Timer(900, up.kill)
        timer.start()
        try:
            told = {"runs": str(folder / "runs")}
            while told.keys() != {"runs", "ready", "registry", "console"}:
                name, _, where = up.stdout.readline().strip().partition(": ")
                assert where, told
                told[name] = where
            yield told
        finally:
            timer.cancel()
            up.terminate()
            up.wait(60)


@pytest.fixture(scope="module")
def busy(places: dict[str, str]) -> Iterator[str]:
    """The console of the cluster when all is there that can be seen. Before the browser comes: see there."""
    runs = Path(places["runs"])
    with (
        Broker(start_timeout_s=120) as source,
        RunFile(runs, "orders-to-delta", "/data/checkpoints/orders-to-delta").hold(),
    ):
        prepare(places["ready"])
        reject_some(places["ready"])
        asyncio.run(bury(places["ready"]))
        mirror(source.bootstrap, places["ready"])
        work(places["ready"], places["registry"], time.monotonic() + WORK_S)
        # Open as long as somebody looks.
        lasting = {"transactional.id": "invoices", "transaction.timeout.ms": 600_000}
        invoices = Producer({"bootstrap.servers": places["ready"]} | lasting)
        invoices.init_transactions(30)
        invoices.begin_transaction()
        invoices.produce("orders", '{"id": 1, "customer": "ann", "total": 12}')
        assert invoices.flush(30) == 0
        yield places["console"]
        invoices.abort_transaction(30)


def test_each_screen_has_a_picture(places: dict[str, str], busy: str, browser, tmp_path: Path):
    folder = DOCS / "pictures" if "REWRITE" in os.environ else tmp_path
    page = browser.new_page(viewport={"width": 1180, "height": 680})
    for name, path in PAGES.items():
        tell_runs(Path(places["runs"]))  # One that is silent for long is told to be.
        answer = page.goto(busy + path)
        assert answer.status == 200
        page.wait_for_timeout(500)
        picture = folder / f"console-{name}.png"
        page.screenshot(path=picture)
        assert 5_000 < picture.stat().st_size < SIZE_MAX_BYTES
    page.close()


def test_each_screen_is_open_to_everyone_in_the_dark_and_on_a_phone(busy: str, page: Page):
    page.emulate_media(color_scheme="dark")
    look_at_all(page, busy, tuple(PAGES.values()))
    page.set_viewport_size({"width": 375, "height": 700})
    look_at_all(page, busy, tuple(PAGES.values()))
    for path in PAGES.values():
        page.goto(busy + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 376, path


def test_the_page_of_the_docs_shows_them():
    shown = set(re.findall(r"pictures/console-(\w+)\.png", (DOCS / "console.md").read_text()))
    assert shown == PAGES.keys()
    for name in shown:
        assert (DOCS / "pictures" / f"console-{name}.png").stat().st_size < SIZE_MAX_BYTES


def prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("orders", 6, 3),
        NewTopic("payments", 3, 3),
        NewTopic("clicks", 12, replica_assignment=[[1, 2]] * 12),
        NewTopic("archive", 3, 3, config=TIERED),
        NewTopic("jobs", 1, 3),
        NewTopic("dlq.jobs", 1, 3, config={"errors.deadletterqueue.group.enable": "true"}),
    ]
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users = [UserScramCredentialUpsertion(name, scram, b"secret") for name in ("ann", "billing")]
    acls = [
        AclBinding(kind, name, pattern, who, "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, who, operation in (
            (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:ann", AclOperation.WRITE),
            (ResourceType.TOPIC, "pay", ResourcePatternType.PREFIXED, "User:billing", AclOperation.READ),
            (ResourceType.GROUP, "billing", ResourcePatternType.LITERAL, "User:billing", AclOperation.READ),
        )
    ]
    for asked in (
        admin.create_topics(topics),
        admin.alter_user_scram_credentials(users),
        admin.create_acls(acls),
    ):
        for answer in asked.values():
            answer.result(30)


def work(bootstrap: str, registry: str, end: float) -> None:
    client = {"bootstrap.servers": bootstrap}
    producer = Producer(client)
    groups = {"billing": ("orders", "consumer"), "fraud": ("payments", "classic")}
    consumers = [
        (Consumer(client | {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}), topic)
        for group, (topic, protocol) in groups.items()
    ]
    for consumer, topic in consumers:
        consumer.subscribe([topic])
    with SchemaRegistryClient({"url": registry}) as schemas:
        schemas.register_schema("payments-value", Schema(FIRST, "AVRO"))
        serialize = AvroSerializer(schemas, SECOND)
        context = SerializationContext("payments", MessageField.VALUE)
        number = 0
        while time.monotonic() < end:
            for _ in range(random.randint(40, 160)):
                number += 1
                customer = random.choice(["ann", "bob", "eve"])
                order = {"id": number, "customer": customer, "total": random.randint(5, 900)}
                producer.produce("orders", key=customer, value=json.dumps(order), headers=[("trace", f"t-{number}")])
                payment = serialize({"order": number, "customer": customer, "method": "card"}, context)
                producer.produce("payments", key=str(number), value=payment)
                producer.produce("clicks", value=json.dumps({"page": f"/item/{random.randint(1, 500)}"}))
            producer.poll(0)
            for consumer, _ in consumers:
                consumer.consume(random.randint(20, 140), 0.05)
            time.sleep(0.1)
    assert producer.flush(30) == 0
    for consumer, _ in consumers:
        consumer.close()


def reject_some(bootstrap: str) -> None:
    """A share group with jobs that wait, and some that nobody could do."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 2000})
    for number in range(200):
        producer.produce("jobs", json.dumps({"image": number}), key=str(number))
        producer.produce("archive", bytes(1000))
    assert producer.flush(30) == 0
    settings = ["share.auto.offset.reset=earliest", "errors.deadletterqueue.topic.name=dlq.jobs"]
    assert main(["queue", "set", "thumbnails", *settings, "--bootstrap", bootstrap]) == 0
    client = {"bootstrap.servers": bootstrap, "log_level": 2}
    worker = ShareConsumer(client | {"group.id": "thumbnails", "share.acknowledgement.mode": "explicit"})
    worker.subscribe(["jobs"])
    done, deadline = 0, time.monotonic() + 60
    while done < 40:
        assert time.monotonic() < deadline, "the jobs were not delivered"
        for job in worker.poll(0.2):
            worker.acknowledge(job, AcknowledgeType.REJECT if done % 9 == 4 else AcknowledgeType.ACCEPT)
            done += 1
        worker.commit_sync()
    worker.close()
    for number in range(200, 260):
        producer.produce("jobs", json.dumps({"image": number}), key=str(number))
    assert producer.flush(30) == 0


async def bury(bootstrap: str) -> None:
    options = {"bootstrap.servers": bootstrap}
    failures = (ValueError("no such customer"), TimeoutError("no answer"), KeyError("total"))
    async with Admin(options) as admin, KitProducer(options) as producer:
        await admin.create_topic("invoices.dlq")
        now_ms = int(time.time() * 1000)
        for number, failure in enumerate(failures):
            trail = Trail(Origin("invoices", number, 4100 + 37 * number), "billing", 3, 6)
            headers = buried_headers([], trail, Failure(failure, STAGE_HANDLER, now_ms - 60_000 * (3 - number)))
            await producer.produce_many("invoices.dlq", [Outgoing("{}", str(number), headers)])


def tell_runs(folder: Path) -> None:
    """As three runs of pipelines do: one at work, one that has ended, one that failed."""
    now_s = time.time()
    runs = (
        ("orders-to-delta", State.RUNNING, "topic orders -> table /data/orders", "", True),
        ("payments-history", State.DONE, "topic payments -> table /data/payments", "", False),
        ("clicks-by-page", State.FAILED, "topic clicks -> topic pages", "column page is missing in row 4711", False),
    )
    for name, state, summary, problem, is_held in runs:
        checkpoint = f"/data/checkpoints/{name}"
        run = RunStatus(
            name,
            name,
            state,
            checkpoint,
            f"/etc/{name}.toml",
            summary,
            "node-1",
            4711,
            "",
            now_s - 5000,
            now_s,
            problem,
        )
        file = RunFile(folder, name, checkpoint)
        held = nullcontext() if is_held else file.hold()
        with held:
            lag = {"lag": 1200, "lag_seconds": 0.9} if state is State.RUNNING else {}
            batch = {"last_batch": 812, "last_batch_rows": 950, "last_batch_ms": 640, "last_batch_at": now_s - 2}
            file.write(run._replace(rows=771_000, **lag, **batch))


def mirror(source: str, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": source})
    for number in range(500):
        producer.produce("inventory", str(number))
        producer.produce("shipments", str(number))
    assert producer.flush(30) == 0
    words = ["--source", source, "--set", "sync.interval.ms=500", "--bootstrap", bootstrap]
    assert main(["mirror", "create", "warehouse", *words]) == 0
