"""Logging in by SASL: to a scripted broker that wants it, to one that does not, and again when a session grows old."""

import asyncio
import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs

import pytest

from tailrace.client.connection import Connection, ConnectionLimits
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import parse_security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from tailrace.wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tailrace.wire.schema import Message
from tests.unit.client.peer import SILENCE, Peer, Script

from .scram_server import ScramServer

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class SaslBroker(Peer):
    """Lets alice in with the password `secret`, or whoever has the token `good`."""

    def __init__(
        self,
        *,
        session_lifetime_ms: int = 0,
        scripts: dict[type[Message], Script] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            {SaslHandshakeRequest: self._handshake, SaslAuthenticateRequest: self._authenticate} | (scripts or {}),
            tls=tls,
        )
        self.session_lifetime_ms = session_lifetime_ms
        self.tokens: list[str] = []
        self._scram: ScramServer | None = None
        self._round = 0
        self._mechanism = ""

    def _handshake(self, request: Message) -> Message:
        assert isinstance(request, SaslHandshakeRequest)
        self._round = 0
        self._mechanism = request.mechanism
        if request.mechanism.startswith("SCRAM"):
            self._scram = ScramServer(request.mechanism[6:].replace("-", "").lower(), {"alice": "secret"})
        is_known = request.mechanism in MECHANISMS
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=code, mechanisms=MECHANISMS)

    def _authenticate(self, request: Message) -> Message:
        assert isinstance(request, SaslAuthenticateRequest)
        self._round += 1
        try:
            answer = self._judge(bytes(request.auth_bytes))
        except PermissionError as error:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=f"Authentication failed: {error}"
            )
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=self.session_lifetime_ms)

    def _judge(self, message: bytes) -> bytes:
        if self._scram is not None:
            return self._scram.handle_first(message) if self._round == 1 else self._scram.handle_final(message)
        if self._mechanism == "OAUTHBEARER":
            if self._round == 2:
                raise PermissionError("the token is not good")
            token = message.split(b"\1")[1].removeprefix(b"auth=Bearer ").decode()
            self.tokens.append(token)
            return b"" if token == "good" or token.endswith(".") else b'{"status":"invalid_token"}'
        if message != b"\0alice\0secret":
            raise PermissionError("Invalid username or password")
        return b""


def cluster_of(peer: Peer, mechanism: str = "PLAIN", password: str = "secret", **settings: str) -> Cluster:
    security = parse_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    return open_cluster([peer.address], security=security, limits=ConnectionLimits(in_flight_max=4))


async def connect(cluster: Cluster) -> Connection:
    return await cluster.any_connection()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_user_is_let_in_before_anything_else_is_asked(mechanism: str):
    async with SaslBroker() as peer:
        cluster = cluster_of(peer, mechanism)
        await cluster.refresh(["t"])
        kinds = [type(request) for request in peer.requests]
        assert kinds[:3] == [ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest]
        assert kinds[-1] is MetadataRequest
        cluster.close()


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_a_wrong_password_is_told_at_once(mechanism: str):
    async with SaslBroker() as peer:
        cluster = cluster_of(peer, mechanism, "hunter2")
        with pytest.raises(KafkaError, match=r"does not let user 'alice' in by .*: Authentication failed") as raised:
            await cluster.with_retries(lambda: connect(cluster), timeout_ms=60_000)
        assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "hunter2" not in raised.value.message
        assert len(peer.received(SaslHandshakeRequest)) == 1
        cluster.close()


async def test_a_mechanism_that_is_not_enabled():
    scripts: dict[type[Message], Script] = {
        SaslHandshakeRequest: lambda _: SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI", "PLAIN"]
        )
    }
    async with SaslBroker(scripts=scripts) as peer:
        with pytest.raises(KafkaError, match=r"does not take SCRAM-SHA-256: .* \(GSSAPI, PLAIN\)"):
            await connect(cluster_of(peer, "SCRAM-SHA-256"))


def _without_sasl(_request: Message) -> Message:
    return ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=12)])


@pytest.mark.parametrize(
    "scripts",
    [
        {ApiVersionsRequest: _without_sasl},
        {SaslHandshakeRequest: lambda _: SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)},
    ],
    ids=["it does not know SASL", "it has it on another port"],
)
async def test_a_port_without_sasl(scripts: dict[type[Message], Script]):
    async with SaslBroker(scripts=scripts) as peer:
        with pytest.raises(KafkaError, match="does not ask for SASL on this port") as raised:
            await connect(cluster_of(peer))
        assert not raised.value.code.retriable


async def test_a_broker_that_lets_in_without_a_challenge_is_not_believed():
    async with SaslBroker(scripts={SaslAuthenticateRequest: lambda _: SaslAuthenticateResponse()}) as peer:
        with pytest.raises(KafkaError, match="not one of SCRAM"):
            await connect(cluster_of(peer, "SCRAM-SHA-256"))


async def test_a_login_that_is_not_answered_ends_in_time():
    async with SaslBroker(scripts={SaslAuthenticateRequest: lambda _: SILENCE}) as peer:
        cluster = cluster_of(peer)
        cluster.limits = ConnectionLimits(request_timeout_ms=100)
        with pytest.raises(KafkaError, match="no answer to SaslAuthenticate within 100 ms"):
            await connect(cluster)


async def test_an_old_session_is_renewed_between_requests_that_are_pipelined():
    """The broker would hang up if it saw anything else in the middle of a login, or a request in an old session."""
    async with SaslBroker(session_lifetime_ms=200) as peer:
        cluster = cluster_of(peer)
        connection = await connect(cluster)
        for _ in range(4):
            await asyncio.gather(
                *(connection.call(MetadataRequest(topics=[]), MetadataResponse) for _ in range(20)),
            )
            await asyncio.sleep(0.09)
        assert peer.connections == 1
        logins = [place for place, request in enumerate(peer.requests) if isinstance(request, SaslHandshakeRequest)]
        assert len(logins) >= 2
        for place in logins:
            assert isinstance(peer.requests[place + 1], SaslAuthenticateRequest)
        assert len(peer.received(MetadataRequest)) == 80
        cluster.close()


async def test_a_login_waits_for_what_is_under_way_and_queued():
    def slow(_request: Message) -> Message:
        time.sleep(0.01)
        return MetadataResponse()

    async with SaslBroker(session_lifetime_ms=100, scripts={MetadataRequest: slow}) as peer:
        cluster = cluster_of(peer)
        connection = await connect(cluster)
        earlier = [asyncio.create_task(connection.call(MetadataRequest(), MetadataResponse)) for _ in range(24)]
        await asyncio.sleep(0.1)
        assert not earlier[-1].done()
        await connection.call(MetadataRequest(), MetadataResponse)
        await asyncio.gather(*earlier)
        logins = [place for place, request in enumerate(peer.requests) if isinstance(request, SaslHandshakeRequest)]
        assert len(logins) >= 2
        for place in logins:
            assert isinstance(peer.requests[place + 1], SaslAuthenticateRequest)
        cluster.close()


async def test_a_session_that_cannot_be_renewed_ends_the_connection():
    async with SaslBroker(session_lifetime_ms=20) as peer:
        cluster = cluster_of(peer)
        connection = await connect(cluster)
        peer.scripts[SaslAuthenticateRequest] = lambda _: SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="expired"
        )
        await asyncio.sleep(0.03)
        with pytest.raises(KafkaError, match="expired"):
            await connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert not connection.is_open
        cluster.close()


# --- OAUTHBEARER


async def test_an_unsecured_token_names_its_subject():
    async with SaslBroker() as peer:
        jaas = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice" scope="read write";'
        cluster = cluster_of(peer, "OAUTHBEARER", sasl_jaas_config=jaas)
        await connect(cluster)
        header, claims, signature = peer.tokens[0].split(".")
        assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
        told = json.loads(base64.urlsafe_b64decode(claims + "=="))
        assert (told["sub"], told["scope"], signature) == ("alice", ["read", "write"], "")
        assert told["exp"] - told["iat"] == 3600
        cluster.close()


class Endpoint:
    """Gives out tokens over HTTP."""

    def __init__(self) -> None:
        self.answer = (200, json.dumps({"access_token": "good", "expires_in": 3600}))
        self.forms: list[dict[str, list[str]]] = []
        self.authorizations: list[str] = []
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.forms.append(parse_qs(body.decode()))
                endpoint.authorizations.append(self.headers["Authorization"])
                code, text = endpoint.answer
                self.send_response(code)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_words: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def by_token(endpoint: Endpoint) -> Callable[[Peer], Cluster]:
    def cluster(peer: Peer) -> Cluster:
        return cluster_of(
            peer,
            "OAUTHBEARER",
            sasl_jaas_config=f'{OAUTH_MODULE} required clientId="app" clientSecret="s:1" scope="kafka";',
            sasl_oauthbearer_token_endpoint_url=endpoint.url,
        )

    return cluster


async def test_a_token_comes_from_the_endpoint_once(endpoint: Endpoint, by_token: Callable[[Peer], Cluster]):
    async with SaslBroker(session_lifetime_ms=20) as peer:
        cluster = by_token(peer)
        connection = await connect(cluster)
        await asyncio.sleep(0.03)
        await connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert peer.tokens == ["good", "good"]
        assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]
        assert endpoint.authorizations == ["Basic " + base64.b64encode(b"app:s:1").decode()]
        cluster.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, "{}"), "it answers 401 Unauthorized: check the client's id and secret"),
        ((200, "<html>"), "not JSON with an access_token"),
        ((200, "[]"), "not JSON with an access_token"),
        ((200, '{"access_token": "bad"}'), "the token is not good"),
    ],
)
async def test_no_good_token(
    endpoint: Endpoint, by_token: Callable[[Peer], Cluster], answer: tuple[int, str], reason: str
):
    endpoint.answer = answer
    async with SaslBroker() as peer:
        with pytest.raises(KafkaError, match=reason) as raised:
            await connect(by_token(peer))
        assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_an_endpoint_that_is_not_there_may_come_back():
    async with SaslBroker() as peer:
        cluster = cluster_of(
            peer,
            "OAUTHBEARER",
            sasl_jaas_config=f'{OAUTH_MODULE} required clientId="app" clientSecret="s";',
            sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/token",
        )
        with pytest.raises(KafkaError, match="it cannot be reached") as raised:
            await connect(cluster)
        assert raised.value.code.retriable
