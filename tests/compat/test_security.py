"""Our client and Apache Kafka 4.3 with every kind of listener: let in, written to and read from, or told why not."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.cli import main
from tailrace.client.admin import Admin
from tailrace.client.consumer import Consumer
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer
from tailrace.client.security.settings import parse_security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.real.cluster import open_cluster
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tests.apache_kafka import ApacheKafka
from tests.certificates import Authority, Identity

pytestmark = pytest.mark.long

JAAS = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{JAAS}.plain.PlainLoginModule"
SCRAM_MODULE = f"{JAAS}.scram.ScramLoginModule"
OAUTH_MODULE = f"{JAAS}.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# A session ends so soon only here.
SESSION_MS = 2000
RECORDS = 300


class Secured(NamedTuple):
    kafka: ApacheKafka
    authority: Authority
    stranger: Authority
    client: Identity

    def cluster(self, listener: str, **settings: str) -> Cluster:
        return open_cluster(
            parse_bootstrap(self.kafka.addresses[listener]), security=parse_security(self.settings(**settings))
        )

    def settings(self, **settings: str) -> dict[str, str]:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return {"ssl.truststore.location": str(self.authority.certificate)} | given


@pytest.fixture(scope="module")
def secured(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    broker = authority.sign("broker", subject_alt_name="IP:127.0.0.1")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.joined()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("login", "both"):
        prefix = f"listener.name.{listener}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="b";',
        }
    with ApacheKafka(
        kafka_class_path,
        folder,
        listeners={"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"},
        settings=settings,
        scram=[f"{name}=[name=alice,password=secret]" for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")],
    ) as kafka:
        yield Secured(kafka, authority, stranger, authority.sign("client"))


async def write_and_read(cluster: Cluster, topic: str) -> None:
    """A topic is created, filled and read; the last record is larger than a TLS record and than a buffer."""
    sent = [f"{number}".encode() for number in range(RECORDS)] + [bytes(range(256)) * 3000]
    await Admin(cluster).create_topic(topic, partition_count=1, replication_factor=1)
    async with Producer(cluster) as producer:
        for value in sent:
            await producer.send(topic, value)
    consumer = Consumer(cluster)
    await consumer.assign({TopicPartition(topic, 0): 0})
    received: list[bytes | None] = []
    async with asyncio.timeout(30):
        while len(received) < len(sent):
            for records in (await consumer.poll(1000)).values():
                received += [record.value for record in records]
    assert received == sent
    await consumer.close()
    cluster.close()


@pytest.mark.parametrize("listener", ["LOGIN", "BOTH"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_users_are_let_in(secured: Secured, fresh_name: Callable[[], str], listener: str, mechanism: str):
    module = {"PLAIN": PLAIN_MODULE, "OAUTHBEARER": OAUTH_MODULE}.get(mechanism, SCRAM_MODULE)
    options = 'username="alice" password="secret" unsecuredLoginStringClaim_sub="alice"'
    cluster = secured.cluster(
        listener,
        security_protocol="SASL_PLAINTEXT" if listener == "LOGIN" else "SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_jaas_config=f"{module} required {options};",
    )
    await write_and_read(cluster, fresh_name())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_tls_alone(secured: Secured, fresh_name: Callable[[], str], version: str):
    await write_and_read(secured.cluster("TLS", security_protocol="SSL", ssl_enabled_protocols=version), fresh_name())


async def test_tls_of_both_sides(secured: Secured, fresh_name: Callable[[], str]):
    keystore = str(secured.client.joined())
    cluster = secured.cluster("MUTUAL", security_protocol="SSL", ssl_keystore_location=keystore)
    await write_and_read(cluster, fresh_name())


async def test_a_connection_outlives_its_sessions(secured: Secured):
    cluster = secured.cluster("BOTH", **alice("SASL_SSL", "SCRAM-SHA-512"))
    connection = await cluster.any_connection()
    loop = asyncio.get_running_loop()
    end = loop.time() + 2.5 * SESSION_MS / 1000
    while loop.time() < end:
        calls = [connection.call(MetadataRequest(topics=[]), MetadataResponse) for _ in range(10)]
        await asyncio.gather(*calls)
        await asyncio.sleep(0.05)
    assert connection.is_open
    cluster.close()


def alice(protocol: str, mechanism: str, password: str = "secret") -> dict[str, str]:
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": password,
    }


@pytest.mark.parametrize(
    ("listener", "settings", "code", "reason"),
    [
        (
            "LOGIN",
            alice("SASL_PLAINTEXT", "PLAIN", "wrong"),
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "does not let user 'alice' in by PLAIN: Authentication failed: Invalid username or password",
        ),
        (
            "BOTH",
            alice("SASL_SSL", "SCRAM-SHA-256", "wrong"),
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "does not let user 'alice' in by SCRAM-SHA-256: Authentication failed",
        ),
        ("PLAINTEXT", alice("SASL_PLAINTEXT", "PLAIN"), ErrorCode.ILLEGAL_SASL_STATE, "does not ask for SASL"),
        ("LOGIN", {}, ErrorCode.NETWORK_EXCEPTION, "it may want SASL: see security.protocol"),
        ("PLAINTEXT", {"security_protocol": "SSL"}, ErrorCode.NETWORK_EXCEPTION, "as a port without TLS does"),
        ("TLS", {}, ErrorCode.NETWORK_EXCEPTION, "security.protocol"),
        (
            "MUTUAL",
            {"security_protocol": "SSL"},
            ErrorCode.INVALID_CONFIG,
            "the certificate of this client, or misses one",
        ),
        (
            "MUTUAL",
            {"security_protocol": "SSL", "ssl_enabled_protocols": "TLSv1.2"},
            ErrorCode.INVALID_CONFIG,
            "the certificate of this client, or misses one",
        ),
    ],
)
async def test_what_is_told_of_a_refusal(
    secured: Secured, listener: str, settings: dict[str, str], code: ErrorCode, reason: str
):
    cluster = secured.cluster(listener, **settings)
    with pytest.raises(KafkaError) as raised:
        await cluster.refresh([])
    cluster.close()
    assert reason in raised.value.message
    assert raised.value.code is code


async def test_a_stranger_on_either_side(secured: Secured):
    cluster = secured.cluster("TLS", security_protocol="SSL", ssl_truststore_location=str(secured.stranger.certificate))
    with pytest.raises(KafkaError, match="the broker's certificate is not trusted"):
        await cluster.refresh([])
    keystore = str(secured.stranger.sign("strangers-client").joined())
    cluster = secured.cluster("MUTUAL", security_protocol="SSL", ssl_keystore_location=keystore)
    with pytest.raises(KafkaError, match="does not trust the certificate of this client"):
        await cluster.refresh([])


def test_the_commands_take_the_file_of_kafkas_tools(
    secured: Secured, fresh_name: Callable[[], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    topic = fresh_name()
    file = tmp_path / "client.properties"
    settings = secured.settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=f'{SCRAM_MODULE} required \\\n  username="alice" \\\n  password="secret";',
    )
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    where = ["--bootstrap", secured.kafka.addresses["BOTH"], "--command-config", str(file)]
    assert main(["topic", "create", topic, *where]) == 0
    assert main(["topic", "list", *where]) == 0
    assert topic in capsys.readouterr().out
