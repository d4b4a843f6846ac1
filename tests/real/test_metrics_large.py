"""A scrape of ten thousand partitions with the longest names: in slices, while others are served, by many at once."""

from __future__ import annotations

import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

pytestmark = pytest.mark.long

TOPICS, PARTITIONS = 1000, 10
SCRAPERS, GREEDY = 4, 3000


def names() -> list[str]:
    return [f"{number:04d}-".ljust(249, "x") for number in range(TOPICS)]


def memory_bytes(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def read(url: str) -> int:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=120)
    connection.request("GET", "/metrics")
    size = len(connection.getresponse().read())
    connection.close()
    return size


def test_ten_thousand_partitions_and_a_crowd():
    with Broker({"metrics.request.max.ms": 120_000}, start_timeout_s=60) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names()]).values():
            made.result(120)
        url = broker.metrics_url
        _wait_logs(broker)
        before = memory_bytes(broker.process_id)
        started = time.monotonic()
        assert read(url) > 10_000 * 17 * 260
        took_s = time.monotonic() - started
        threads = [threading.Thread(target=read, args=(url,)) for _ in range(SCRAPERS)]
        for thread in threads:
            thread.start()
        waits = [_ask(url) for _ in range(200)]
        for thread in threads:
            thread.join()
        grown = memory_bytes(broker.process_id) - before
        host, port = url.removeprefix("http://").split(":")
        held = [_open(host, int(port)) for _ in range(GREEDY)]
        crowd = [_ask(url, may_fail=True) for _ in range(50)]
        for each in held:
            each.close()
        waits.sort()
        print(f"\nscrape {took_s:.2f} s, memory grown by {grown / 1e6:.1f} MB")
        print(f"health beside scrapes: median {waits[100] * 1000:.1f} ms, p99 {waits[198] * 1000:.1f} ms")
        assert min(crowd) >= 0, f"of {len(crowd)} who asked in the crowd not all were answered"
        assert grown < 64_000_000
        assert _ask(url) >= 0
        assert broker.metrics().value("kafka_server_replicamanager_partitioncount") == TOPICS * PARTITIONS


def _wait_logs(broker: Broker) -> None:
    """Logs are made a few a turn."""
    for _ in range(100):
        if broker.metrics().value("kafka_server_replicamanager_partitioncount") == TOPICS * PARTITIONS:
            return
        time.sleep(1)
    raise AssertionError("not all logs are there")


def _open(host: str, port: int) -> HTTPConnection:
    connection = HTTPConnection(host, port, timeout=30)
    connection.connect()
    return connection


def _ask(url: str, *, may_fail: bool = False) -> float:
    """How long an answer took; -1 if there was none."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    started = time.monotonic()
    try:
        connection.request("GET", "/health/live")
        connection.getresponse().read()
    except (OSError, HTTPException):
        if not may_fail:
            raise
        return -1.0
    finally:
        connection.close()
    return time.monotonic() - started
