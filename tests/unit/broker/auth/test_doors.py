"""Who is let in by which listener, as whom, and what is said to those who are not."""

from __future__ import annotations

import asyncio
import logging
from struct import pack

import pytest

from tailrace.broker.broker import Broker
from tailrace.client.connection import Connection
from tailrace.controller.security.credentials import salt_password
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.security import ScramMechanism
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from tailrace.wire.apis.data import (
    ApiVersionsRequest,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from tailrace.wire.apis.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message
from tests.unit.broker.world import batch, produce, produced

from .secured import JAAS, LISTENERS, PASSWORD, SecuredWorld, certificates, client_settings, secured, tls_settings

Raw = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(raw: Raw, request: Message, version: int) -> Message:
    say(raw, request, version)
    reader, _writer = raw
    async with asyncio.timeout(5):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return decode_response(request.api_key, version, await reader.readexactly(size))[1]


def say(raw: Raw, request: Message, version: int) -> None:
    raw[1].write(b"".join(bytes(part) for part in encode_request(request.api_key, version, 1, "raw", request)))


async def wait_closed(raw: Raw) -> bytes:
    """What it still said."""
    try:
        async with asyncio.timeout(20):
            return await raw[0].read()
    except ConnectionError:
        return b""


async def create_topic(connection: Connection, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = await connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


async def enter(world: SecuredWorld, settings: dict[str, str]) -> None:
    """By TLS 1.3 a client learns only after its handshake that the broker does not want it."""
    connection = await world.log_in("TLS", settings)
    await connection.call(MetadataRequest(topics=None), MetadataResponse)


@pytest.mark.parametrize(
    ("listener", "principal"), [("TLS", "User:ANONYMOUS"), ("LOGIN", "User:alice"), ("BOTH", "User:alice")]
)
async def test_whoever_is_let_in_is_known(listener, principal):
    async with secured() as world:
        connection = await world.log_in(listener)
        assert world.principals == [principal]
        answer = await connection.call(MetadataRequest(topics=None), MetadataResponse)
        # Clients are told the endpoints of the listener that they came in by.
        assert [(each.host, each.port) for each in answer.brokers] == [("127.0.0.1", world.port_of(listener))]
        assert world.at_the_door_count == 0


async def test_a_certificate_tells_who_a_client_is():
    alice = certificates().alice
    settings = client_settings("TLS") | {"ssl.keystore.location": str(alice.joined())}
    async with secured(ssl_client_auth="required") as world:
        await world.log_in("TLS", settings)
        assert world.principals == ["User:CN=alice"]
        with pytest.raises(KafkaError):
            await enter(world, client_settings("TLS"))
        assert len(world.principals) == 1
    async with secured(ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:CN=(.*)/$1/U") as world:
        await world.log_in("TLS", settings)
        await world.log_in("TLS")
        assert world.principals == ["User:ALICE", "User:ANONYMOUS"]
    async with secured(ssl_client_auth="requested", ssl_principal_mapping_rules="RULE:OU=(.*)/$1/") as world:
        with pytest.raises(KafkaError):
            await world.log_in("TLS", settings)
        assert world.principals == []


async def test_a_certificate_of_a_stranger_is_refused():
    settings = client_settings("TLS") | {"ssl.keystore.location": str(certificates().stranger.joined())}
    for asked in ("required", "requested"):
        async with secured(ssl_client_auth=asked) as world:
            with pytest.raises(KafkaError):
                await enter(world, settings)
            assert world.principals == []


@pytest.mark.parametrize("listener", ["TLS", "BOTH"])
async def test_large_requests_and_answers_pass_through_tls(listener):
    async with secured() as world:
        connection = await world.log_in(listener)
        await create_topic(connection, "t")
        value = bytes(range(256)) * 3000
        for offset in range(4):
            request = produce("t", batch(value), acks=-1)
            answer = await connection.call(request, ProduceResponse, version_max=12)
            assert produced(answer).base_offset == offset
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
        fetch = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 30, topics=[topic])
        fetched = await connection.call(fetch, FetchResponse, version_max=12)
        assert bytes(fetched.responses[0].partitions[0].records).count(value) == 4


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (f"\0alice\0{PASSWORD}x", "Invalid username or password"),
        ("\0nobody\0x", "Invalid username or password"),
        (f"\0Alice\0{PASSWORD}", "Invalid username or password"),
        (f"bob\0alice\0{PASSWORD}", "an authorization id that is different from username"),
        ("bob\0alice\0wrong", "Invalid username or password"),
        ("\0alice", "expected 3 tokens, got 2"),
        (f"\0alice\0{PASSWORD}\0", "expected 3 tokens, got 4"),
        (f"\0\0{PASSWORD}", "username not specified"),
        ("\0alice\0", "password not specified"),
        ("", "expected 3 tokens, got 1"),
        (b"\0alice\0\xff", "it is not UTF-8"),
    ],
)
async def test_what_plain_refuses(message, text):
    async with secured() as world:
        raw = await world.call_raw("LOGIN")
        assert (await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
        token = message if isinstance(message, bytes) else message.encode()
        answer = await ask(raw, SaslAuthenticateRequest(auth_bytes=token), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert text in (answer.error_message or "")
        assert await wait_closed(raw) == b""
        assert world.principals == []


@pytest.mark.parametrize("version", range(5))
async def test_versions_may_be_asked_for_once_before_a_login(version):
    async with secured() as world:
        raw = await world.call_raw("LOGIN")
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        told = await ask(raw, request, version)
        assert {17, 36} <= {each.api_key for each in told.api_keys}
        handshake = await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert isinstance(handshake, SaslHandshakeResponse)
        assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN"])
        answer = await ask(raw, SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()), 1)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1
        assert world.principals == ["User:alice"]
        raw = await world.call_raw("LOGIN")
        await ask(raw, request, version)
        say(raw, request, version)
        assert await wait_closed(raw) == b""


async def test_the_older_handshake_is_followed_by_bare_messages():
    async with secured() as world:
        for password in (PASSWORD, "wrong"):
            raw = await world.call_raw("LOGIN")
            assert (await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == 0
            token = f"\0alice\0{password}".encode()
            raw[1].write(pack(">i", len(token)) + token)
            if password == PASSWORD:
                assert await raw[0].readexactly(4) == bytes(4)
                assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1
            else:
                assert await wait_closed(raw) == b""
        assert world.principals == ["User:alice"]


async def set_scram(connection: Connection, user: str, mechanism: ScramMechanism, password: str) -> None:
    salt, iterations = b"salt of the test", 4096
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salt_password(mechanism, password, salt, iterations),
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    assert "salt of the test" not in repr(request)
    answer = await connection.call(request, AlterUserScramCredentialsResponse)
    assert answer.results[0].error_code == 0


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("listener", ["LOGIN", "BOTH"])
async def test_who_has_a_credential_comes_in_by_scram(listener, mechanism):
    enabled = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    settings = client_settings(listener) | {"sasl.mechanism": mechanism.mechanism_name, "sasl.username": "carol"}
    async with secured(sasl_enabled_mechanisms=enabled) as world:
        admin = await world.log_in("OPEN")
        with pytest.raises(KafkaError, match="invalid credentials"):
            await world.log_in(listener, settings)
        await set_scram(admin, "carol", mechanism, PASSWORD)
        with pytest.raises(KafkaError, match="invalid credentials"):
            await world.log_in(listener, settings | {"sasl.password": "wrong"})
        other = next(each for each in ScramMechanism if each is not mechanism)
        with pytest.raises(KafkaError, match="invalid credentials"):
            await world.log_in(listener, settings | {"sasl.mechanism": other.mechanism_name})
        await world.log_in(listener, settings)
        assert world.principals == ["User:ANONYMOUS", "User:carol"]
        described = await admin.call(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
        )
        assert [(each.user, each.error_code) for each in described.results] == [("carol", 0)]
        assert [(each.mechanism, each.iterations) for each in described.results[0].credential_infos] == [
            (mechanism, 4096)
        ]


async def test_whose_credentials_are_told():
    user = DescribeUserScramCredentialsRequest.UserName
    async with secured() as world:
        admin = await world.log_in("OPEN")
        for name in ("a", "b"):
            await set_scram(admin, name, ScramMechanism.SCRAM_SHA_512, "x")
        for names, told in (
            ([], {"a": 0, "b": 0}),
            (["b"], {"b": 0}),
            (["b", "b", "c"], {"b": ErrorCode.DUPLICATE_RESOURCE, "c": ErrorCode.RESOURCE_NOT_FOUND}),
        ):
            request = DescribeUserScramCredentialsRequest(users=[user(name=name) for name in names])
            answer = await admin.call(request, DescribeUserScramCredentialsResponse)
            assert {each.user: each.error_code for each in answer.results} == told


async def test_a_mechanism_that_is_not_enabled():
    async with secured() as world:
        raw = await world.call_raw("LOGIN")
        answer = await ask(raw, SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert isinstance(answer, SaslHandshakeResponse)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
        assert await wait_closed(raw) == b""


async def test_a_login_where_none_is_due():
    async with secured() as world:
        for listener in ("OPEN", "LOGIN"):
            connection = await world.log_in(listener)
            handshake = await connection.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
            assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE
            login = SaslAuthenticateRequest(auth_bytes=b"\0bob\0b")
            answer = await connection.call(login, SaslAuthenticateResponse)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            await connection.call(MetadataRequest(topics=None), MetadataResponse)
        assert world.principals == ["User:ANONYMOUS", "User:alice"]


HOSTILE = {
    "metadata": b"".join(bytes(part) for part in encode_request(3, 4, 1, "raw", MetadataRequest(topics=[]))),
    "login first": b"".join(
        bytes(part) for part in encode_request(36, 2, 1, "raw", SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"))
    ),
    "a newer handshake": b"\0\0\0\x0f\0\x11\0\x09\0\0\0\1\0\0\0\5PLAIN",
    "a size below zero": b"\xff\xff\xff\xff",
    "a size above the bound": pack(">i", 524289),
    "no header": b"\0\0\0\2\0\x11",
    "an unknown API": pack(">ihhih", 10, 999, 0, 1, -1),
    "zeroes": bytes(64),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "noise": bytes((number * 89 + 41) % 256 for number in range(4096)),
}


@pytest.mark.parametrize("listener", ["TLS", "LOGIN", "BOTH"])
@pytest.mark.parametrize("what", HOSTILE)
async def test_whatever_else_comes_first_closes_the_connection(listener, what):
    async with secured(connection_login_max_ms="4000") as world:
        raw = await world.call_raw(listener)
        raw[1].write(HOSTILE[what])
        said = await wait_closed(raw)
        # TLS may say why, in its own words (an alert); nothing of Kafka's is said.
        assert said == b"" or (listener != "LOGIN" and said[0] == 21)
        await world.wait_nobody_at_the_door()
        assert world.principals == []


@pytest.mark.parametrize("step", ["before the handshake", "after the handshake", "after a refusal"])
async def test_requests_between_the_steps_of_a_login_close_the_connection(step):
    async with secured() as world:
        raw = await world.call_raw("LOGIN")
        if step != "before the handshake":
            await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if step == "after a refusal":
            await ask(raw, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
        say(raw, MetadataRequest(topics=None), 4)
        assert await wait_closed(raw) == b""
        assert world.principals == []


async def test_requests_behind_a_login_that_is_refused_are_not_served():
    async with secured() as world:
        raw = await world.call_raw("LOGIN")
        say(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        say(raw, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
        topic = CreateTopicsRequest.CreatableTopic(name="mine", num_partitions=1, replication_factor=1)
        say(raw, CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
        await wait_closed(raw)
        assert "mine" not in world.broker.image.topics


async def test_requests_behind_a_login_that_is_taken_are_served():
    async with secured() as world:
        raw = await world.call_raw("LOGIN")
        say(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        say(raw, SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()), 2)
        for _ in range(2):
            size = int.from_bytes(await raw[0].readexactly(4), "big")
            await raw[0].readexactly(size)
        assert (await ask(raw, MetadataRequest(topics=[]), 4)).controller_id == 1


@pytest.mark.parametrize("listener", ["TLS", "LOGIN", "BOTH"])
@pytest.mark.parametrize("said", [b"", b"\x16\x03", b"\0\0"])
async def test_whoever_does_not_go_on_is_not_waited_for_for_ever(listener, said):
    async with secured(connection_login_max_ms="2000") as world:
        raws = [await world.call_raw(listener) for _ in range(20)]
        for raw in raws:
            raw[1].write(said)
        other = asyncio.ensure_future(world.log_in(listener))
        for raw in raws:
            await wait_closed(raw)
        await world.wait_nobody_at_the_door()
        await other
        assert len(world.principals) == 1


async def test_those_at_the_door_count_among_the_connections():
    async with secured(max_connections="3", connection_login_max_ms="60000") as world:
        raws = [await world.call_raw("LOGIN") for _ in range(3)]
        while world.at_the_door_count < 3:
            await asyncio.sleep(0.01)
        raw = await world.call_raw("LOGIN")
        assert await wait_closed(raw) == b""
        raws[0][1].close()
        while world.at_the_door_count > 2:
            await asyncio.sleep(0.01)
        await world.log_in("LOGIN")


async def test_no_secret_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    async with secured() as world:
        await world.log_in("LOGIN")
        with pytest.raises(KafkaError):
            await world.log_in("LOGIN", client_settings("LOGIN") | {"sasl.password": "hunter2"})
        raw = await world.call_raw("LOGIN")
        await ask(raw, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await ask(raw, SaslAuthenticateRequest(auth_bytes=b"\0hunter3\0hunter4\0"), 2)
        assert "refused a login" in caplog.text
        told = caplog.text + "".join(str(vars(record)) for record in caplog.records) + repr(world.broker.config)
        assert "hunter" not in told
        assert PASSWORD not in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ssl.keystore.location": ""}, "needs a certificate"),
        ({"ssl.keystore.location": "/none.pem"}, "cannot be read on this machine"),
        ({"ssl.client.auth": "required", "ssl.truststore.location": ""}, "Whose certificates are taken"),
        ({"sasl.enabled.mechanisms": ""}, "name the mechanisms that it takes"),
        ({"listener.name.login.plain.sasl.jaas.config": ""}, "listener.name.login.plain.sasl.jaas.config"),
        (
            {"listener.name.both.plain.sasl.jaas.config": JAAS.replace("user_", "")},
            "listener.name.both.plain.sasl.jaas.config",
        ),
        ({"ssl.principal.mapping.rules": "RULE:"}, "ssl.principal.mapping.rules"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "all or none can be had here"),
        ({"ssl.cipher.suites": "TLS_NULL"}, "No such suite is known"),
    ],
)
async def test_a_broker_that_could_not_keep_its_promise_does_not_start(change, told):
    values = {"node.id": "1", "log.dirs": "data", **LISTENERS, **tls_settings(), **change}
    world = SecuredWorld()
    with pytest.raises(KafkaError, match=told) as caught:
        await Broker(parse_broker_config(values), world.ports).start()
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert PASSWORD not in caught.value.message
