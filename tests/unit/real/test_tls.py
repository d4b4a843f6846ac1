"""TLS under the client: bytes pass whole in whatever pieces they come, and every distrust is told with its remedy."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.client.connection import Address
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import parse_security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Bytes, FileSlice, Stream
from tailrace.real.cluster import open_cluster
from tailrace.real.network import RealNetwork
from tailrace.real.tls.certificates import make_tls_context
from tailrace.real.tls.client import TlsDialer, TlsStream
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tests.certificates import KEY_PASSWORD, Authority, Identity, encrypted_key, pkcs12
from tests.unit.client.peer import Peer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Certificates(NamedTuple):
    authority: Authority
    broker: Identity
    other_broker: Identity
    client: Identity
    stranger: Authority
    strangers_client: Identity


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority(folder), Authority(folder, "stranger")
    return Certificates(
        authority,
        authority.sign("broker", subject_alt_name="IP:127.0.0.1"),
        authority.sign("other", subject_alt_name="DNS:other.example"),
        authority.sign("client"),
        stranger,
        stranger.sign("strangers-client"),
    )


def serving_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*identity)
    return context


def broker_context(made: Certificates, identity: Identity | None = None, *, wants_client: bool = False):
    context = serving_context(identity or made.broker)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(made.authority.certificate)
    return context


def cluster_of(address: Address, made: Certificates, **settings: str) -> Cluster:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    trusted = {"security.protocol": "SSL", "ssl.truststore.location": str(made.authority.certificate)}
    return open_cluster([address], security=parse_security(trusted | given))


async def ask(cluster: Cluster) -> MetadataResponse:
    connection = await cluster.any_connection()
    return await connection.call(MetadataRequest(topics=[]), MetadataResponse)


# --- bytes


def echo_topics(request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=t.name) for t in request.topics])


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_large_and_many_requests_pass_whole(made: Certificates, version: str):
    names = [str(number) * 10_000 for number in range(100, 200)]
    large = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])
    small = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x")])
    async with Peer({MetadataRequest: echo_topics}, tls=broker_context(made)) as peer:
        cluster = cluster_of(peer.address, made, ssl_enabled_protocols=version)
        connection = await cluster.any_connection()
        requests = [large if number % 10 == 0 else small for number in range(60)]
        answers = await asyncio.gather(*(connection.call(request, MetadataResponse) for request in requests))
        for request, answer in zip(requests, answers, strict=True):
            assert [topic.name for topic in answer.topics] == [topic.name for topic in request.topics]
        cluster.close()


class ChoppedStream:
    """Passes on no more than `size` bytes at a time, and says that it has nothing every other time."""

    def __init__(self, below: Stream, size: int) -> None:
        self._below = below
        self._size = size
        self._turn = 0
        self.peer = below.peer
        self.watch_reads = below.watch_reads
        self.watch_writes = below.watch_writes
        self.close = below.close

    def recv_into(self, buffer: memoryview) -> int:
        self._turn += 1
        if self._turn % 2:
            raise BlockingIOError
        return self._below.recv_into(buffer[: self._size])

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        self._turn += 1
        part = parts[0]
        assert not isinstance(part, FileSlice)
        return 0 if self._turn % 2 else self._below.send([part[: self._size]])


@contextlib.asynccontextmanager
async def serving(handle: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """A server whose connections end when their handler does."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await handle(reader, writer)
            writer.close()
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(run(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)
        await server.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(70_000):
        writer.write(data)
        await writer.drain()


@pytest.mark.parametrize("chop", [1_000, 17_000, 1_000_000])
@pytest.mark.parametrize("room", [7_000, 40_000])
async def test_whatever_the_pieces_are_nothing_is_lost_or_forgotten(made: Certificates, chop: int, room: int):
    """The reader looks once each time it is called, as one that shares the loop: what is left must call it again."""
    sent = bytes(range(256)) * 1200
    async with serving(echo, broker_context(made)) as address:
        below = ChoppedStream(await RealNetwork().connect(*address), chop)
        stream = TlsStream(below, make_tls_context(cluster_tls(made)), address.host)
        await stream.wait_handshake()
        received = bytearray()
        done = asyncio.get_running_loop().create_future()
        buffer = memoryview(bytearray(room))

        def on_readable() -> None:
            with contextlib.suppress(BlockingIOError):
                received.extend(buffer[: stream.recv_into(buffer)])
            if len(received) >= len(sent) and not done.done():
                done.set_result(None)

        stream.watch_reads(on_readable)
        await send_all(stream, sent)
        async with asyncio.timeout(20):
            await done
        assert received == sent
        stream.close()


def cluster_tls(made: Certificates):
    tls = parse_security({"security.protocol": "SSL", "ssl.ca.location": str(made.authority.certificate)}).tls
    assert tls is not None
    return tls


async def send_all(stream: Stream, data: bytes) -> None:
    """Never asks for room after the last byte was taken: then it is the stream's to bring it on its way."""
    rest = memoryview(data)
    while True:
        rest = rest[stream.send([rest[:5], rest[5:]]) :]
        if not rest:
            return
        room = asyncio.get_running_loop().create_future()
        stream.watch_writes(lambda room=room: None if room.done() else room.set_result(None))
        async with asyncio.timeout(20):
            await room
        stream.watch_writes(None)


async def test_a_peer_that_hangs_up_is_the_end_of_the_stream(made: Certificates):
    async with Peer({MetadataRequest: lambda _: "hang up"}, tls=broker_context(made)) as peer:
        cluster = cluster_of(peer.address, made)
        with pytest.raises(KafkaError, match="the broker closed the connection") as raised:
            await ask(cluster)
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
        cluster.close()


# --- trust


async def refused(cluster: Cluster, code: ErrorCode = ErrorCode.INVALID_CONFIG) -> str:
    """What is said where no connection comes about, or where the first answer does not come."""
    with pytest.raises(KafkaError) as raised:
        await ask(cluster)
    cluster.close()
    assert raised.value.code is code
    return raised.value.message


async def test_a_broker_whose_authority_is_not_known(made: Certificates):
    async with Peer(tls=broker_context(made)) as peer:
        told = await refused(cluster_of(peer.address, made, ssl_truststore_location=str(made.stranger.certificate)))
    assert "certificate is not trusted: its authority is unknown" in told
    assert "ssl.truststore.location" in told


async def test_a_broker_that_is_trusted_itself(made: Certificates):
    async with Peer(tls=broker_context(made)) as peer:
        cluster = cluster_of(peer.address, made, ssl_truststore_location=str(made.broker.certificate))
        await ask(cluster)
        cluster.close()


async def test_a_broker_with_the_name_of_another(made: Certificates):
    async with Peer(tls=broker_context(made, made.other_broker)) as peer:
        told = await refused(cluster_of(peer.address, made))
        assert "certificate is for another host: IP address mismatch" in told
        assert "ssl.endpoint.identification.algorithm" in told
        cluster = cluster_of(peer.address, made, ssl_endpoint_identification_algorithm="")
        await ask(cluster)
        cluster.close()


async def test_a_broker_that_wants_to_know_its_clients(made: Certificates):
    async with Peer(tls=broker_context(made, wants_client=True)) as peer:
        for settings in own_settings(made):
            cluster = cluster_of(peer.address, made, **settings)
            await ask(cluster)
            cluster.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_client_that_the_broker_does_not_know(made: Certificates, version: str):
    """Since TLS 1.3 the client learns of it after the handshake, in place of its first answer."""
    with alerting_broker(broker_context(made, wants_client=True)) as address:
        nobody = cluster_of(address, made, ssl_enabled_protocols=version)
        assert "the broker wants a certificate of this client" in await refused(nobody)
        keystore = str(made.strangers_client.joined())
        stranger = cluster_of(address, made, ssl_enabled_protocols=version, ssl_keystore_location=keystore)
        assert "does not trust the certificate of this client" in await refused(stranger)


@contextlib.contextmanager
def alerting_broker(tls: ssl.SSLContext) -> Iterator[Address]:
    """Refuses two clients, and tells them why before it hangs up, which asyncio's own server does not."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)

    def run() -> None:
        for _ in range(2):
            accepted, _address = listener.accept()
            with contextlib.suppress(ssl.SSLError), tls.wrap_socket(accepted, server_side=True):
                pass

    thread = threading.Thread(target=run)
    thread.start()
    yield Address("127.0.0.1", listener.getsockname()[1])
    thread.join()
    listener.close()


def own_settings(made: Certificates) -> list[dict[str, str]]:
    """All the ways to give the client's certificate and key."""
    certificate, key = made.client
    in_one_line = " ".join(key.read_text().split("\n")).strip()
    return [
        {"ssl_keystore_location": str(made.client.joined()), "ssl_keystore_type": "PEM"},
        {"ssl_keystore_certificate_chain": certificate.read_text(), "ssl_keystore_key": key.read_text()},
        {"ssl_keystore_certificate_chain": certificate.read_text(), "ssl_keystore_key": in_one_line},
        {"ssl_certificate_location": str(certificate), "ssl_key_location": str(key)},
        {
            "ssl_certificate_location": str(certificate),
            "ssl_key_location": str(encrypted_key(made.client)),
            "ssl_key_password": KEY_PASSWORD,
        },
    ]


async def test_tls_spoken_to_a_port_without_it(made: Certificates):
    """A broker takes the first bytes for the size of a request that is too large, and hangs up."""

    async def broker(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(4)

    async with serving(broker) as address:
        told = await refused(cluster_of(address, made), ErrorCode.NETWORK_EXCEPTION)
    assert "hung up during the TLS handshake, as a port without TLS does" in told


async def test_tls_spoken_to_a_port_that_answers_in_another_language(made: Certificates):
    async def web_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(web_server) as address:
        assert "the port does not speak TLS" in await refused(cluster_of(address, made))


async def test_a_tls_port_spoken_to_without_tls(made: Certificates):
    """It answers with an alert of TLS, such as a web server sends; asyncio's own hangs up without a word."""

    async def alerting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(bytes.fromhex("15030300020246"))

    async with serving(alerting) as address:
        told = await refused(cluster_of(address, made, security_protocol="PLAINTEXT"), ErrorCode.NETWORK_EXCEPTION)
    assert "a TLS alert where a frame is due: set security.protocol to SSL or SASL_SSL" in told

    async def hanging_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        await reader.read(1000)

    async with serving(hanging_up) as address:
        told = await refused(cluster_of(address, made, security_protocol="PLAINTEXT"), ErrorCode.NETWORK_EXCEPTION)
    assert "it may want TLS, or a certificate of this client: see security.protocol" in told


async def test_a_port_that_never_answers_the_handshake(made: Certificates):
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    network = TlsDialer(RealNetwork(), make_tls_context(cluster_tls(made)))
    async with serving(silent) as address:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await network.connect(*address)


# --- files


def bad_files(made: Certificates, folder: Path) -> list[tuple[dict[str, str], str]]:
    jks = folder / "store.jks"
    jks.write_bytes(bytes.fromhex("feedfeed00000002"))
    prose = folder / "prose.pem"
    prose.write_text("Dear Sir or Madam")
    broken = folder / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    encrypted = str(encrypted_key(made.client))
    certificate = str(made.client.certificate)
    return [
        ({"ssl_truststore_location": "/no/such/file"}, "/no/such/file .* cannot be read on this machine: No such file"),
        ({"ssl_truststore_location": str(jks)}, r"keytool -importkeystore -srckeystore .*store\.jks "),
        ({"ssl_keystore_location": str(pkcs12(made.client))}, "PKCS12 store.* ssl.keystore.password"),
        ({"ssl_truststore_location": str(prose)}, "It is neither a PKCS12 store nor PEM"),
        ({"ssl_truststore_location": str(broken)}, "holds no certificate that can be read"),
        ({"ssl_keystore_location": certificate}, "It holds no private key"),
        ({"ssl_certificate_location": certificate, "ssl_key_location": encrypted}, "the password is missing"),
        (
            {"ssl_certificate_location": certificate, "ssl_key_location": encrypted, "ssl_key_password": "wrong"},
            "the password is wrong",
        ),
        (
            {"ssl_certificate_location": certificate, "ssl_key_location": str(made.broker.key)},
            "The key in ssl.key.location belongs to another certificate",
        ),
    ]


def test_files_that_cannot_be_used(made: Certificates, tmp_path: Path):
    for settings, reason in bad_files(made, tmp_path):
        with pytest.raises(KafkaError, match=reason) as raised:
            cluster_of(Address("127.0.0.1", 1), made, **settings)
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert "PRIVATE KEY" not in raised.value.message
