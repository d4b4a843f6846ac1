"""Questions to web servers: what is brought, and what none of them can do to whoever asks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.model.ports import WebQuestion, WebRefusalError
from tailrace.model.security import Store, TlsSettings
from tailrace.real.web import RealWeb
from tests.certificates import Authority
from tests.issuer import Issuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def ask(url: str, *, timeout_ms: int = 5000, max_bytes: int = 100_000, tls: TlsSettings | None = None) -> bytes:
    return RealWeb().ask(WebQuestion(url, timeout_ms, max_bytes, tls=tls))


def test_an_answer_is_brought(issuer: Issuer):
    assert b'"keys"' in ask(issuer.keys_url)


def test_what_is_not_200_is_refused(issuer: Issuer):
    with pytest.raises(WebRefusalError, match="it answers 404 Not Found"):
        ask(f"{issuer.address}/nothing")


def test_a_large_answer_is_not_taken(issuer: Issuer):
    issuer.pages["/huge"] = (200, {}, b"x" * 100_001)
    issuer.pages["/full"] = (200, {}, b"x" * 100_000)
    assert len(ask(f"{issuer.address}/full")) == 100_000
    with pytest.raises(WebRefusalError, match="more than 100000 bytes"):
        ask(f"{issuer.address}/huge")


def test_redirects_stay_with_the_host(issuer: Issuer):
    issuer.pages["/here"] = (302, {"Location": "/keys"}, b"")
    issuer.pages["/round"] = (302, {"Location": "/round"}, b"")
    assert b'"keys"' in ask(f"{issuer.address}/here")
    port = issuer.address.rpartition(":")[2]
    with Issuer() as other:
        elsewhere = [
            other.keys_url,
            f"http://localhost:{port}/keys",
            f"https://127.0.0.1:{port}/keys",
            f"//127.0.0.1:{other.address.rpartition(':')[2]}/keys",
            "file:///etc/passwd",
            "http://[",
            "http://127.0.0.1:99999/",
        ]
        for location in elsewhere:
            issuer.pages["/away"] = (307, {"Location": location}, b"")
            with pytest.raises(WebRefusalError, match="another host"):
                ask(f"{issuer.address}/away")
        assert other.asked == []
    with pytest.raises(WebRefusalError, match="more than 3 times"):
        ask(f"{issuer.address}/round")


@contextmanager
def peer(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                speak(connection)
        except OSError:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/keys"
    finally:
        listener.close()
        thread.join()


def _drip(first: bytes) -> Callable[[socket.socket], None]:
    def speak(connection: socket.socket) -> None:
        connection.sendall(first)
        for _ in range(200):
            connection.sendall(b"a")
            time.sleep(0.05)

    return speak


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n"])
def test_a_server_that_drips_is_hung_up_on(first: bytes):
    """No single receive waits long."""
    with peer(_drip(first)) as url:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="within 300 ms"):
            ask(url, timeout_ms=300)
        assert time.monotonic() - began < 8, "it would have gone on for 10 s"


@pytest.mark.parametrize(
    "answer", [b"", b"\x15\x03\x03\x00\x02", b"HTTP/1.1 999999\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a" * 99999]
)
def test_what_is_not_http(answer: bytes):
    with peer(lambda connection: connection.sendall(answer)) as url, pytest.raises(OSError, match=r".") as raised:
        ask(url)
    assert "aaa" not in str(raised.value)


def test_nobody_is_there():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        ask(f"http://127.0.0.1:{port}/keys")


def test_https_trusts_whom_it_is_told_to(tmp_path: Path):
    authority = Authority(tmp_path)
    own = authority.sign("issuer", subject_alt_name="IP:127.0.0.1")
    other = authority.sign("elsewhere", subject_alt_name="DNS:elsewhere.test")
    trusted = TlsSettings(authorities=Store("ssl.truststore.location", path=str(authority.certificate)))
    with Issuer(tls=own) as issuer:
        assert b'"keys"' in ask(issuer.keys_url, tls=trusted)
        with pytest.raises(OSError, match=r"(?i)certificate"):
            ask(issuer.keys_url)
    with Issuer(tls=other) as issuer, pytest.raises(OSError, match=r"(?i)certificate"):
        ask(issuer.keys_url, tls=trusted)
