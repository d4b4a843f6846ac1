"""Those who stand at the doors of a real broker and mean harm: whatever they say, it is answered as documented or the
connection closes; others are served meanwhile, memory stays flat, and the log tells of no bug."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from random import Random
from typing import NamedTuple

import pytest

from tailrace.client.security.mechanisms import speak_scram
from tailrace.wire.apis.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message
from tests.real.raw import RawClient
from tests.talkers import PASSWORD, USER, Talker

from .secured import PROTOCOLS, Secured, client_context, others, receive_frame, secured_broker

MIB = 1 << 20
GUARDED = [name for name, protocol in PROTOCOLS.items() if protocol != "PLAINTEXT"]
WITH_LOGIN = [name for name in GUARDED if "SASL" in PROTOCOLS[name]]
# A request of a healthy client takes a fraction of a millisecond; what it may take on a machine that does much else.
PATIENCE_SECONDS = 5.0
MEMORY_MAX_BYTES = 24 * MIB


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    more = {"connection_login_max_ms": "3000", "connection_failed_authentication_delay_ms": "100"}
    with secured_broker(tmp_path_factory.mktemp("secured"), **more) as broker:
        yield broker


# ---- anything at all


def talk(secured: Secured, listener: str, random: Random) -> bool:
    """One connection. Whether it was let in."""
    try:
        connection = secured.connect(listener, shakes_hands=random.random() < 0.9)
    except OSError:
        return False
    with connection:
        connection.settimeout(0.5 if random.random() < 0.9 else 0.05)
        talker, heard = Talker(random), None
        for _ in range(10):
            said = talker.speak(heard)
            size = len(said) if random.random() < 0.95 else random.choice([-1, 524_289, 1 << 30, len(said) + 9, 0])
            frame = struct.pack(">i", size) + said
            cut = random.randrange(len(frame) + 1)
            with suppress(OSError):
                connection.sendall(frame[:cut])
                connection.sendall(frame[cut:])
            heard = receive_frame(connection)
            if heard is None:
                return False
            if not talker.is_bare:
                talker.read(said, heard)
            if talker.has_proved:
                return True
    return False


def fuzz(secured: Secured, seconds: float) -> Counter[bool]:
    """How many talks there were, by whether they were let in. Whatever is answered is looked at."""
    ends: Counter[bool] = Counter()
    failures: list[BaseException] = []
    deadline = time.monotonic() + seconds

    def run(random: Random) -> None:
        try:
            while time.monotonic() < deadline:
                ends[talk(secured, random.choice(WITH_LOGIN), random)] += 1
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(Random(seed),)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return ends


def test_whatever_is_said_at_a_door(secured: Secured):
    before = secured.memory_bytes
    with others(secured) as waits:
        assert fuzz(secured, 1.5).total() > 10
    assert max(waits) < PATIENCE_SECONDS
    assert secured.memory_bytes - before < MEMORY_MAX_BYTES


@pytest.mark.long
def test_whatever_is_said_at_a_door_for_a_minute(secured: Secured):
    fuzz(secured, 10)
    before = secured.memory_bytes
    with others(secured) as waits:
        ends = fuzz(secured, 50)
    grown = secured.memory_bytes - before
    p99 = waits.percentile(0.99)
    print(f"{ends.total()} talks, {ends[True]} let in, memory +{grown >> 10} KB, p99 {p99 * 1000:.2f} ms")
    assert ends[True] > 10
    assert grown < 4 * MIB
    assert max(waits) < PATIENCE_SECONDS


# ---- TLS


@pytest.mark.long
def test_noise_and_half_handshakes(secured: Secured):
    """Records of TLS that begin well: a hello that never ends, one that is cut anywhere, one after the other."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    endless = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_379)
    before = secured.memory_bytes
    with others(secured) as waits, ExitStack() as crowd:
        for listener in ("TLS", "BOTH"):
            for said in (*(hello[: len(hello) * part // 12] for part in range(12)), endless * 8, hello * 8):
                connection = crowd.enter_context(secured.connect(listener, shakes_hands=False))
                with suppress(OSError):
                    connection.sendall(said)
            for _ in range(20):
                connection = crowd.enter_context(secured.connect(listener, shakes_hands=False))
                connection.sendall(os.urandom(2000))
            with secured.connect(listener) as other:
                assert other.version() == "TLSv1.3"  # type: ignore[attr-defined]
        time.sleep(3.5)  # Nobody is waited for for longer.
    assert max(waits) < PATIENCE_SECONDS
    assert secured.memory_bytes - before < MEMORY_MAX_BYTES


@pytest.mark.parametrize("listener", ["TLS", "BOTH"])
def test_no_handshake_within_a_connection(secured: Secured, listener: str):
    """OpenSSL's own client asks for a renegotiation by a line with an R."""
    address = f"127.0.0.1:{secured.ports[listener]}"
    command = ["openssl", "s_client", "-connect", address, "-tls1_2"]
    done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=20, check=False)
    told = done.stdout + done.stderr
    assert b"RENEGOTIATING" in told
    assert b"no renegotiation" in told.lower()


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        *((name, b"GET / HTTP/1.1\r\n\r\n") for name in ("TLS", "LOGIN", "BOTH")),
        *((name, b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff") for name in ("TLS", "LOGIN", "BOTH")),
        ("LOGIN", b"\x16\x03\x01\2\0"),
    ],
)
def test_the_wrong_language(secured: Secured, listener: str, said: bytes):
    """Plaintext where TLS is spoken, and TLS where it is not."""
    with secured.connect(listener, shakes_hands=False) as connection:
        connection.sendall(said)
        answer = b""
        with suppress(OSError):
            answer = connection.recv(4096)
    is_kafka = said.startswith(b"\0") and not PROTOCOLS[listener].endswith("SSL")
    # An alert of TLS, the versions that may be asked for before a login, or nothing.
    assert answer[:1] == b"\x15" or (is_kafka and len(answer) > 10) or answer == b""


# ---- crowds


def test_a_thousand_who_say_nothing(secured: Secured, many_files: None):
    before = secured.memory_bytes
    with others(secured) as waits, ExitStack() as crowd:
        silent = [
            crowd.enter_context(secured.connect(GUARDED[number % len(GUARDED)], shakes_hands=False))
            for number in range(1000)
        ]
        held = secured.memory_bytes - before
        started = time.monotonic()
        for listener in WITH_LOGIN:
            assert log_in(secured, listener, "SCRAM-SHA-256", USER, PASSWORD).error_code == 0
        assert time.monotonic() - started < PATIENCE_SECONDS
        for connection in silent:
            connection.settimeout(15)
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b"", "it is closed once connection.login.max.ms is over"
    print(f"{held / 1000 / 1024:.1f} KB for each, p99 {waits.percentile(0.99) * 1000:.2f} ms")
    assert held < 1000 * 40 * 1024
    assert max(waits) < PATIENCE_SECONDS


# ---- guessing


def ask(connection: socket.socket, request: Message, version: int) -> Message | None:
    connection.sendall(b"".join(bytes(part) for part in encode_request(request.api_key, version, 1, "raw", request)))
    answer = receive_frame(connection)
    return None if answer is None else decode_response(request.api_key, version, answer)[1]


class Login(NamedTuple):
    error_code: int
    heard: tuple[int, ...]  # Sizes of all messages of the broker.
    text: str | None
    seconds: float  # From the last message to its answer.


def log_in(secured: Secured, listener: str, mechanism: str, user: str, password: str) -> Login:
    with secured.connect(listener) as connection:
        shaken = ask(connection, SaslHandshakeRequest(mechanism=mechanism), 1)
        assert isinstance(shaken, SaslHandshakeResponse)
        assert shaken.error_code == 0
        conversation = speak_scram(f"sha{mechanism[-3:]}", user, password, "abc") if "SCRAM" in mechanism else None
        message = f"\0{user}\0{password}".encode() if conversation is None else next(conversation)
        heard: list[int] = []
        while True:
            started = time.perf_counter()
            answer = ask(connection, SaslAuthenticateRequest(auth_bytes=message), 2)
            seconds = time.perf_counter() - started
            assert isinstance(answer, SaslAuthenticateResponse)
            heard.append(len(answer.auth_bytes) + len(answer.error_message or ""))
            if answer.error_code or conversation is None or len(heard) == 2:
                return Login(answer.error_code, tuple(heard), answer.error_message, seconds)
            message = conversation.send(answer.auth_bytes)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_unknown_user_is_refused_as_a_wrong_password_is(secured: Secured, mechanism: str):
    """In as many steps, with as many bytes, in the same words, and after as long."""
    wrong: list[Login] = []
    unknown: list[Login] = []
    for _ in range(10):
        wrong.append(log_in(secured, "LOGIN", mechanism, USER, "wrong"))
        unknown.append(log_in(secured, "LOGIN", mechanism, "nobodyatall"[: len(USER)], "wrong"))
        # The shortest of each: a busy machine makes any of them longer, and none shorter.
        if len(wrong) >= 3 and abs(shortest_s(wrong) - shortest_s(unknown)) < 0.05:
            break
    assert {each[:3] for each in wrong} == {each[:3] for each in unknown}
    assert wrong[0].error_code == 58
    assert shortest_s(wrong + unknown) >= 0.099
    assert abs(shortest_s(wrong) - shortest_s(unknown)) < 0.05


def shortest_s(logins: list[Login]) -> float:
    return min(each.seconds for each in logins)


def test_guessing_at_full_speed(secured: Secured):
    """Fifty guesses are under way at a time. None of them waits in the loop: others are served meanwhile."""
    before = secured.memory_bytes
    refused: list[int] = []

    def guess(seed: int) -> None:
        for number in range(6):
            mechanism = ("PLAIN", "SCRAM-SHA-256")[number % 2]
            listener = WITH_LOGIN[(seed + number) % len(WITH_LOGIN)]
            refused.append(log_in(secured, listener, mechanism, USER, f"guess {seed} {number}").error_code)

    with others(secured) as waits:
        threads = [threading.Thread(target=guess, args=(seed,)) for seed in range(50)]
        for thread in threads:
            thread.start()
        assert log_in(secured, "BOTH", "SCRAM-SHA-512", USER, PASSWORD).error_code == 0
        for thread in threads:
            thread.join()
    assert refused == [58] * 300
    print(f"p99 {waits.percentile(0.99) * 1000:.2f} ms")
    assert max(waits) < PATIENCE_SECONDS
    assert secured.memory_bytes - before < MEMORY_MAX_BYTES
    with RawClient(secured.open_address) as client:
        assert client.is_served()
