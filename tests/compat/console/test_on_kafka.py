"""The console beside Apache Kafka, in a browser: the same pages, and plain words where Kafka has no answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.apache_kafka import ApacheKafka

from .conftest import console, fill, look_at_all
from .test_browser import PAGES
from .test_doors import ask

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), settings=settings) as running:
        fill(running.bootstrap)
        yield running


def test_every_page(kafka: ApacheKafka, page: Page):
    with console("--bootstrap", kafka.bootstrap) as address:
        deadline = time.monotonic() + 20
        while "billing" not in ask(address, "/topics")[1]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for path in PAGES:
            answer, text = ask(address, path)
            assert answer.status == (404 if path == "/no/such/page" else 200), (path, text)
        look_at_all(page, address, PAGES)
        for path in ("/connections", "/audit", "/topics/orders/segments"):
            assert "Only brokers of Tailrace tell this" in ask(address, path)[1]
        assert "Apache Kafka keeps no history of rebalances." in ask(address, "/groups/billing")[1]
        assert "OffsetCommitKey" in ask(address, "/topics/__consumer_offsets/messages?start=oldest")[1]
