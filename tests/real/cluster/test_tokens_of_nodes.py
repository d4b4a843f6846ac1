"""Three nodes that log in to each other, brokers and controllers, by tokens that they fetch from an issuer: for longer
than a token lives."""

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.model.config import STANDARD_AUTHORIZER
from tests.issuer import AUDIENCE, Issuer, SigningKey
from tests.nodes import DEADLINE_S, Nodes

pytestmark = pytest.mark.long

TOKEN_LIFE_S = 4
PREFIX = "sasl.oauthbearer."


class NodesByToken(Nodes):
    listeners = ("PLAINTEXT", "NODES", "CONTROLLER")


def settings_of(issuer: Issuer, node_id: int) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NODES:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        PREFIX + "jwks.endpoint.url": issuer.keys_url,
        PREFIX + "token.endpoint.url": issuer.token_url,
        PREFIX + "allowed.urls": f"{issuer.keys_url},{issuer.token_url}",
        PREFIX + "expected.audience": AUDIENCE,
        PREFIX + "client.credentials.client.id": f"node-{node_id}",
        PREFIX + "client.credentials.client.secret": issuer.secret,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:node-1;User:node-2;User:node-3",
    }


def test_a_cluster_lives_on_tokens(tmp_path: Path) -> None:
    with (
        Issuer(SigningKey("first", "ES256"), lifetime_s=TOKEN_LIFE_S) as issuer,
        NodesByToken(tmp_path, partial(settings_of, issuer)) as nodes,
    ):
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all"})
        failures: list[object] = []
        ends = time.monotonic() + 3 * TOKEN_LIFE_S
        while time.monotonic() < ends:
            producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
            producer.poll(0.02)
        nodes.restart(2)
        producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(DEADLINE_S) == 0
        assert failures == []
        for node_id in (1, 2, 3):
            log = (tmp_path / f"node-{node_id}.log").read_text()
            assert "refused a login" not in log, log[-3000:]
        # Each connection logs in again with every token, and each node keeps one for all of its calls.
        fetched = issuer.asked.count("/token")
        assert 3 * 3 <= fetched <= 60, fetched
