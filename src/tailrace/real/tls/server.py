"""The side of a TLS connection that listens: OpenSSL on the socket itself.

To send costs a quarter less than by TLS in memory, and to receive needs no buffer of its own: OpenSSL decrypts into the
buffer that the caller lends. Three things need care. What was received may sit decrypted in OpenSSL while the
kernel has nothing to tell: then the reader is called again. A write that finds no room must be repeated with the same
bytes: such a piece counts as taken, and is repeated here before anything else is sent. And the handshake runs in helper
threads: while one is at it, nothing else touches the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence

from tailrace.model.ports import Bytes, FileSlice, UntrustedPeerError, Want
from tailrace.real.network import SocketStream, left_in
from tailrace.real.tls.distrust import cause_of_distrust
from tailrace.real.tls.subjects import subject_of

# Encrypted at a time. Pieces of 256 KB cost less than smaller ones: a turn of the loop costs more than the cache gives.
_PIECE_MAX_BYTES = 256 * 1024
# Encrypted in one call of send(): what the caller has found to be in memory, and less than a millisecond.
_SEND_TURN_BYTES = 1024 * 1024
_NOT_TLS = "no TLS at all: this listener has it. Set security.protocol=SSL or SASL_SSL in the client"
# What the first record of a client begins with.
_HANDSHAKE_RECORD = b"\x16"
_DISCARDED_BYTES = 64 * 1024
_INTERNAL_ERROR_ALERT = bytes.fromhex("15030300020250")


class TlsServerStream:
    def __init__(self, below: SocketStream, context: ssl.SSLContext) -> None:
        self._peer = below.peer
        self._loop = asyncio.get_running_loop()
        # From here on the socket is ours. What arrives before the handshake is asked for stays in the kernel.
        self._tls = context.wrap_socket(below.detach(), server_side=True, do_handshake_on_connect=False)
        self._descriptor = self._tls.fileno()
        self._is_begun = False  # Its first byte was looked at.
        self._subject: str | None = None
        self._unsent = b""  # Taken, and not yet by OpenSSL.
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._is_recalled = False
        self._is_watching = False  # for room in the socket
        self._is_closed = False

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def subject(self) -> str | None:
        return self._subject

    def shake_hands(self) -> Want:
        try:
            if not self._is_begun:
                self._look_at_first_byte()
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return Want.READ
        except ssl.SSLWantWriteError:
            return Want.WRITE
        except BlockingIOError:
            return Want.READ
        except ssl.SSLEOFError:
            raise ConnectionResetError("it hung up during the TLS handshake") from None
        except ssl.SSLError as error:
            raise UntrustedPeerError(_explain(error)) from None
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is not None:
            try:
                self._subject = subject_of(certificate)
            except ValueError as error:
                raise UntrustedPeerError(f"its certificate cannot be read: {error}") from None
        return Want.NOTHING

    def _look_at_first_byte(self) -> None:
        """Whoever speaks another language is told by the alert that Kafka sends; OpenSSL has others, or none."""
        first = socket.socket.recv(self._tls, 8, socket.MSG_PEEK)  # SSLSocket's own does not look ahead.
        self._is_begun = True
        if first and not first.startswith(_HANDSHAKE_RECORD):
            with contextlib.suppress(OSError):
                socket.socket.recv(self._tls, _DISCARDED_BYTES)  # Unread, it would make the kernel drop the alert.
                socket.socket.send(self._tls, _INTERNAL_ERROR_ALERT)
            raise UntrustedPeerError(_describe_first(first))

    def recv_into(self, buffer: memoryview) -> int:
        if self._unsent:
            self._flush()  # It may have waited for what comes in now, as a key update does.
        received = 0
        room = len(buffer)
        try:
            # Each call gives one TLS record, of 16 KB at most.
            while received < room:
                taken = self._tls.recv_into(buffer[received:])
                if not taken:
                    return received  # The end; the next call tells of it again.
                received += taken
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not received:
                raise BlockingIOError from None
            return received
        except ssl.SSLError:
            if not received:
                raise
        self._recall_reader()
        return received

    def left_bytes(self) -> int | None:
        left = left_in(self._tls.fileno())
        return None if left is None else left + self._tls.pending()  # Encrypted it is more.

    def _recall_reader(self) -> None:
        if self._on_readable is not None and not self._is_recalled and self._tls.pending():
            self._is_recalled = True
            self._loop.call_soon(self._call_reader)

    def _call_reader(self) -> None:
        self._is_recalled = False
        if self._on_readable is not None and not self._is_closed:
            self._on_readable()

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        if self._unsent:
            self._flush()
            if self._unsent:
                return 0
        taken = 0
        for piece in _pieces(parts):
            self._unsent = piece
            taken += len(piece)
            self._flush()
            if self._unsent or taken >= _SEND_TURN_BYTES:
                break
        return taken

    def _flush(self) -> None:
        try:
            self._tls.send(self._unsent)
            self._unsent = b""
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        self._watch_room()

    def _watch_room(self) -> None:
        is_wanted = not self._is_closed and (bool(self._unsent) or self._on_writable is not None)
        if is_wanted and not self._is_watching:
            self._loop.add_writer(self._descriptor, self._on_room)
        elif self._is_watching and not is_wanted:
            self._loop.remove_writer(self._descriptor)
        self._is_watching = is_wanted

    def _on_room(self) -> None:
        if self._unsent:
            try:
                self._flush()
            except OSError:
                # Whoever sends or receives next meets the same error.
                self._unsent = b""
                self._watch_room()
        if not self._unsent and self._on_writable is not None:
            self._on_writable()

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self._on_readable = callback
        if callback is None:
            self._loop.remove_reader(self._descriptor)
        else:
            self._loop.add_reader(self._descriptor, callback)
            self._recall_reader()

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        self._on_writable = callback
        self._watch_room()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._descriptor)
        self._watch_room()
        # A farewell that is not waited for: the peer may be gone, or may not have read what came before.
        with contextlib.suppress(OSError, ValueError):
            if not self._unsent:
                self._tls.unwrap()
        self._unsent = b""
        self._tls.close()


def _pieces(parts: Sequence[Bytes | FileSlice]) -> Iterator[bytes]:
    """Joined, since each call makes TLS records of its own; and of files only what is encrypted next."""
    joined: list[Bytes] = []
    room = _PIECE_MAX_BYTES
    for part in parts:
        start, size = 0, len(part)
        while start < size:
            end = min(start + room, size)
            if isinstance(part, FileSlice):
                piece: Bytes = part.file.read(part.position + start, end - start)
                if len(piece) < end - start:
                    raise OSError(f"the file {part.file.path} ends before position {part.position + end}")
            else:
                piece = part if end - start == size else memoryview(part)[start:end]
            joined.append(piece)
            room -= end - start
            start = end
            if not room:
                yield b"".join(joined)
                joined.clear()
                room = _PIECE_MAX_BYTES
    if joined:
        yield b"".join(joined)


def _describe_first(first: bytes) -> str:
    if re.match(rb"[A-Z]{3,7} ", first):
        return "an HTTP request: this port speaks Kafka's protocol over TLS"
    return f"a request of Kafka, and {_NOT_TLS}" if first.startswith(b"\0") else _NOT_TLS


def _explain(error: ssl.SSLError) -> str:
    """What the log says of a client that could not come in, in words of the settings."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause_of_distrust(error)}"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "it shows no certificate, and ssl.client.auth=required"
    if any(word in reason for word in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "PACKET_LENGTH", "RECORD")):
        return _NOT_TLS
    if "UNSUPPORTED_PROTOCOL" in reason or "VERSION_TOO_LOW" in reason:
        return "its version of TLS is too old: see ssl.enabled.protocols"
    if "NO_SHARED_CIPHER" in reason:
        return "it has no cipher suite in common with this broker: see ssl.cipher.suites"
    if "ALERT" in reason:
        return f"it refuses this broker ({reason.replace('_', ' ').lower()}): does it trust who signed the certificate?"
    return f"TLS failed: {reason.replace('_', ' ').lower() or error}"
