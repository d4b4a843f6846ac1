"""The pictures of docs/console.md, from a cluster at work: REWRITE=1 takes them anew.

REWRITE=1 .venv/bin/python -m pytest -m long tests/compat/console/test_pictures.py
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
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
WORK_S = 60.0 if "REWRITE" in os.environ else 10.0
SIZE_MAX_BYTES = 160_000


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where broker, registry and console of a cluster are that everything is joined in."""
    command = [sys.executable, "-m", "tailrace", "up", "--brokers", "3", "--port", "0"]
    rules = tmp_path_factory.mktemp("pictures") / "alerts.toml"
    rules.write_text(RULES)
    command += ["--registry-port", "0", "--console-port", "0", "--alerts", str(rules)]
    command += ["--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
    command += ["--set", "super.users=User:ANONYMOUS"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        timer = threading.Timer(300, up.kill)
        timer.start()
        try:
            told: dict[str, str] = {}
            while told.keys() != {"ready", "registry", "console"}:
                name, _, where = up.stdout.readline().strip().partition(": ")
                assert where, told
                told[name] = where
            yield told
        finally:
            timer.cancel()
            up.terminate()
            up.wait(30)


def test_each_screen_has_a_picture(places: dict[str, str], browser, tmp_path: Path):
    prepare(places["ready"])
    work(places["ready"], places["registry"], time.monotonic() + WORK_S)
    invoices = Producer({"bootstrap.servers": places["ready"], "transactional.id": "invoices"})
    invoices.init_transactions(30)
    invoices.begin_transaction()
    invoices.produce("orders", '{"id": 1, "customer": "ann", "total": 12}')
    assert invoices.flush(30) == 0
    folder = DOCS / "pictures" if "REWRITE" in os.environ else tmp_path
    page = browser.new_page(viewport={"width": 1080, "height": 640})
    for name, path in PAGES.items():
        answer = page.goto(places["console"] + path)
        assert answer.status == 200
        page.wait_for_timeout(500)
        picture = folder / f"console-{name}.png"
        page.screenshot(path=picture)
        assert 5_000 < picture.stat().st_size < SIZE_MAX_BYTES
    page.close()
    invoices.abort_transaction(30)


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
