"""`tailrace user`, `acl` and `quota` against Apache Kafka 4.3: what they set is what it tells, and what it lets in."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tailrace.cli import main
from tailrace.model.config import STANDARD_AUTHORIZER
from tests.apache_kafka import ApacheKafka

pytestmark = pytest.mark.long

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
TIMEOUT_S = 20.0

Command = Callable[..., list[Any]]
Listed = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.login.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    folder = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(kafka_class_path, folder, listeners={"LOGIN": "SASL_PLAINTEXT"}, settings=settings) as running:
        yield running


@pytest.fixture
def command(kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str, code: int = 0) -> list[Any]:
        """What it prints, line by line."""
        assert main([*words, "--json", "--bootstrap", kafka.bootstrap]) == code, capsys.readouterr().err
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def listed(command: Command) -> Listed:
    """What a command lists as soon as it is as expected. Kafka answers for a change once its controller has it, and
    lists what its broker knows, which learns of the change a moment later."""

    def ask(*words: str, until: Callable[[list[Any]], bool]) -> list[Any]:
        deadline = time.monotonic() + TIMEOUT_S
        while not until(lines := command(*words)):
            assert time.monotonic() < deadline, f"{' '.join(words)} lists {lines}"
            time.sleep(0.05)
        return lines

    return ask


def test_users_come_and_go(kafka: ApacheKafka, command: Command, listed: Listed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALICE", "secret")
    command("user", "create", "alice", "--password-env", "ALICE")
    (users,) = listed("user", "list", until=lambda lines: lines != [[]])
    assert users == [{"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    alice = {
        "bootstrap.servers": kafka.addresses["LOGIN"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "log_level": 0,
    }
    assert Producer(alice).list_topics(timeout=TIMEOUT_S).brokers
    assert command("user", "delete", "alice") == [{"user": "alice", "deleted": ["SCRAM-SHA-512"]}]
    listed("user", "list", until=lambda lines: lines == [[]])
    with pytest.raises(KafkaException):
        Producer(alice).list_topics(timeout=2)


def test_acls_come_and_go(command: Command, listed: Listed):
    added = command("acl", "add", "bob", "--consumer", "--topic", "orders", "--group", "billing")
    assert {(each["operation"], each["resource"]) for each in added} == {
        *(("READ", "TOPIC"), ("DESCRIBE", "TOPIC"), ("READ", "GROUP")),
    }
    key = lambda acl: sorted(acl.items())  # noqa: E731
    found = listed("acl", "list", "--principal", "bob", until=lambda lines: len(lines) == len(added))
    assert sorted(found, key=key) == sorted(added, key=key)
    (told,) = command("acl", "explain", "bob", "read", "topic:orders")
    assert (told["allowed"], told["rule"]["operation"]) == (True, "READ")
    command("acl", "explain", "bob", "write", "topic:orders", code=1)
    assert len(command("acl", "remove", "--principal", "bob")) == len(added)
    listed("acl", "list", until=lambda lines: lines == [])


def test_quotas_come_and_go(command: Command, listed: Listed):
    command("quota", "set", "--user", "carol", "--set", "producer_byte_rate=1000")
    listed("quota", "list", until=lambda lines: "1000" in json.dumps(lines))
    command("quota", "remove", "--user", "carol")
    listed("quota", "list", until=lambda lines: "carol" not in json.dumps(lines))
