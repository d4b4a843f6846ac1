"""Metrics of a secure broker and cluster: TLS, and a user that may describe the cluster; health is open."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tailrace.cli import main
from tailrace.testing import Broker, Cluster
from tailrace.testing.metrics import scrape


def get(url: str, authority: str, path: str, **headers: str) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=authority)
    connection = HTTPSConnection(url.removeprefix("https://"), timeout=30, context=context)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def test_who_may_see_what(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    with Broker(secure=True) as broker:
        admin = broker.client_settings
        url, authority, password = broker.metrics_url, admin.login.authority, admin.login.password
        assert url.startswith("https://")
        producer = Producer({**admin.confluent(), "allow.auto.create.topics": True})
        for number in range(100):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        # By TLS each byte passes through Python, and is counted as by any way.
        assert broker.metrics().value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 100
        status, text = get(url, authority, "/health/ready")
        assert (status, json.loads(text)["status"]) == (200, "pass")
        for authorization in (
            "",
            basic("admin", "wrong"),
            basic("nobody", password),
            "Basic ???",
            "Bearer x",
            basic("admin", ""),
        ):
            assert get(url, authority, "/metrics", Authorization=authorization)[0] == 401
        assert get(url, authority, "/metrics", Authorization=basic("admin", password))[0] == 200
        reader = broker.user("reader")
        assert get(url, authority, "/metrics", Authorization=basic("reader", reader.login.password))[0] == 403
        watcher = broker.user("watcher", ["describe cluster"])
        assert "kafka_server" in scrape(url, watcher).text
        # The balancer asks with the login that it has for the brokers, and says if that is not enough.
        properties = tmp_path / "client.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in watcher.java().items()))
        words = ["balance", "plan", "--bootstrap", broker.bootstrap, "--command-config", str(properties)]
        for asked, refusal in ((url, ""), (f"{url}/nowhere", "it answers 404")):
            capsys.readouterr()
            assert main([*words, "--metrics", f"{asked}", "--sample", "0.1"]) == 0
            told = capsys.readouterr().err
            assert (refusal in told, "cannot be read" in told) == (True, bool(refusal)), told
        assert password not in broker.log()
        assert main(["health", "--data", broker.data]) == 0
        assert main(["health", url]) == 1  # The machine does not trust that authority.
        assert "certificate" in capsys.readouterr().out


def test_a_secure_cluster():
    with Cluster(secure=True) as cluster:
        for node in ("controller-1", "broker-1", "broker-3"):
            assert "kafka_server_raftmetrics_current_leader" in cluster.metrics(node).names
