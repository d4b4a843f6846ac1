"""Secrets are planted in a node's settings, in logins of every mechanism that succeed and fail, in bad settings and in
requests; then everything that anybody can read is searched for them: the log at its most talkative, standard error,
answers, exceptions and reprs, the list of processes, and what lies on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
import traceback
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack

import pytest

from tailrace.cli import main
from tailrace.client.connection import Address, Connection, ConnectionLimits
from tailrace.client.security.settings import parse_security
from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import KafkaError
from tailrace.model.security import ScramMechanism
from tailrace.real.cluster import open_cluster
from tailrace.wire.apis.admin import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.apis.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tailrace.wire.schema import Message
from tests.certificates import KEY_PASSWORD, Authority, encrypted_key
from tests.issuer import SigningKey, key_set
from tests.nodes import free_ports

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SCRAM = ScramMechanism.SCRAM_SHA_512
SALT = b"planted-salt-of-carol-"
LISTENERS = {"OPEN": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "CONTROLLER": "SASL_PLAINTEXT"}
DEADLINE_S = 30.0


class Planted:
    """Secrets by what they are. Each is looked for as it is, and in the forms in which bytes are often shown."""

    def __init__(self) -> None:
        self.secrets: dict[str, bytes] = {}

    def plant(self, name: str, secret: str | bytes = "") -> str:
        text = secret or f"planted-{name}-{os.urandom(6).hex()}"
        self.secrets[name] = text.encode() if isinstance(text, str) else text
        return text if isinstance(text, str) else text.hex()

    def find(self, told: bytes) -> list[str]:
        return [
            f"{name} as {form}"
            for name, secret in self.secrets.items()
            for form, shown in _forms(secret).items()
            if shown in told
        ]


def _forms(secret: bytes) -> dict[str, bytes]:
    forms = {"it is": secret, "hex": secret.hex().encode(), "a repr": repr(secret)[2:-1].encode()}
    for shift in range(3):
        # Inside of something longer, whose first and last characters depend on what is beside it.
        forms[f"base64 at {shift}"] = b64encode(bytes(shift) + secret)[4 if shift else 0 : -4]
    return forms


@dataclass
class Told:
    """Everything that somebody could have read."""

    parts: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, where: str, text: object) -> None:
        self.parts.append((where, text if isinstance(text, bytes) else str(text).encode()))

    def add_error(self, where: str, error: BaseException) -> None:
        self.add(where, "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)))

    def check(self, planted: Planted) -> None:
        found = {where: names for where, text in self.parts if (names := planted.find(text))}
        assert not found


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.planted = planted = Planted()
        self.authority = Authority(folder / "tls")
        own = self.authority.sign("broker", subject_alt_name="IP:127.0.0.1")
        self.key = SigningKey("first", "ES256")
        (folder / "keys.json").write_bytes(key_set(self.key))
        planted.plant("key password", KEY_PASSWORD)
        locked = encrypted_key(own)
        for name, file in (("key", own.key), ("locked key", locked)):
            planted.plant(name, file.read_text().splitlines()[1])
        self.alice, self.node = planted.plant("alice"), planted.plant("node")
        self.jaas = (
            f'{PLAIN_MODULE} required user_alice="{self.alice}" username="node" password="{self.node}" '
            f'user_node="{self.node}";'
        )
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, free_ports(len(LISTENERS)), strict=True)
        }
        joined = folder / "both.pem"
        joined.write_text(locked.read_text() + own.certificate.read_text())
        self.keystore = joined
        self.settings = {
            "node.id": "1",
            "log.dirs": str(folder / "data"),
            "listeners": ",".join(f"{name}://{address}" for name, address in self.addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in LISTENERS.items()),
            "controller.listener.names": "CONTROLLER",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            **{f"listener.name.{name}.plain.sasl.jaas.config": self.jaas for name in ("login", "both", "controller")},
            "ssl.keystore.location": str(joined),
            "ssl.key.password": KEY_PASSWORD,
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{folder / 'keys.json'}",
            "sasl.oauthbearer.client.credentials.client.secret": planted.plant("client secret"),
            "delegation.token.secret.key": planted.plant("key of tokens"),
            "connection.failed.authentication.delay.ms": "10",
        }

    def write(self, name: str, **changes: str | None) -> Path:
        path = self.folder / f"{name}.properties"
        settings = self.settings | {key.replace("_", "."): text for key, text in changes.items()}
        path.write_text("".join(f"{key}={text}\n" for key, text in settings.items() if text is not None))
        return path

    def client(self, listener: str, mechanism: str, **more: str) -> dict[str, str]:
        settings = {"security.protocol": LISTENERS[listener], "sasl.mechanism": mechanism}
        if listener == "BOTH":
            settings["ssl.truststore.location"] = str(self.authority.certificate)
        return settings | {name.replace("_", "."): text for name, text in more.items()}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="module", params=["text", "json"])
def running(node: Node, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = node.folder / f"{request.param}.log"
    words = [sys.executable, "-m", "tailrace", "broker", "--log-level", "debug", "--log-format", request.param]
    config = ["--config", str(node.write("node"))]
    with log.open("wb") as file:
        if not (node.folder / "data").exists():
            subprocess.run([sys.executable, "-m", "tailrace", "format", *config], check=True, stdout=file, stderr=file)
        process = subprocess.Popen([*words, *config], stdout=file, stderr=file)
    try:
        ends = time.monotonic() + DEADLINE_S
        while b"ready" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.05)
        yield process, log
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def test_the_search_finds_what_is_there():
    planted = Planted()
    secret = planted.plant("password")
    for text in (secret, secret.encode().hex(), f"x{secret}x"):
        assert planted.find(text.encode())
    for before in (b"", b"\0", b"\0a", b"\0al"):
        assert planted.find(b64encode(before + secret.encode() + b"\0end"))
    assert not planted.find(b"nothing")


async def test_no_secret_is_told(
    node: Node, running: tuple[subprocess.Popen[bytes], Path], caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    process, log = running
    told, planted = Told(), node.planted
    caplog.set_level(logging.DEBUG)
    carol = planted.plant("carol")
    salted = salt_password(SCRAM, carol, SALT, 4096)
    keys = derive_keys(SCRAM, salted)
    for name, secret in (("salt", SALT), ("salted", salted), ("stored", keys.stored_key), ("server", keys.server_key)):
        planted.plant(name, secret)
    good, bad = node.key.sign(), node.key.sign(aud="x", exp=1)
    for name, token in (("token", good), ("bad token", bad)):
        planted.plant(name, token.split(".")[2])
    wrong = planted.plant("wrong password")

    async with asyncio.timeout(DEADLINE_S):
        admin = await _connect(node, "OPEN", {})
        await _ask_with_secrets(admin, told, node, salted)
        for listener in ("LOGIN", "BOTH"):
            for mechanism, user, password in (("PLAIN", "alice", node.alice), ("SCRAM-SHA-512", "carol", carol)):
                for given, is_good in ((password, True), (wrong, False)):
                    settings = node.client(listener, mechanism, sasl_username=user, sasl_password=given)
                    await _try_login(node, told, listener, settings, is_good=is_good)
            for token in (good, bad, f"{bad}.{bad}"):
                await _show_token(node, told, listener, token, is_good=token == good)
            await _use_delegation_token(node, told, listener)
        for junk in _junk(wrong):
            await _send_junk(node, told, junk)
        admin.close()

    _run_commands(node, told, tmp_path, wrong)
    told.add("the log", log.read_bytes())
    told.add("our own log", "".join(str(vars(record)) for record in caplog.records))
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told.add(str(entry), entry.read_bytes())
        except OSError:
            continue
    told.check(planted)
    # What a broker keeps of a user are keys, and never a password or a token.
    kept = Planted()
    of_settings = ("key password", "client secret", "key of tokens")
    for name in ("alice", "node", "carol", "wrong password", "token", "bad token", "HMAC at LOGIN", *of_settings):
        kept.secrets[name] = planted.secrets[name]
    disk = Told()
    for path in (node.folder / "data").rglob("*"):
        if path.is_file():
            disk.add(str(path), path.read_bytes())
    disk.check(kept)
    assert process.poll() is None
    for file in ("node.properties", "both.pem"):
        assert f"others can read {node.folder / file}" in log.read_text()


async def _connect(node: Node, listener: str, settings: dict[str, str]) -> Connection:
    host, port = node.addresses[listener].split(":")
    cluster = open_cluster(
        [Address(host, int(port))],
        security=parse_security(settings),
        limits=ConnectionLimits(request_timeout_ms=5000),
    )
    return await cluster.any_connection()


async def _try_login(node: Node, told: Told, listener: str, settings: dict[str, str], *, is_good: bool) -> None:
    told.add("settings", repr(parse_security(settings)))
    try:
        connection = await _connect(node, listener, settings)
    except KafkaError as error:
        told.add_error(f"a login at {listener}", error)
        if is_good:
            raise
    else:
        assert is_good, settings["sasl.mechanism"]
        connection.close()


async def _show_token(node: Node, told: Told, listener: str, token: str, *, is_good: bool) -> None:
    """By our own client, as if an issuer had given it the token."""
    from tailrace.client.security import bearer

    async def give(_settings: object, _ports: object) -> bearer.Token:
        return bearer.Token(token, 60_000)

    told.add("a token", repr(bearer.Token(token, 60_000)))
    settings = node.client(
        listener,
        "OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://issuer.test/token",
        sasl_oauthbearer_client_credentials_client_id="alice",
        sasl_oauthbearer_client_credentials_client_secret="x",
    )
    fetch, bearer.fetch_token = bearer.fetch_token, give  # type: ignore[assignment]
    try:
        await _try_login(node, told, listener, settings, is_good=is_good)
    finally:
        bearer.fetch_token = fetch


async def _use_delegation_token(node: Node, told: Told, listener: str) -> None:
    """Made by alice, whom alone it is told to, renewed, and logged in by: with its HMAC, and with another."""
    alice = await _connect(
        node, listener, node.client(listener, "PLAIN", sasl_username="alice", sasl_password=node.alice)
    )
    made = await alice.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse)
    assert made.error_code == 0
    node.planted.plant(f"HMAC at {listener}", bytes(made.hmac))
    for hmac, code in ((bytes(made.hmac), 0), (bytes(made.hmac)[:-1], 62)):
        renewal = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1)
        assert (await _ask(alice, told, renewal, RenewDelegationTokenResponse)).error_code == code
    for hmac, is_good in ((bytes(made.hmac), True), (bytes(made.hmac)[::-1], False)):
        password = b64encode(hmac).decode()
        jaas = f'{SCRAM_MODULE} required username="{made.token_id}" password="{password}" tokenauth="true";'
        settings = node.client(listener, "SCRAM-SHA-512", sasl_jaas_config=jaas)
        await _try_login(node, told, listener, settings, is_good=is_good)
    alice.close()


async def _ask_with_secrets(admin: Connection, told: Told, node: Node, salted: bytes) -> None:
    """Requests that have secrets in them, taken or refused; and what a broker says of its settings."""
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="carol", mechanism=SCRAM, iterations=4096, salt=SALT, salted_password=salted
    )
    refused = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="dave", mechanism=SCRAM, iterations=1, salt=SALT, salted_password=salted
    )
    for each, code in ((upsertion, 0), (refused, 93)):
        answer = await _ask(
            admin, told, AlterUserScramCredentialsRequest(upsertions=[each]), AlterUserScramCredentialsResponse
        )
        assert answer.results[0].error_code == code
    await _ask(admin, told, DescribeUserScramCredentialsRequest(), DescribeUserScramCredentialsResponse)
    # Settings of stores may change while a broker runs: they are in the metadata as they were given, as in Kafka.
    store_password = node.planted.plant("store password")
    names = {
        "sasl.jaas.config": node.jaas,
        "listener.name.login.plain.sasl.jaas.config": node.jaas,
        "listener.name.login.plain.sasl.jaas.confg": node.jaas,
        "ssl.key.password": store_password,
        "ssl.keystore.key": store_password,
        "delegation.token.secret.key": node.alice,
        "no.such.password": node.alice,
        "ssl.keystore.password": f"{store_password}\n",
    }
    for name, secret in names.items():
        for resource_name in ("1", ""):
            change = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=secret)
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=4, resource_name=resource_name, configs=[change]
            )
            await _ask(
                admin, told, IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
            )
        old = AlterConfigsRequest.AlterConfigsResource(
            resource_type=4,
            resource_name="1",
            configs=[AlterConfigsRequest.AlterableConfig(name=name, value=secret)],
        )
        await _ask(admin, told, AlterConfigsRequest(resources=[old], validate_only=True), AlterConfigsResponse)
    for resource_name in ("1", ""):
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=4, resource_name=resource_name, configuration_keys=None
        )
        question = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        answer = await _ask(admin, told, question, DescribeConfigsResponse)
        assert len(answer.results[0].configs) > 5 or not resource_name


async def _ask(admin: Connection, told: Told, request: Message, kind: type[Message]) -> Message:
    try:
        answer = await admin.call(request, kind)
    except KafkaError as error:
        told.add_error(type(request).__name__, error)
        return kind()
    told.add(f"the answer to {type(request).__name__}", _spell(answer))
    return answer


def _spell(value: object) -> str:
    """All that is in an answer, which a repr may leave out."""
    if isinstance(value, list):
        return " ".join(map(_spell, value))
    if hasattr(value, "fields"):
        return " ".join(_spell(getattr(value, each.name)) for each in value.fields)
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _junk(secret: str) -> Iterator[bytes]:
    """What is half a login, or none, with a secret in it."""
    text = secret.encode()
    yield text * 3
    yield pack(">i", len(text)) + text
    handshake = pack(">ihhih5s", 17, 17, 1, 1, -1, b"\0\5PLA")
    yield handshake
    for mechanism in (b"PLAIN", b"SCRAM-SHA-512", b"OAUTHBEARER", text):
        shake = pack(">hhih", 17, 1, 1, -1) + pack(">h", len(mechanism)) + mechanism
        for body in (text, b"\0" + text, b"n,,n=" + text + b",r=" + text, b"n,,\1auth=Bearer " + text + b"\1\1"):
            say = pack(">hhih", 36, 1, 2, -1) + pack(">i", len(body)) + body
            for cut in (say, say[:-3], say + text, pack(">hhih", 3, 99, 2, -1) + text):
                yield pack(">i", len(shake)) + shake + pack(">i", len(cut)) + cut


async def _send_junk(node: Node, told: Told, junk: bytes) -> None:
    host, port = node.addresses["LOGIN"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(junk)
        writer.write_eof()
        told.add("an answer to junk", await asyncio.wait_for(reader.read(), 5))
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()


def _run_commands(node: Node, told: Told, folder: Path, wrong: str) -> None:
    path = folder / "client.properties"
    settings = node.client("BOTH", "PLAIN", sasl_username="alice", sasl_password=wrong)
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    at = ["--bootstrap", node.addresses["BOTH"], "--command-config", str(path), "--timeout", "5"]
    words = [sys.executable, "-m", "tailrace", "topic", "list", *at]
    done = subprocess.run(words, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert b"others can read" in done.stderr
    told.add("a command", done.stdout + done.stderr)


BAD_SETTINGS: dict[str, dict[str, str | None]] = {
    "a quote that is never closed": {"listener.name.login.plain.sasl.jaas.config": 'P required user_a="{secret};'},
    "no semicolon": {"listener.name.login.plain.sasl.jaas.config": 'P required user_a="{secret}"'},
    "no options": {"listener.name.login.plain.sasl.jaas.config": "P required {secret};"},
    "no module": {"listener.name.login.plain.sasl.jaas.config": "{secret}"},
    "no users": {"listener.name.login.plain.sasl.jaas.config": 'P required name="{secret}";'},
    "a name that is wrong": {"listener.name.login.plain.sasl.jaas.confg": "{secret}"},
    "a mechanism that is wrong": {"listener.name.login.plan.sasl.jaas.config": "{secret}"},
    "a setting that is wrong": {"ssl.key.pasword": "{secret}"},
    "a key password that is wrong": {"ssl.key.password": "{secret}"},
    "a key that is none": {
        "ssl.keystore.key": "{secret}",
        "ssl.keystore.certificate.chain": "{secret}",
        "ssl.keystore.location": None,
    },
    "a key and a file": {"ssl.keystore.key": "{secret}", "ssl.keystore.certificate.chain": "{secret}"},
    "a truststore that is none": {
        "ssl.truststore.certificates": "{secret}",
        "listener.name.both.ssl.client.auth": "required",
    },
    "an address with a password": {"sasl.oauthbearer.jwks.endpoint.url": "https://me:{secret}@issuer.test/"},
    "a node's password": {"listener.name.controller.plain.sasl.jaas.config": 'P required password="{secret}'},
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_bad_settings_are_not_quoted(node: Node, case: str):
    """Read and looked at in this process, as `tailrace broker` does it: one that runs as one is enough (below)."""
    from tailrace.broker.auth.security import Security
    from tailrace.broker.cluster.roles import decide_roles
    from tailrace.controller.image import MetadataImage
    from tailrace.real.ports import real_ports

    planted, told = Planted(), Told()
    secret = planted.plant("secret")
    changes = {name: text and text.replace("{secret}", secret) for name, text in BAD_SETTINGS[case].items()}
    settings = {name: text for name, text in (node.settings | changes).items() if text is not None}

    async def start() -> None:
        config = parse_broker_config(settings)
        if "address" not in case:  # That is no place for a secret, and is refused as such.
            told.add("the settings", repr(config))
        security = Security(config, real_ports(), decide_roles(config), image=lambda: MetadataImage("c"))
        try:
            await security.open()
        finally:
            security.close()

    with pytest.raises(KafkaError) as raised:
        asyncio.run(start())
    told.add_error(case, raised.value)
    told.check(planted)


@pytest.mark.parametrize(
    "text",
    [
        '"sasl.jaas.config" = "{secret}"\nsasl.jaas.config = "{secret}"\n',
        '"sasl.jaas.config" = [{ a = "{secret}" }]\n',
        '"sasl.jaas.config" = "{secret}\n',
        '"listener.name.login.plain.sasl.jaas.config" = \'P required user_a="{secret}\'\n',
    ],
)
def test_a_bad_file_is_not_quoted(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str):
    planted, told = Planted(), Told()
    path = tmp_path / "node.toml"
    own = 'node.id = 1\nlisteners = "LOGIN://127.0.0.1:0"\n"listener.security.protocol.map" = "LOGIN:SASL_PLAINTEXT"\n'
    own += f'log.dirs = "{tmp_path / "data"}"\n"sasl.enabled.mechanisms" = "PLAIN"\n'
    path.write_text(own + text.replace("{secret}", planted.plant("secret")))
    assert main(["broker", "--config", str(path), "--log-level", "debug"]) == 1
    out, err = capfd.readouterr()
    assert err
    told.add("the terminal", out + err)
    told.check(planted)
