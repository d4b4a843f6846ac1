"""Many at once: whoever follows messages holds nobody up, and what is shown is there at once."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .conftest import console
from .test_doors import ask

pytestmark = pytest.mark.long

VISITORS = 50
DEADLINE_S = 60.0


class Follower(threading.Thread):
    """Reads an event stream; notes when each message came."""

    def __init__(self, address: str, path: str) -> None:
        super().__init__(daemon=True)
        place = urlsplit(address)
        self.socket = socket.create_connection((place.hostname, place.port), DEADLINE_S)
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        self.seen: dict[str, float] = {}
        self.start()

    def run(self) -> None:
        with self.socket.makefile("r", encoding="utf-8") as file:
            for line in file:
                if "news-" in line:
                    name = line.partition("news-")[2].partition("<")[0]
                    self.seen.setdefault(name, time.monotonic())


@pytest.fixture(scope="module")
def busy() -> Broker:
    with Broker({"num.partitions": 1}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("followed", 3, 1)]).values():
            created.result(20)
        yield broker


def test_fifty_visitors_who_follow_hold_nobody_up(busy: Broker):
    """Each sees a message within a second, though fifty others wait for one; and so do those who ask for pages."""
    with console("--bootstrap", busy.bootstrap) as address:
        followers = [Follower(address, "/topics/followed/messages/tail") for _ in range(VISITORS)]
        lives = [Follower(address, "/live") for _ in range(VISITORS)]
        producer = Producer({"bootstrap.servers": busy.bootstrap, "linger.ms": 0})
        sent: dict[str, float] = {}
        deadline = time.monotonic() + DEADLINE_S
        number = 0
        while not all(each.seen for each in followers):
            assert time.monotonic() < deadline, sum(bool(each.seen) for each in followers)
            producer.produce("followed", value=f"news-{number}", partition=number % 3)
            number += 1
            producer.flush(10)
            time.sleep(0.5)
        pages = []
        for name in (f"last{each}" for each in range(5)):
            sent[name] = time.monotonic()
            producer.produce("followed", value=f"news-{name}", partition=len(sent) % 3)
            producer.flush(10)
            began = time.monotonic()
            assert ask(address, "/topics/followed/messages")[0].status == 200
            pages.append(time.monotonic() - began)
            while not all(name in each.seen for each in followers):
                assert time.monotonic() < sent[name] + DEADLINE_S
                time.sleep(0.02)
        behind = sorted(each.seen[name] - at for name, at in sent.items() for each in followers)
        print(f"behind: {behind[len(behind) // 2]:.3f} {behind[-1]:.3f} s; page: {max(pages):.3f} s")
        for each in (*followers, *lives):
            each.socket.close()
        assert behind[len(behind) // 2] < 1.0, behind
        assert max(pages) < 2.0, pages
