"""Metrics and health of processes: where `tailrace up` tells them, of one broker and of a cluster."""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tailrace.cli import main
from tailrace.testing import Broker, Cluster
from tests.unit.broker.metrics.web import check, parse_prometheus


def ask(url: str, path: str) -> tuple[int, dict[str, object]]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def wait_status(url: str, path: str, wanted: int) -> tuple[int, dict[str, object]]:
    for _ in range(300):
        status, facts = ask(url, path)
        if status == wanted:
            break
        time.sleep(0.1)
    return status, facts


def send(bootstrap: str, count: int, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(count):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(30) == 0


def test_one_broker(capsys: pytest.CaptureFixture[str]):
    with Broker() as broker:
        send(broker.bootstrap, 1000)
        found = broker.metrics()
        check(parse_prometheus(found.text))
        assert found.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 1000
        assert 0 < found.value("process_cpu_seconds_total") < 600
        assert found.value("process_resident_memory_bytes") > 10_000_000
        assert 0 < found.value("process_open_fds") < found.value("process_max_fds")
        assert broker.metrics_url in broker.log()
        assert main(["top", "--data", str(broker.data), "--once", "--json", "--every", "0.2"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert [(each["node"], each["is_up"], each["partitions"]) for each in seen["nodes"]] == [("1", True, 1.0)]
        assert {"p50_ms", "p99_ms"} <= next(each for each in seen["slow_requests"] if each["name"] == "Produce")[
            "values"
        ].keys()
        assert main(["top", "--data", str(broker.data), "--once", "--every", "0.2"]) == 0
        assert "1 topics, 1 partitions" in capsys.readouterr().out
        listed = json.loads(Path(f"{broker.data}/metrics-targets.json").read_text())
        assert listed == [
            {
                "targets": [broker.metrics_url.removeprefix("http://")],
                "labels": {"node": "broker-1", "__scheme__": "http"},
            }
        ]


def test_a_cluster_and_a_broker_that_dies():
    with Cluster() as cluster:
        send(cluster.bootstrap, 500, acks="all")
        names = [f"{kind}-{number}" for kind in ("controller", "broker") for number in (1, 2, 3)]
        readings = {name: cluster.metrics(name) for name in names}
        for found in readings.values():
            check(parse_prometheus(found.text))
        active = "kafka_controller_kafkacontroller_activecontrollercount"
        assert sum(found.value(active) for found in readings.values()) == 1
        total = "kafka_server_brokertopicmetrics_messagesin_total"
        assert sum(found.value(total, topic="orders") for found in readings.values()) == 500
        copied = [
            found.value("kafka_server_brokertopicmetrics_replicationbytesin_total") for found in readings.values()
        ]
        assert sum(copied) > 0
        assert ask(cluster.metrics_url(1), "/health/cluster")[0] == 200
        controller = cluster.metrics_url("controller-1")
        cluster.kill(3)
        cluster.kill(2)  # Too few are in sync now.
        status, facts = wait_status(cluster.metrics_url(1), "/health/cluster", 503)
        assert (status, facts["status"]) == (503, "fail")
        assert facts["under_min_isr"]
        assert ask(controller, "/health/ready")[0] == 200
        cluster.start(2)  # By then it stands in the list, with the port that it has now.
        assert ask(cluster.metrics_url(2), "/health/ready")[0] == 200
