"""The simulated Tls: peers declare who they are, and are believed. A handshake is a few messages, each a step that may
take a while and may fail; what comes behind it passes as it is.

    client   HELLO <certificate>      "-" if it has none
    server   SHAKEN <certificate>     or it closes
    client   DONE

A certificate is the name of a file, `authority/subject`; whoever is trusted is the name of an authority.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.model.ports import Bytes, Dialer, FileSlice, SecureStream, Stream, UntrustedPeerError, Want
from tailrace.model.security import CertificateFacts, ClientAuth, Ending, TlsSettings
from tailrace.sim.random import SimRandom

_NONE = "-"
_LINE_MAX_BYTES = 200
# The share of steps of a handshake that fail, for no reason that the peer could know.
_FAILURE_SHARE = 0.01


class _Identity(NamedTuple):
    certificate: str
    authority: str
    client_auth: ClientAuth
    # Nothing ends there.
    own: CertificateFacts | None = None
    endings: tuple[Ending, ...] = ()

    def trusts(self, certificate: str) -> bool:
        return certificate.partition("/")[0] == self.authority


class SimTls:
    """Draws from a sequence of its own, and only where there is a handshake."""

    def __init__(self, random: SimRandom) -> None:
        self._random = random

    def read_identity(self, settings: TlsSettings, *, listens: bool) -> _Identity:  # noqa: ARG002 - both are alike
        own, trusted = settings.certificates, settings.authorities
        return _Identity(
            own.path or _NONE if own is not None else _NONE,
            trusted.path or _NONE if trusted is not None else _NONE,
            settings.client_auth,
        )

    def stamp(self, settings: TlsSettings) -> object:  # noqa: ARG002 - nobody replaces them
        return None

    def check_terms(self, server: _Identity, client: _Identity, host: str) -> None:  # noqa: ARG002
        raise AssertionError("nobody replaces them")

    def accept(self, stream: Stream, identity: _Identity) -> SecureStream:
        return _ServerStream(stream, identity, self._random)

    def dialer(self, below: Dialer, identity: _Identity) -> Dialer:
        return _Dialer(below, identity)


class _ServerStream:
    def __init__(self, below: Stream, identity: _Identity, random: SimRandom) -> None:
        self._below = below
        self._identity = identity
        self._random = random
        self._line = b""
        self._unsent = b""
        self._certificate: str | None = None  # Of the peer, once it has said hello.

    @property
    def subject(self) -> str | None:
        declared = self._certificate or _NONE
        return None if declared == _NONE else declared.partition("/")[2]

    def shake_hands(self) -> Want:
        if self._random.random() < _FAILURE_SHARE:
            raise UntrustedPeerError("a step of the handshake failed")
        if self._unsent:
            self._unsent = self._unsent[self._below.send([self._unsent]) :]
            return Want.WRITE if self._unsent else Want.READ
        line = self._read_line()
        if line is None:
            return Want.READ
        word, _, certificate = line.partition(" ")
        if self._certificate is None and word == "HELLO":
            self._certificate = self._judge(certificate)
            self._unsent = f"SHAKEN {self._identity.certificate}\n".encode()
            return Want.WRITE
        if self._certificate is not None and word == "DONE":
            return Want.NOTHING
        raise UntrustedPeerError("this is no TLS")

    def _judge(self, certificate: str) -> str:
        if certificate == _NONE:
            if self._identity.client_auth is ClientAuth.REQUIRED:
                raise UntrustedPeerError("it shows no certificate")
        elif not self._identity.trusts(certificate):
            raise UntrustedPeerError("its certificate is a stranger's")
        return certificate

    def _read_line(self) -> str | None:
        """No byte beyond it is received."""
        byte = memoryview(bytearray(1))
        while True:
            try:
                if not self._below.recv_into(byte):
                    raise ConnectionResetError(errno.ECONNRESET, "it hung up during the handshake")
            except BlockingIOError:
                return None
            if bytes(byte) == b"\n":
                line, self._line = self._line, b""
                return line.decode("ascii", "replace")
            self._line += byte
            if len(self._line) > _LINE_MAX_BYTES:
                raise UntrustedPeerError("this is no TLS")

    # ---- what passes as it is

    @property
    def peer(self) -> str:
        return self._below.peer

    def recv_into(self, buffer: memoryview) -> int:
        return self._below.recv_into(buffer)

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        return self._below.send(parts)

    def left_bytes(self) -> int | None:
        return self._below.left_bytes()

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self._below.watch_reads(callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        self._below.watch_writes(callback)

    def close(self) -> None:
        self._below.close()


class _Dialer:
    def __init__(self, below: Dialer, identity: _Identity) -> None:
        self._below = below
        self._identity = identity

    async def connect(self, host: str, port: int) -> Stream:
        stream = await self._below.connect(host, port)
        try:
            _send(stream, f"HELLO {self._identity.certificate}\n".encode())
            word, _, certificate = (await self._read_line(stream)).partition(" ")
            if word != "SHAKEN" or not self._identity.trusts(certificate):
                raise UntrustedPeerError("whoever answers is not trusted")
            _send(stream, b"DONE\n")
        except BaseException:
            stream.close()
            raise
        return stream

    async def _read_line(self, stream: Stream) -> str:
        line, byte = b"", memoryview(bytearray(1))
        while not line.endswith(b"\n") and len(line) < _LINE_MAX_BYTES:
            try:
                if not stream.recv_into(byte):
                    raise ConnectionResetError(errno.ECONNRESET, "it hung up during the handshake")
                line += byte
            except BlockingIOError:
                readable = asyncio.get_running_loop().create_future()
                stream.watch_reads(lambda readable=readable: readable.done() or readable.set_result(None))  # type: ignore[misc]
                try:
                    await readable
                finally:
                    stream.watch_reads(None)
        return line.decode("ascii", "replace").strip()


def _send(stream: Stream, data: bytes) -> None:
    """On a new connection there is room for it."""
    while data:
        data = data[stream.send([data]) :]
