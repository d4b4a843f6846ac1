"""Three nodes that trust each other by certificates and let clients in by TLS and a password, as docs/security.md sets
them up: records survive the death of a node, and nobody comes in without a credential, by any port."""

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.model.config import STANDARD_AUTHORIZER
from tests.nodes import DEADLINE_S, NODE_IDS, Nodes
from tests.real.anonymous import answers_to_anonymous, open_ports, processes_of

PASSWORD = "a secret of the admin"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="{PASSWORD}";'


class SecuredNodes(Nodes):
    listeners = ("CLIENTS", "NODES", "CONTROLLER")

    def address(self, node_id: int) -> str:
        return self.advertised(node_id, "CLIENTS")

    def client_settings(self, password: str = PASSWORD) -> dict[str, object]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": password,
            "ssl.ca.location": str(self.folder / "authority.pem"),
            "log_level": 0,
        }


def settings_of(folder: Path, node_id: int) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "NODES",
        "ssl.keystore.location": str(folder / f"broker-{node_id}.pem"),
        "ssl.truststore.location": str(folder / "authority.pem"),
        "listener.name.nodes.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join(("User:admin", *(f"User:CN=broker-{node}" for node in NODE_IDS))),
    }


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNodes]:
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("secured")
    for node_id in NODE_IDS:
        command = ["certificate", "create", f"broker-{node_id}", "--folder", str(folder), "--name", "127.0.0.1"]
        subprocess.run([sys.executable, "-m", "tailrace", *command], check=True, capture_output=True)
    with SecuredNodes(folder, partial(settings_of, folder)) as running:
        yield running


def test_nobody_comes_in_without_a_credential(nodes: SecuredNodes, tmp_path: Path) -> None:
    """By no port: not with plain bytes, not over TLS, and not with a certificate that somebody else has signed."""
    command = ["certificate", "create", "broker-1", "--folder", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "tailrace", *command], check=True, capture_output=True)
    places = open_ports(processes_of(str(nodes.folder)))
    assert len(places) == len(NODE_IDS) * len(nodes.listeners)
    authority, stranger = str(nodes.folder / "authority.pem"), str(tmp_path / "broker-1.pem")
    assert not [told for place in places for told in answers_to_anonymous(place, authority, stranger)]


def test_a_wrong_password_is_refused(nodes: SecuredNodes) -> None:
    failures: list[str] = []
    settings = nodes.client_settings("another") | {"error_cb": lambda error: failures.append(error.name())}
    admin = AdminClient(settings)
    deadline = time.monotonic() + DEADLINE_S
    while "_AUTHENTICATION" not in failures:
        assert time.monotonic() < deadline, failures
        admin.poll(0.1)


def test_a_node_that_dies_takes_nothing_along(nodes: SecuredNodes) -> None:
    admin = AdminClient(nodes.client_settings())
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(DEADLINE_S)
    producer = Producer(nodes.client_settings() | {"acks": "all"})
    outcomes: list[object] = []
    for number in range(2000):
        producer.produce("t", b"%d" % number, partition=number % 3, on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0.001)
        if number == 500:
            nodes.kill(1)
    assert producer.flush(DEADLINE_S) == 0
    assert outcomes == [None] * 2000
