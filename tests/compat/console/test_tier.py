"""The console's page of the tier: what lies where, and whether the store answers."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

from .conftest import console
from .test_doors import ask

DEADLINE_S = 60.0
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}
TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.bytes": "20000"}
COUNT = 200


def cells(page: str, first: str) -> list[str]:
    """Of the row that begins with it, as text."""
    row = next(row for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL) if f">{first}<" in row)
    return [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]


def test_what_lies_where(tmp_path: Path):
    url = f"file://{tmp_path}/store"
    status = tmp_path / "status.json"
    node = {"instance": "broker-1", "node": "1", "is_up": True, "problem": "", "connections": {}}
    nodes = [{**node, "store": "does not answer"}, {**node, "instance": "controller-1", "store": ""}]
    told = {"problem": "", "alerts": [], "rules": [], "nodes": nodes, "at": time.time(), "interval_seconds": 1e6}
    status.write_text(json.dumps(told))
    with Broker(settings={**SETTINGS, "remote.log.storage.url": url}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 1, 1, config=TOPIC), NewTopic("plain", 1, 1)]).values():
            future.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 2000})
        for _ in range(COUNT):
            producer.produce("orders", bytes(1000))
        assert producer.flush(DEADLINE_S) == 0
        with console("--bootstrap", broker.bootstrap, "--alerts", str(status)) as address:
            deadline = time.monotonic() + DEADLINE_S
            while True:
                page = ask(address, "/tier")[1]
                _, records, only_there, not_there, _ = cells(page, "orders")
                if int(only_there) > COUNT / 2 and int(not_there) < 30:
                    break
                assert time.monotonic() < deadline, page
                time.sleep(0.2)
            assert int(records) == COUNT
            _, leader, start, local, copied, end, _ = cells(page, "orders-0")
            assert (leader, start, end) == ("1", "0", str(COUNT))
            assert 0 < int(local) <= int(copied) < COUNT
            assert ">plain<" not in page
            assert cells(page, "1")[1:3] == [url, "✕ does not answer"]
            assert "controller-1" not in page
