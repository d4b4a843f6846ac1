"""Bytes that are no Kafka request: that connection is closed, the log says why, and nobody else notices."""

import http.client
import random
import socket
import ssl
import struct

import pytest

from tailrace.testing import Broker

from .raw import API_VERSIONS, PRODUCE, RawClient, Reader, batch, frame, produce_body, request, string

pytestmark = pytest.mark.usefixtures("bystander")


@pytest.fixture
def quiet_broker(fresh_tailrace_broker: Broker) -> Broker:
    """One that has refused nobody yet: it reports at most one such connection a second."""
    return fresh_tailrace_broker


# What a lie in a length may cost: far below any of the lengths that are claimed here.
MEMORY_MAX_BYTES = 32 << 20


@pytest.mark.parametrize("size", [100 * (1 << 20) + 1, (1 << 31) - 1], ids=["just over", "as large as can be"])
def test_oversize_frame(quiet_broker: Broker, size: int):
    before = _memory_bytes(quiet_broker)
    _assert_closed(quiet_broker, struct.pack(">i", size) + bytes(100))
    assert _memory_bytes(quiet_broker) - before < MEMORY_MAX_BYTES
    assert f"a request of {size} bytes, more than socket.request.max.bytes" in quiet_broker.log()


@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, 7])
def test_frame_too_small_to_be_a_request(quiet_broker: Broker, size: int):
    _assert_closed(quiet_broker, struct.pack(">i", size) + bytes(100))
    assert f"a request of {size} bytes" in quiet_broker.log()


def test_frame_cut_off_by_the_client(client: RawClient):
    client.send(struct.pack(">i", 1000) + bytes(500))
    client.socket.shutdown(socket.SHUT_WR)
    assert client.is_closed_by_broker()


def test_sender_stuck_in_the_middle_of_a_frame(tailrace_broker: Broker, client: RawClient):
    client.send(request(API_VERSIONS, 0, b"")[:-1])
    with RawClient(tailrace_broker.bootstrap) as other:
        assert other.is_served()


def test_frame_shorter_than_its_message(client: RawClient, topic: str):
    whole = produce_body(topic, batch(b"value"))
    client.send(request(PRODUCE, 8, whole[:-3]))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(struct.pack(">hhii", -1, -1, 5000, (1 << 31) - 1), id="two billion topics"),
        pytest.param(struct.pack(">hhii", -1, -1, 5000, 1) + struct.pack(">h", 32767) + b"name", id="a long name"),
        pytest.param(struct.pack(">hhii", -1, -1, 5000, 1) + struct.pack(">h", -7) + b"name", id="a negative length"),
        pytest.param(struct.pack(">hhii", -1, -1, 5000, 1) + string("\0\0")[:2] + b"\xff\xfe", id="no UTF-8"),
        pytest.param(
            struct.pack(">hhii", -1, -1, 5000, 1) + string("t") + struct.pack(">iii", 1, 0, 1 << 30),
            id="1 GB of records",
        ),
    ],
)
def test_lengths_and_counts_that_lie(tailrace_broker: Broker, client: RawClient, body: bytes):
    before = _memory_bytes(tailrace_broker)
    client.send(request(PRODUCE, 8, body))
    assert client.is_closed_by_broker()
    assert _memory_bytes(tailrace_broker) - before < MEMORY_MAX_BYTES


@pytest.mark.parametrize("api_key", [-1, 999, 32767])
def test_unknown_api_key(client: RawClient, api_key: int):
    client.send(request(api_key, 0, b""))
    assert client.is_closed_by_broker()


@pytest.mark.parametrize(("api_key", "version"), [(PRODUCE, 99), (PRODUCE, 2), (PRODUCE, -1), (3, 99)])
def test_unknown_version(client: RawClient, api_key: int, version: int):
    client.send(request(api_key, version, bytes(64)))
    assert client.is_closed_by_broker()


def test_unknown_version_of_api_versions_is_told_the_right_one(client: RawClient):
    """KIP-511: the answer has the form of version 0, error UNSUPPORTED_VERSION, and the range to try again with."""
    client.send(frame(struct.pack(">hhi", API_VERSIONS, 99, 7) + string("raw") + b"\0\0\0\0"))
    answer = Reader(client.receive())
    assert (answer.number("i"), answer.number("h")) == (7, 35)
    assert answer.number("i") == 1
    api_key, low, high = answer.number("h"), answer.number("h"), answer.number("h")
    assert (api_key, low) == (API_VERSIONS, 0)
    assert high >= 4
    assert client.is_served(), "the connection goes on"


def test_garbage(tailrace_broker: Broker):
    """Half of it comes in frames of the right size, so that it gets as far as the decoders."""
    source = random.Random(20261115)
    for round_number in range(60):
        noise = source.randbytes(source.randrange(8, 3000))
        with RawClient(tailrace_broker.bootstrap) as client:
            client.send(noise if round_number % 2 else frame(noise))
            client.socket.shutdown(socket.SHUT_WR)
            assert client.is_closed_by_broker()


def test_garbage_after_a_request_does_not_take_its_answer(client: RawClient):
    client.send(request(API_VERSIONS, 0, b"", 5) + frame(b"\xff" * 50))
    assert Reader(client.receive()).number("i") == 5
    assert client.is_closed_by_broker()


def test_tls_hello(quiet_broker: Broker):
    host, _, port = quiet_broker.bootstrap.rpartition(":")
    context = ssl.create_default_context()
    with socket.create_connection((host, int(port)), timeout=10) as plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")
    assert "a TLS handshake" in quiet_broker.log()
    assert "security.protocol=PLAINTEXT" in quiet_broker.log()


def test_http_request(quiet_broker: Broker):
    connection = http.client.HTTPConnection(quiet_broker.bootstrap, timeout=10)
    connection.request("GET", "/")
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    connection.close()
    assert "an HTTP request" in quiet_broker.log()


def _assert_closed(broker: Broker, data: bytes) -> None:
    with RawClient(broker.bootstrap) as client, RawClient(broker.bootstrap) as other:
        client.send(data)
        assert client.is_closed_by_broker()
        assert other.is_served()


def _memory_bytes(broker: Broker) -> int:
    with open(f"/proc/{broker.process_id}/statm") as statm:
        return int(statm.read().split()[1]) * 4096
