"""A data folder made by Apache Kafka's own storage tool, with its first user and its settings: a node of ours starts
with it as it is, and the user is let in."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.nodes import free_ports

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

PASSWORD = "the first user's"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{MODULE} required username="admin" password="{PASSWORD}";'


def write_properties(folder: Path, clients: str, controller: str) -> str:
    """A broker that logs in to itself as the user that only the storage tool has made."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"CLIENTS://{clients},CONTROLLER://{controller}",
        "advertised.listeners": f"CLIENTS://{clients}",
        "controller.listener.names": "CONTROLLER",
        "early.start.listeners": "CONTROLLER",
        "inter.broker.listener.name": "CLIENTS",
        "controller.quorum.bootstrap.servers": controller,
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "log.dirs": str(folder / "data"),
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    path.chmod(0o600)
    return str(path)


def settings_of(clients: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": clients,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": password,
        "log_level": 0,
    }


def is_refused(clients: str) -> bool:
    """Whoever has another password."""
    errors: list[Any] = []
    stranger = Producer(settings_of(clients, "wrong") | {"error_cb": errors.append})
    deadline = time.monotonic() + DEADLINE_S
    while not errors and time.monotonic() < deadline:
        stranger.poll(0.1)
    return bool(errors) and errors[0].code() == KafkaError._AUTHENTICATION


@pytest.mark.parametrize(
    "voters", [("--standalone",), ("--initial-controllers", "1@{controller}:MYZzSMVISlOJqwFQ8Zu8cA")]
)
def test_a_folder_made_by_kafka_s_storage_tool(kafka_tool: Callable[..., str], tmp_path: Path, voters: tuple[str, ...]):
    clients, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
    properties = write_properties(tmp_path, clients, controller)
    user = f"SCRAM-SHA-512=[name=admin,password={PASSWORD}]"
    words = [word.format(controller=controller) for word in voters]
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"
    kafka_tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties, *words, "--add-scram", user)
    command = [sys.executable, "-m", "tailrace", "broker", "--config", properties]
    for _ in range(2):  # The second time from its own log.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
            try:
                assert node.stdout is not None
                assert node.stdout.readline().startswith("ready: ")
                assert len(Producer(settings_of(clients, PASSWORD)).list_topics(timeout=DEADLINE_S).brokers) == 1
                assert is_refused(clients)
            finally:
                node.terminate()
                _, errors = node.communicate(timeout=DEADLINE_S)
            assert node.returncode == 0, errors
            assert PASSWORD not in errors
