"""A secured cluster: everything is done as the caller, over TLS, and who is not let in is told so."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from tailrace.testing import Broker
from tests.compat.gateway.conftest import Gateway, running_gateway

pytest.importorskip("cryptography", reason="the extra `security` is not installed")

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def secured() -> Iterator[tuple[Broker, Gateway]]:
    with Broker(secure=True) as broker:
        client = f"{broker.data}/client.properties"
        pem = f"{broker.data}/security/broker.pem"
        tls = f"{broker.data}/gateway.properties"
        with open(tls, "w") as file:
            file.write(f"ssl.keystore.type=PEM\nssl.keystore.location={pem}\n")
        for user in ("ann", "bob"):
            tailrace(broker, "user", "create", user, "--password-env", "PASSWORD")
        tailrace(broker, "topic", "create", "orders")
        for operation in ("READ", "WRITE"):
            tailrace(broker, "acl", "add", "User:ann", "--operation", operation, "--topic", "orders")
        settings = ("--set", "authentication.cache.ms=0", "--set", "authentication.refusal.cache.ms=0")
        with running_gateway(broker.bootstrap, "--command-config", client, "--tls-config", tls, *settings) as gateway:
            yield broker, gateway


def tailrace(broker: Broker, *words: str) -> None:
    where = ("--bootstrap", broker.bootstrap, "--command-config", f"{broker.data}/client.properties")
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words, *where],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "PASSWORD": "a-long-secret"},
    )
    assert done.returncode == 0, done.stderr


def ask(secured: tuple[Broker, Gateway], user: str | None, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    broker, gateway = secured
    context = ssl.create_default_context(cafile=f"{broker.data}/security/authority.pem")
    place = urlsplit(gateway.url)
    connection = HTTPSConnection(place.hostname or "", place.port, timeout=DEADLINE_S, context=context)
    headers = {"Content-Type": "application/json"}
    if user is not None:
        headers["Authorization"] = user if " " in user else "Basic " + b64encode(user.encode()).decode()
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


def test_the_caller_is_who_acts(secured: tuple[Broker, Gateway]):
    record = [{"value": 1}]
    status, told = ask(secured, "ann:a-long-secret", "POST", "/topics/orders", record)
    assert (status, told["results"][0]["offset"]) == (200, 0)
    status, told = ask(secured, "bob:a-long-secret", "POST", "/topics/orders", record)
    assert (status, told["error_code"]) == (403, 40301)
    cluster_id = ask(secured, "bob:a-long-secret", "GET", "/v3/clusters")[1]["data"][0]["cluster_id"]
    assert ask(secured, "bob:a-long-secret", "GET", f"/v3/clusters/{cluster_id}/topics")[1]["data"] == []
    told = ask(secured, "ann:a-long-secret", "GET", f"/v3/clusters/{cluster_id}/topics")[1]
    assert [each["topic_name"] for each in told["data"]] == ["orders"]
    assert ask(secured, "bob:a-long-secret", "GET", "/topics/orders/events")[1]["error_code"] == 40301
    assert ask(secured, "bob:a-long-secret", "GET", f"/v3/clusters/{cluster_id}/acls")[1]["error_code"] == 40301


@pytest.mark.long
def test_the_quota_of_the_caller_holds_here_too(secured: tuple[Broker, Gateway]):
    """Who has used it up waits, at the gateway as anywhere; others do not."""
    broker, _ = secured
    tailrace(broker, "user", "create", "dan", "--password-env", "PASSWORD")
    tailrace(broker, "acl", "add", "User:dan", "--operation", "WRITE", "--topic", "orders")
    tailrace(broker, "quota", "set", "--user", "dan", "--set", "producer_byte_rate=20000")
    record = [{"value": "x" * 100_000}]
    times = {}
    for user in ("dan", "ann"):
        began = time.monotonic()
        for _ in range(4):
            status, told = ask(secured, f"{user}:a-long-secret", "POST", "/topics/orders", record)
            assert status == 200, told
        times[user] = time.monotonic() - began
    # 400 KB at 20 KB/s, of which the window of eleven seconds forgives the first.
    assert times["dan"] > 4, times
    assert times["dan"] > 2 * times["ann"], times


@pytest.mark.parametrize(
    "user",
    [
        None,
        "ann:wrong",
        "nobody:a-long-secret",
        "Basic !!!",
        "Basic ",
        "Bearer x.y.z",
        "Bearer e30.eyJzdWIiOiJhbm4ifQ.",
        "Digest a",
    ],
)
def test_who_is_not_known_is_refused(secured: tuple[Broker, Gateway], user: str | None):
    for path in ("/", "/v3/clusters", "/openapi.json", "/topics/orders/events"):
        status, told = ask(secured, user, "GET", path)
        assert (status, told["error_code"]) == (401, 40101)


def test_a_password_that_was_taken_away_does_not_live_on(secured: tuple[Broker, Gateway]):
    broker, _ = secured
    tailrace(broker, "user", "create", "eve", "--password-env", "PASSWORD")
    assert ask(secured, "eve:a-long-secret", "GET", "/v3/clusters")[0] == 200
    tailrace(broker, "user", "delete", "eve")
    deadline = time.monotonic() + DEADLINE_S
    while ask(secured, "eve:a-long-secret", "GET", "/v3/clusters")[0] != 401:
        assert time.monotonic() < deadline
        time.sleep(0.1)
