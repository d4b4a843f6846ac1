"""Delegation tokens on three nodes of ours: Apache Kafka's own tool and clients, our commands, controllers that die.

librdkafka cannot ask for a login by a token (its SCRAM has no extensions), and is told that it is nobody.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tailrace.model.config import STANDARD_AUTHORIZER
from tests.apache_kafka import ApacheKafka
from tests.nodes import NODE_IDS, Nodes

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

Tool = Callable[..., str]
TOKENS = "DelegationTokenCommand"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ("alice", "bob")
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:alice",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.inside.plain.sasl.jaas.config": f"{PLAIN} required "
    + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    + ";",
    "delegation.token.secret.key": "what all nodes know",
    "delegation.token.expiry.check.interval.ms": "1000",
}


class TokenNodes(Nodes):
    listeners = ("PLAINTEXT", "CONTROLLER", "INSIDE")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with TokenNodes(tmp_path_factory.mktemp("nodes"), lambda _: SETTINGS) as running:
        yield running


@pytest.fixture
def configs(tmp_path: Path) -> dict[str, str]:
    """Files of settings, by user."""
    for name in USERS:
        jaas = f'{PLAIN} required username="{name}" password="{name}-secret";'
        settings = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"
        (tmp_path / name).write_text(settings)
    return {name: str(tmp_path / name) for name in USERS}


def token_config(folder: Path, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256") -> str:
    path = folder / f"token-{mechanism}-{len(password)}"
    jaas = f'{SCRAM} required username="{token_id}" password="{password}" tokenauth="true";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n")
    return str(path)


def tailrace(nodes: Nodes, config: str, *words: str, node_id: int = 1, fails: bool = False) -> str:
    return run(nodes.bound(node_id, "INSIDE"), config, *words, fails=fails)


def run(address: str, config: str, *words: str, fails: bool = False) -> str:
    """What a command of ours prints; what it says if it fails."""
    at = ("--bootstrap", address, "--command-config", config)
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words, *at], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def test_kafkas_tool_and_kafkas_clients(
    nodes: Nodes, configs: dict[str, str], kafka_tool: Tool, tmp_path: Path, fresh_name: Callable[[], str]
):
    def tokens(user: str, *words: str, fails: bool = False) -> str:
        at = ("--bootstrap-server", nodes.bound(2, "INSIDE"), "--command-config", configs[user])
        return kafka_tool(TOKENS, *at, *words, fails=fails)

    made = tokens("alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, password = re.search(r"(\S{22})\s+(\S{88})\s+User:alice\s+User:alice\s+\[User:bob\]", made).groups()
    # Without owners the tool asks for those of nobody, and Apache Kafka tells it of none either.
    assert token_id in tokens("bob", "--describe", "--owner-principal", "User:alice")
    tokens("bob", "--renew", "--renew-time-period", "-1", "--hmac", password)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = token_config(tmp_path, token_id, password, mechanism)
        at = ("--bootstrap-server", nodes.bound(1, "INSIDE"))
        topic = fresh_name()
        kafka_tool("TopicCommand", *at, "--command-config", config, "--create", "--topic", topic)
        words = ("--num-records", "100", "--record-size", "10", "--throughput", "-1", "--topic", topic)
        bootstrap = ("--command-property", f"bootstrap.servers={nodes.bound(1, 'INSIDE')}", "--command-config", config)
        kafka_tool("ProducerPerformance", *words, *bootstrap)
        told = kafka_tool(
            "consumer.ConsoleConsumer", *at, "--command-config", config, "--topic", topic, "--from-beginning",
            "--max-messages", "100", "--timeout-ms", "20000",
        )  # fmt: skip
        assert len(told.split()) >= 100
    # By a token there is no way to another one.
    at = ("--bootstrap-server", nodes.bound(3, "INSIDE"), "--command-config", config)
    assert "not allowed" in kafka_tool(TOKENS, *at, "--create", "--max-life-time-period", "-1", fails=True)
    assert "DelegationTokenNotFound" not in tokens(
        "alice", "--expire", "--expiry-time-period", "-1", "--hmac", password
    )
    assert token_id not in tokens("alice", "--describe", "--owner-principal", "User:alice")
    refused = kafka_tool("TopicCommand", "--bootstrap-server", nodes.bound(1, "INSIDE"), "--command-config", config,
                         "--list", fails=True)  # fmt: skip
    assert "invalid credentials" in refused


def test_our_own_commands(nodes: Nodes, configs: dict[str, str], tmp_path: Path):
    made = json.loads(tailrace(nodes, configs["alice"], "token", "create", "--renewer", "bob", "--json"))
    listed = json.loads(tailrace(nodes, configs["bob"], "token", "list", "--json", node_id=2))
    assert [each for each in listed if each["token"] == made["token"]] == [
        {key: value for key, value in made.items() if key != "password"}
    ]
    config = token_config(tmp_path, made["token"], made["password"], "SCRAM-SHA-512")
    tailrace(nodes, config, "topic", "list", node_id=3)
    assert "credential of their own" in tailrace(nodes, config, "token", "list", fails=True)
    renewed = json.loads(tailrace(nodes, configs["bob"], "token", "renew", made["token"], "--period", "1h", "--json"))
    assert renewed["expires_ms"] < made["expires_ms"]
    assert "CREATE_TOKENS" in tailrace(nodes, configs["bob"], "token", "create", "--owner", "alice", fails=True)
    tailrace(nodes, configs["alice"], "token", "expire", made["token"])
    assert made["token"] not in tailrace(nodes, configs["alice"], "token", "list")
    assert made["token"] in tailrace(nodes, configs["alice"], "token", "expire", made["token"], fails=True)
    login = tmp_path / "login"
    tailrace(nodes, configs["alice"], "token", "create", "--login-file", str(login))
    assert login.stat().st_mode & 0o777 == 0o600
    (tmp_path / "whole").write_text("security.protocol=SASL_PLAINTEXT\n" + login.read_text())
    tailrace(nodes, str(tmp_path / "whole"), "topic", "list")


def test_our_own_commands_at_apache_kafka(kafka_class_path: str, configs: dict[str, str], tmp_path: Path):
    jaas = f'{PLAIN} required username="node" password="n" user_node="n" user_alice="alice-secret";'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "listener.name.inside.plain.sasl.jaas.config": jaas,
        "listener.name.inside.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "delegation.token.secret.key": "a key",
    }
    folder = tmp_path / "kafka"
    folder.mkdir()
    with ApacheKafka(kafka_class_path, folder, listeners={"INSIDE": "SASL_PLAINTEXT"}, settings=settings) as kafka:
        address = kafka.addresses["INSIDE"]
        made = json.loads(run(address, configs["alice"], "token", "create", "--renewer", "bob", "--json"))
        guest = token_config(tmp_path, made["token"], made["password"], "SCRAM-SHA-512")
        run(address, guest, "topic", "list")
        assert "credential of their own" in run(address, guest, "token", "create", fails=True)
        assert made["token"] in run(address, configs["alice"], "token", "list")
        run(address, configs["alice"], "token", "renew", made["token"], "--period", "1h")
        run(address, configs["alice"], "token", "expire", made["token"])
        assert made["token"] not in run(address, configs["alice"], "token", "list")
        assert "does not let token" in run(address, guest, "topic", "list", fails=True)


def test_librdkafka_cannot_say_that_it_has_a_token(nodes: Nodes, configs: dict[str, str]):
    made = json.loads(tailrace(nodes, configs["alice"], "token", "create", "--json"))
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": nodes.bound(1, "INSIDE"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": made["token"],
            "sasl.password": made["password"],
            "error_cb": errors.append,
        }
    )
    deadline = time.monotonic() + DEADLINE_S
    while not errors:
        assert time.monotonic() < deadline
        producer.poll(0.2)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def active_controller(nodes: Nodes, config: str) -> int:
    for node_id in NODE_IDS:
        try:
            told = json.loads(tailrace(nodes, config, "cluster", "describe", "--json", node_id=node_id))
        except AssertionError:
            continue
        return int(told["quorum"]["leader_id"])
    raise AssertionError("nobody answers")


def test_tokens_outlive_the_controller_that_has_made_them(nodes: Nodes, configs: dict[str, str], tmp_path: Path):
    """The last: one node is dead afterwards."""
    alice = configs["alice"]
    dead = active_controller(nodes, alice)
    others = [node_id for node_id in NODE_IDS if node_id != dead]
    short = json.loads(tailrace(nodes, alice, "token", "create", "--max-life", "8s", "--json", node_id=others[0]))
    made = json.loads(tailrace(nodes, alice, "token", "create", "--json", node_id=others[0]))
    nodes.kill(dead)
    config = token_config(tmp_path, made["token"], made["password"])
    for node_id in others:
        tailrace(nodes, config, "topic", "list", node_id=node_id)
    # The new controller removes what has expired.
    deadline = time.monotonic() + 60
    while short["token"] in tailrace(nodes, alice, "token", "list", node_id=others[1]):
        assert time.monotonic() < deadline, "an expired token was never removed"
        time.sleep(0.5)
    expired = token_config(tmp_path, short["token"], short["password"])
    assert "invalid credentials" in tailrace(nodes, expired, "topic", "list", node_id=others[0], fails=True)
    assert made["token"] in tailrace(nodes, alice, "token", "list", node_id=others[1])
