"""The console's page of mirrors: links, how far their topics are, and what keeps them."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from tailrace.cli import main
from tailrace.testing import Broker

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
