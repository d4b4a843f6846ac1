"""A broker and a gateway beside it, for all tests of this folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tailrace.testing import Broker

pytest.importorskip("httptools", reason="the extra `gateway` is not installed")
pytest.importorskip("websockets", reason="the extra `gateway` is not installed")

JSON = "application/json"


@dataclass
class Gateway:
    url: str
    pid: int
    cluster_id: str = ""

    def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str = JSON, **headers: str
    ) -> tuple[int, Any]:
        """Paths that do not begin with a slash stand below the cluster."""
        status, kind, text = self.raw(method, path, body, content_type=content_type, **headers)
        assert status == 204 or kind == JSON, (status, kind, text)
        return status, json.loads(text) if text else None

    def raw(self, method: str, path: str, body: Any = None, *, content_type: str = JSON, **headers: str):
        place = urlsplit(self.url)
        connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        data = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        if data is not None and content_type:
            sent["Content-Type"] = content_type
        try:
            where = path if path.startswith("/") else f"/v3/clusters/{self.cluster_id}/{path}"
            connection.request(method, where, data, sent)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type"), answer.read()
        finally:
            connection.close()

    def receipts(self, topic: str, body: str) -> tuple[int, list[dict]]:
        status, _, text = self.raw("POST", f"topics/{topic}/records", body)
        return status, [json.loads(line) for line in text.splitlines() if line]

    def create(self, topic: str, partitions: int = 1) -> str:
        status, told = self.ask("POST", "topics", {"topic_name": topic, "partitions_count": partitions})
        assert status == 201, told
        return topic


@contextmanager
def running_gateway(bootstrap: str, *options: str) -> Iterator[Gateway]:
    command = [sys.executable, "-m", "tailrace", "gateway", "--port", "0", "--bootstrap", bootstrap, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("gateway: "), line
            gateway = Gateway(line.removeprefix("gateway: ").strip(), process.pid)
            if "--command-config" not in options:
                gateway.cluster_id = gateway.ask("GET", "/v3/clusters")[1]["data"][0]["cluster_id"]
            yield gateway
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": 1, "group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(scope="package")
def gateway(broker: Broker) -> Iterator[Gateway]:
    with running_gateway(
        broker.bootstrap, "--set", "record.max.bytes=100000", "--set", "request.max.bytes=200000"
    ) as gateway:
        yield gateway
