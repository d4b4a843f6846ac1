"""Clients that we did not write log in by tokens, with and without TLS: those that they are handed, and those that they
fetch from an issuer by themselves.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest

from tailrace.testing import Broker
from tests.certificates import Authority
from tests.issuer import AUDIENCE, ISSUER, Issuer, SigningKey
from tests.nodes import free_ports
from tests.parts import need_node_clients

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

PROTOCOLS = {"LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
VALUES = [b"%d" % number for number in range(100)]
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
# Tokens end while the clients are at work: they have to log in again, or connect again.
LIFETIME_S = 6


class Secured(NamedTuple):
    addresses: dict[str, str]
    authority: Authority
    issuer: Issuer

    def sign(self, **claims: Any) -> str:
        return self.issuer.keys[0].sign(**({"exp": time.time() + LIFETIME_S} | claims))

    def librdkafka(self, listener: str) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.addresses[listener],
            "security.protocol": PROTOCOLS[listener],
            "sasl.mechanism": "OAUTHBEARER",
        }
        return settings | ({"ssl.ca.location": str(self.authority.certificate)} if listener == "BOTH" else {})

    def python(self, listener: str, provider: object) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.addresses[listener],
            "security_protocol": PROTOCOLS[listener],
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": provider,
        }
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        return settings | ({"ssl_context": context} if listener == "BOTH" else {})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tokens")
    authority = Authority(folder)
    own = authority.sign("broker", subject_alt_name="IP:127.0.0.1")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(PROTOCOLS, free_ports(2), strict=True)}
    with Issuer(SigningKey("first"), lifetime_s=LIFETIME_S) as issuer:
        settings = {
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "ssl.keystore.location": str(own.joined()),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url,
            "sasl.oauthbearer.allowed.urls": issuer.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        # Java asks only those whom it is told about at its start.
        os.environ["JDK_JAVA_OPTIONS"] = f"-D{'org.apache.kafka.sasl.oauthbearer.allowed.urls'}={issuer.token_url}"
        with Broker(settings):
            yield Secured(addresses, authority, issuer)
        del os.environ["JDK_JAVA_OPTIONS"]


@pytest.mark.parametrize("listener", PROTOCOLS)
@pytest.mark.parametrize("method", ["callback", "oidc"])
def test_librdkafka(secured: Secured, fresh_name: Callable[[], str], listener: str, method: str):
    topic, settings = fresh_name(), secured.librdkafka(listener)
    told: list[int] = []
    if method == "oidc":
        settings |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": secured.issuer.secret,
            "sasl.oauthbearer.token.endpoint.url": secured.issuer.token_url,
        }
    else:

        def give(_config: str) -> tuple[str, float]:
            told.append(1)
            return secured.sign(), time.time() + LIFETIME_S

        settings["oauth_cb"] = give
    producer = confluent_kafka.Producer(settings)
    # Beyond the end of the first token.
    for value in VALUES:
        producer.produce(topic, value, partition=0)
        producer.poll(LIFETIME_S * 1.5 / len(VALUES))
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    ends = time.monotonic() + DEADLINE_S
    while len(got) < len(VALUES) and time.monotonic() < ends:
        got += [record.value() for record in consumer.consume(500, 1.0) if record.error() is None]
    consumer.close()
    assert got == VALUES
    assert method == "oidc" or len(told) > 1


@pytest.mark.parametrize("listener", PROTOCOLS)
async def test_aiokafka(secured: Secured, fresh_name: Callable[[], str], listener: str):
    class Provider(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return secured.sign()

    topic, settings = fresh_name(), secured.python(listener, Provider())
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send(topic, value, partition=0)
    consumer = aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
    async with asyncio.timeout(DEADLINE_S), consumer:
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_kafka_python(secured: Secured, fresh_name: Callable[[], str], listener: str):
    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self) -> str:
            return secured.sign()

    topic, settings = fresh_name(), secured.python(listener, Provider())
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(DEADLINE_S)
    producer.close()
    waits = {"auto_offset_reset": "earliest", "consumer_timeout_ms": int(DEADLINE_S * 1000)}
    consumer = kafka.KafkaConsumer(topic, **settings, **waits)
    got = [record.value for _, record in zip(VALUES, consumer, strict=False)]
    consumer.close()
    assert got == VALUES


KAFKAJS = """
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";
const [address, topic, token, authority] = process.argv.slice(2);
const trusted = { ca: [readFileSync(authority || "/dev/null")], servername: "localhost" };
const ssl = authority ? { ...trusted, checkServerIdentity: () => {} } : false;
const sasl = { mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value: token }) };
const logLevel = kafkajs.logLevel.NOTHING;
const kafka = new kafkajs.Kafka({ brokers: [address], ssl, sasl, logLevel, retry: { retries: 2 } });
const producer = kafka.producer();
await producer.connect();
await producer.send({ topic, messages: [{ value: "hello" }] });
await producer.disconnect();
const consumer = kafka.consumer({ groupId: topic });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({ eachMessage: async ({ message }) => { console.log(message.value.toString()); process.exit(0); } });
"""


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_kafkajs(secured: Secured, fresh_name: Callable[[], str], listener: str):
    script = need_node_clients() / "bearer.mjs"
    script.write_text(KAFKAJS)
    authority = str(secured.authority.certificate) if listener == "BOTH" else ""
    good, bad = secured.sign(exp=time.time() + 600), secured.sign(aud="somebody")
    for token in (good, bad):
        words = ["node", str(script), secured.addresses[listener], fresh_name(), token, authority]
        done = subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
        # It takes the challenge for a welcome, goes on, and is hung up on, as by Kafka.
        assert (done.stdout == "hello\n") == (token == good), done.stderr


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_franz_go(secured: Secured, franz_go: str, fresh_name: Callable[[], str], listener: str):
    words = [franz_go, secured.addresses[listener], fresh_name(), "OAUTHBEARER"]
    if listener == "BOTH":
        words.append(str(secured.authority.certificate))
    good, bad = secured.sign(exp=time.time() + 600), secured.sign(aud="somebody")
    for token in (good, bad):
        environment = os.environ | {"CLIENT_TOKEN": token}
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert (done.stdout == "hello\n") == (token == good), done.stderr
        # It wants no challenge, which Kafka sends as well.
        assert ("unexpected data in oauth response" in done.stderr) == (token == bad), done.stderr


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_java(
    secured: Secured, fresh_name: Callable[[], str], kafka_tool: Callable[..., str], tmp_path: Path, listener: str
):
    at = ("--bootstrap-server", secured.addresses[listener])

    def properties(secret: str) -> str:
        settings = {
            "security.protocol": PROTOCOLS[listener],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(secured.authority.certificate),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": secured.issuer.token_url,
            "sasl.jaas.config": f'{PACKAGE}.OAuthBearerLoginModule required clientId="alice" clientSecret="{secret}" '
            'extension_traceId="7";',
        }
        path = tmp_path / f"{listener}-{len(secret)}.properties"
        path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        return str(path)

    topic, good = fresh_name(), properties(secured.issuer.secret)
    kafka_tool("TopicCommand", *at, "--create", "--topic", topic, "--command-config", good)
    told = kafka_tool(
        # Slower than tokens live.
        *("ProducerPerformance", "--topic", topic, "--num-records", "500", "--record-size", "500"),
        *("--throughput", str(500 // (2 * LIFETIME_S)), "--command-config", good, *at),
    )
    assert "500 records sent" in told
    told = kafka_tool(
        *("ConsumerPerformance", "--topic", topic, "--num-records", "500", "--timeout", "20000"),
        *("--command-config", good, *at),
    )
    assert ", 500," in told
    bad = ("--command-config", properties("wrong"))
    assert "401" in kafka_tool("TopicCommand", *at, "--list", *bad, fails=True)


def test_a_bad_token_is_told(secured: Secured):
    errors: list[Any] = []

    def give(_config: str) -> tuple[str, float]:
        return secured.sign(aud="somebody"), time.time() + LIFETIME_S

    settings = secured.librdkafka("LOGIN") | {"oauth_cb": give, "error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    for _ in range(50):
        producer.poll(0.2)
        if errors:
            break
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()
