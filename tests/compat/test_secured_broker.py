"""Clients that we did not write, at every kind of listener of ours: let in, written to and read from, or told why not.

Each mechanism with and without TLS, certificates of clients, and Apache Kafka's own commands for users.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaConnectionError

from tailrace.cli import main
from tailrace.testing import Broker
from tests.certificates import Authority, Identity
from tests.nodes import free_ports
from tests.parts import need_node_clients

from .clients import DEADLINE_S

pytestmark = pytest.mark.long

PASSWORD = "alice-secret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = {"OPEN": "PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
# (listener, mechanism)
DOORS = [("TLS", ""), ("MUTUAL", ""), *((door, each) for door in ("LOGIN", "BOTH") for each in MECHANISMS)]
VALUES = [b"%d" % number for number in range(200)] + [bytes(range(256)) * 2000]


class Secured(NamedTuple):
    addresses: dict[str, str]
    authority: Authority
    client: Identity

    def librdkafka(self, listener: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        settings = {"bootstrap.servers": self.addresses[listener], "security.protocol": PROTOCOLS[listener]}
        if PROTOCOLS[listener].endswith("SSL"):
            settings["ssl.ca.location"] = str(self.authority.certificate)
        if listener == "MUTUAL":
            settings |= {
                "ssl.certificate.location": str(self.client.certificate),
                "ssl.key.location": str(self.client.key),
            }
        if mechanism:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
        return settings

    def python(self, listener: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        """Of kafka-python and aiokafka."""
        settings: dict[str, Any] = {
            "bootstrap_servers": self.addresses[listener],
            "security_protocol": PROTOCOLS[listener],
        }
        if PROTOCOLS[listener].endswith("SSL"):
            context = ssl.create_default_context(cafile=str(self.authority.certificate))
            if listener == "MUTUAL":
                context.load_cert_chain(str(self.client.certificate), str(self.client.key))
            settings["ssl_context"] = context
        if mechanism:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": password,
            }
        return settings

    def properties(self, folder: Path, listener: str, mechanism: str, password: str = PASSWORD) -> str:
        """The path of a file for Java."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        settings = {
            "security.protocol": PROTOCOLS[listener],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }
        if listener == "MUTUAL":
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.client.joined())}
        if mechanism:
            jaas = f'{module} required username="alice" password="{password}";'
            settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        path = folder / f"{listener}-{mechanism}-{len(password)}.properties"
        path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    own = authority.sign("broker", subject_alt_name="IP:127.0.0.1")
    ports = free_ports(len(PROTOCOLS))
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(PROTOCOLS, ports, strict=True)}
    settings = {
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "ssl.keystore.location": str(own.joined()),
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
        "listener.name.both.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{PASSWORD}";',
    }
    secret = folder / "password"
    secret.write_text(PASSWORD)
    with Broker(settings):
        for mechanism in MECHANISMS[1:]:
            words = ["user", "create", "alice", "--password-file", str(secret), "--mechanism", mechanism]
            assert main([*words, "--bootstrap", addresses["OPEN"]]) == 0
        yield Secured(addresses, authority, authority.sign("client"))


@pytest.mark.parametrize(("listener", "mechanism"), DOORS)
def test_librdkafka(secured: Secured, fresh_name: Callable[[], str], listener: str, mechanism: str):
    settings, topic = secured.librdkafka(listener, mechanism), fresh_name()
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    while len(got) < len(VALUES):
        records = consumer.consume(500, DEADLINE_S)
        assert records, "nothing came"
        got += [record.value() for record in records]
    consumer.close()
    assert got == VALUES


@pytest.mark.parametrize(("listener", "mechanism"), DOORS)
async def test_aiokafka(secured: Secured, fresh_name: Callable[[], str], listener: str, mechanism: str):
    settings, topic = secured.python(listener, mechanism), fresh_name()
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send(topic, value, partition=0)
    consumer = aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest")
    async with asyncio.timeout(DEADLINE_S), consumer:
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES


@pytest.mark.parametrize(("listener", "mechanism"), DOORS)
def test_kafka_python(secured: Secured, fresh_name: Callable[[], str], listener: str, mechanism: str):
    settings, topic = secured.python(listener, mechanism), fresh_name()
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


@pytest.mark.parametrize("door", DOORS)
def test_java(
    secured: Secured,
    fresh_name: Callable[[], str],
    kafka_tool: Callable[..., str],
    tmp_path: Path,
    door: tuple[str, str],
):
    listener, mechanism = door
    topic, at = fresh_name(), ("--bootstrap-server", secured.addresses[listener])
    properties = secured.properties(tmp_path, listener, mechanism)
    kafka_tool("TopicCommand", *at, "--create", "--topic", topic, "--command-config", properties)
    told = kafka_tool(
        *("ProducerPerformance", "--topic", topic, "--num-records", "300", "--record-size", "5000"),
        *("--throughput", "-1", "--command-config", properties, *at),
    )
    assert "300 records sent" in told
    told = kafka_tool(
        *("ConsumerPerformance", "--topic", topic, "--num-records", "300", "--timeout", "20000"),
        *("--command-config", properties, *at),
    )
    assert ", 300," in told


KAFKAJS = """
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";
const [address, topic, mechanism, password, authority] = process.argv.slice(2);
const trusted = { ca: [readFileSync(authority || "/dev/null")], servername: "localhost" };
const ssl = authority ? { ...trusted, checkServerIdentity: () => {} } : false;
const sasl = { mechanism: mechanism.toLowerCase(), username: "alice", password };
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


@pytest.mark.parametrize(("listener", "mechanism"), [door for door in DOORS if door[1]])
def test_kafkajs(secured: Secured, fresh_name: Callable[[], str], listener: str, mechanism: str):
    script = need_node_clients() / "secured.mjs"
    script.write_text(KAFKAJS)
    authority = str(secured.authority.certificate) if listener == "BOTH" else ""
    for password in (PASSWORD, "wrong"):
        words = ["node", str(script), secured.addresses[listener], fresh_name(), mechanism, password, authority]
        done = subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
        assert (done.stdout == "hello\n") == (password == PASSWORD), done.stderr
        if password != PASSWORD:
            assert "SASL" in done.stderr


@pytest.mark.parametrize(("listener", "mechanism"), DOORS)
def test_franz_go(secured: Secured, franz_go: str, fresh_name: Callable[[], str], listener: str, mechanism: str):
    topic = fresh_name()
    words = [franz_go, secured.addresses[listener], topic, mechanism or "-"]
    if PROTOCOLS[listener].endswith("SSL"):
        words.append(str(secured.authority.certificate))
    if listener == "MUTUAL":
        words += [str(secured.client.certificate), str(secured.client.key)]
    for password in (PASSWORD, "wrong") if mechanism else ("",):
        environment = os.environ | {"CLIENT_USER": "alice", "CLIENT_PASSWORD": password}
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert (done.stdout == "hello\n") == (password != "wrong"), done.stderr
        assert ("SASL_AUTHENTICATION_FAILED" in done.stderr) == (password == "wrong"), done.stderr


def test_kafka_s_own_commands_change_users(
    secured: Secured, kafka_tool: Callable[..., str], tmp_path: Path, fresh_name: Callable[[], str]
):
    config, at = "kafka.admin.ConfigCommand", ("--bootstrap-server", secured.addresses["OPEN"])
    bob = ("--entity-type", "users", "--entity-name", "bob")
    kafka_tool(config, *at, "--alter", *bob, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=bob-secret]")
    told = kafka_tool(config, *at, "--describe", *bob)
    assert "SCRAM-SHA-512=iterations=8192" in told
    settings = secured.librdkafka("BOTH", "SCRAM-SHA-512", "bob-secret") | {"sasl.username": "bob"}
    assert confluent_kafka.Producer(settings).list_topics(timeout=DEADLINE_S).brokers
    kafka_tool(config, *at, "--alter", *bob, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in kafka_tool(config, *at, "--describe", *bob)


@pytest.mark.parametrize(("listener", "mechanism"), [door for door in DOORS if door[1]])
async def test_a_wrong_password_is_told(secured: Secured, listener: str, mechanism: str):
    errors: list[Any] = []
    settings = secured.librdkafka(listener, mechanism, "wrong") | {"error_cb": errors.append}
    producer = confluent_kafka.Producer(settings)
    for _ in range(50):
        producer.poll(0.2)
        if errors:
            break
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    stranger = aiokafka.AIOKafkaProducer(**secured.python(listener, mechanism, "wrong"))
    try:
        with pytest.raises((KafkaConnectionError, aiokafka.errors.AuthenticationFailedError)):
            await stranger.start()
    finally:
        await stranger.stop()
