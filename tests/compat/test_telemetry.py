"""Clients that others wrote push their metrics (KIP-714), asked for by Apache Kafka's own command; loggers by another.

A collector in the place of a real one takes what the broker hands on, and opentelemetry's classes read it.
"""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tailrace.testing import Broker

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

SUBSCRIPTIONS = "ClientMetricsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
Tool = Callable[..., str]


class Collector:
    """What was handed on: names of metrics, by the name of the client's software."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector._take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_words: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/metrics"

    def _take(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
            names = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
            self.names.setdefault(attributes["client_software_name"], set()).update(names)

    def wait(self, software: str) -> set[str]:
        deadline = time.monotonic() + DEADLINE_S
        while software not in self.names:
            assert time.monotonic() < deadline, f"only these pushed: {self.names}"
            time.sleep(0.1)
        return self.names[software]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


@pytest.fixture(scope="module")
def broker(collector: Collector) -> Iterator[Broker]:
    settings = {
        "client.telemetry.receivers": "metrics,otlp",
        "client.telemetry.otlp.endpoint": collector.endpoint,
    }
    with Broker(settings=settings) as running:
        yield running


def test_kafkas_command_makes_shows_and_deletes_subscriptions(broker: Broker, kafka_tool: Tool) -> None:
    def run(*words: str, fails: bool = False) -> str:
        return kafka_tool(SUBSCRIPTIONS, "--bootstrap-server", broker.bootstrap, *words, fails=fails)

    run("--alter", "--name", "slow", "--metrics", "a.,b.", "--interval", "10000", "--match", "client_id=x.*")
    assert run("--list").split() == ["slow"]
    told = run("--describe", "--name", "slow")
    for part in ("Client metrics configs for slow are:", "interval.ms=10000", "match=client_id=x.*", "metrics=a.,b."):
        assert part in told
    assert "must be between 100 and 3600000" in run("--alter", "--name", "slow", "--interval", "5", fails=True)
    run("--delete", "--name", "slow")
    assert run("--list").split() == []


def test_java_and_librdkafka_push_what_was_asked_for(broker: Broker, collector: Collector, kafka_tool: Tool) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    kafka_tool(SUBSCRIPTIONS, *at, "--alter", "--name", "producers", "--metrics", "*", "--interval", "300")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "ann"})
    deadline = time.monotonic() + DEADLINE_S
    while not collector.names:
        assert time.monotonic() < deadline, "librdkafka pushed nothing"
        producer.produce("orders", b"x")
        producer.poll(0.1)
    producer.flush(DEADLINE_S)
    ((software, names),) = collector.names.items()
    assert "confluent" in software or "rdkafka" in software
    assert any(name.startswith("org.apache.kafka.producer.") for name in names)
    # For some seconds: a client pushes when an interval is over.
    properties = f"bootstrap.servers={broker.bootstrap}"
    load = ("--topic", "orders", "--num-records", "600", "--record-size", "10", "--throughput", "100")
    kafka_tool("ProducerPerformance", *load, "--producer-props", properties)
    assert any(name.startswith("org.apache.kafka.producer.") for name in collector.wait("apache-kafka-java"))


def test_kafkas_command_shows_and_changes_levels_of_loggers(broker: Broker, kafka_tool: Tool) -> None:
    def run(*words: str, fails: bool = False) -> str:
        named = ("--bootstrap-server", broker.bootstrap, "--entity-type", "broker-loggers", "--entity-name", "1")
        return kafka_tool(CONFIGS, *named, *words, fails=fails)

    assert "tailrace.flusher=INFO" in run("--describe")
    run("--alter", "--add-config", "tailrace.flusher=DEBUG")
    assert "tailrace.flusher=DEBUG" in run("--describe")
    run("--alter", "--delete-config", "tailrace.flusher")
    assert "tailrace.flusher=INFO" in run("--describe")
    assert "tailrace.nothing" in run("--alter", "--add-config", "tailrace.nothing=DEBUG", fails=True)
