"""TLS for the connections that a client opens: a Dialer whose streams are encrypted, over one that is not.

The `ssl` module works in memory here: bytes from the stream below go into one buffer, bytes for it come out of
another, so any Stream can carry it and nothing ever blocks. Two things need care. What was received may sit decrypted
in TLS while the kernel has nothing to tell: then the reader is called again. What was taken to be sent may still sit
encrypted in memory: it is flushed when the stream below has room, whether or not the caller waits for that.

Files of certificates are read when the context is made; a bad one is a KafkaError INVALID_CONFIG. A peer that is not
trusted, or does not trust us, is an UntrustedPeerError with the setting that would change it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from tailrace.model.ports import Bytes, Dialer, FileSlice, Stream, UntrustedPeerError
from tailrace.real.tls.distrust import cause_of_distrust

# Received from the stream below at a time: some TLS records of 16 KB.
_RECEIVE_BYTES = 128 * 1024
# Encrypted ahead of what the stream below takes: enough to fill its buffer, and little to keep.
_ENCRYPT_MAX_BYTES = 256 * 1024


class TlsDialer:
    """Connects with TLS."""

    def __init__(self, below: Dialer, context: ssl.SSLContext) -> None:
        self._below = below
        self._context = context

    async def connect(self, host: str, port: int) -> Stream:
        stream = TlsStream(await self._below.connect(host, port), self._context, host)
        try:
            await stream.wait_handshake()
        except BaseException:
            stream.close()
            raise
        return stream


class TlsStream:
    """The client's side of one connection."""

    def __init__(self, below: Stream, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._loop = asyncio.get_running_loop()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        # Encrypted and not yet taken by the stream below.
        self._unsent = memoryview(b"")
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._is_recalled = False
        self._is_watching = False  # for room in the stream below
        self._is_closed = False

    @property
    def peer(self) -> str:
        return self._below.peer

    async def wait_handshake(self) -> None:
        """Raises UntrustedPeerError, or another OSError if the peer hangs up."""
        try:
            while not self._is_handshake_done():
                self._flush()
                await self._wait_received()
            self._flush()
        except (ssl.SSLEOFError, ConnectionError):
            raise ConnectionResetError("it hung up during the TLS handshake, as a port without TLS does") from None
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                self._flush()  # The alert that tells the peer why.
            raise _explain(error) from None

    def _is_handshake_done(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def _wait_received(self) -> None:
        readable = self._loop.create_future()
        self._below.watch_reads(lambda: None if readable.done() else readable.set_result(None))
        try:
            await readable
        finally:
            self._below.watch_reads(None)
        with contextlib.suppress(BlockingIOError):
            self._receive()

    def recv_into(self, buffer: memoryview) -> int:
        """Fills the buffer as far as it can: a short count tells the caller that nothing more is there."""
        filled = 0
        while filled < len(buffer):
            try:
                # With a buffer it returns a count, whatever its declared type is.
                count = cast(int, self._tls.read(len(buffer) - filled, buffer[filled:]))
            except ssl.SSLWantReadError:
                try:
                    self._receive()
                except BlockingIOError:
                    if filled:
                        return filled
                    raise
                continue
            except ssl.SSLEOFError:
                return filled
            except ssl.SSLError as error:
                raise _explain(error) from None
            if count == 0:
                return filled
            filled += count
        self._recall_reader()
        return filled

    def _receive(self) -> None:
        count = self._below.recv_into(self._received)
        if count:
            self._incoming.write(self._received[:count])
        else:
            self._incoming.write_eof()

    def _recall_reader(self) -> None:
        """The buffer is full, and there may be more in memory, of which the kernel will not tell."""
        if not self._is_recalled and (self._incoming.pending or self._tls.pending()):
            self._is_recalled = True
            self._loop.call_soon(self._call_reader)

    def _call_reader(self) -> None:
        self._is_recalled = False
        if self._on_readable is not None and not self._is_closed:
            self._on_readable()

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        self._flush_or_explain()
        if self._unsent:
            return 0
        pieces = []
        room = _ENCRYPT_MAX_BYTES
        for part in parts:
            piece = memoryview(part.read() if isinstance(part, FileSlice) else part)[:room]
            pieces.append(piece)
            room -= len(piece)
            if not room:
                break
        try:
            # Joined: each call makes a TLS record of its own. Memory always has room, so all of it is taken.
            taken = self._tls.write(b"".join(pieces))
        except ssl.SSLError as error:
            raise _explain(error) from None
        self._flush_or_explain()
        return taken

    def _flush_or_explain(self) -> None:
        """A peer that does not trust this client says so and hangs up. What it said tells more than that it did."""
        try:
            self._flush()
        except OSError:
            try:
                self._receive()
                self._tls.read(1)
            except (ssl.SSLEOFError, ssl.SSLWantReadError):
                pass
            except ssl.SSLError as error:
                raise _explain(error) from None
            except OSError:
                pass
            raise

    def _flush(self) -> None:
        """Hands on what is encrypted; the rest waits for room below."""
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        if self._unsent:
            self._unsent = self._unsent[self._below.send([self._unsent]) :]
        self._watch_below()

    def _watch_below(self) -> None:
        is_wanted = not self._is_closed and (bool(self._unsent) or self._on_writable is not None)
        if is_wanted != self._is_watching:
            self._is_watching = is_wanted
            self._below.watch_writes(self._on_room_below if is_wanted else None)

    def _on_room_below(self) -> None:
        try:
            self._flush()
        except OSError:
            # Whoever sends or receives next meets the same error.
            self._unsent = memoryview(b"")
            self._watch_below()
        if not self._unsent and self._on_writable is not None:
            self._on_writable()

    def left_bytes(self) -> int | None:
        left = self._below.left_bytes()
        # Encrypted it is more.
        return None if left is None else left + self._incoming.pending + self._tls.pending()

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self._on_readable = callback
        self._below.watch_reads(callback)
        self._recall_reader()

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        self._on_writable = callback
        self._watch_below()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # A farewell that is not waited for: the peer may be gone, or may not have read what came before.
        with contextlib.suppress(OSError):
            if not self._unsent:
                self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._flush()
        self._below.close()


# OpenSSL's codes of a verification that failed because of the peer's name.
_WRONG_HOST = frozenset({62, 64})
_NO_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "NO_CERTIFICATE")
_BAD_CERTIFICATE = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED")
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH")


def _explain(error: ssl.SSLError) -> UntrustedPeerError:
    """The same in words of the settings."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedPeerError(_explain_distrust(error))
    reason = error.reason or ""
    if any(word in reason for word in _NO_CERTIFICATE):
        return UntrustedPeerError(
            "the broker wants a certificate of this client: set ssl.keystore.location to a file with the certificate "
            "and its key"
        )
    if any(word in reason for word in _BAD_CERTIFICATE):
        return UntrustedPeerError(
            "the broker does not trust the certificate of this client, or misses one: set ssl.keystore.location to a "
            "file with the key and a certificate that an authority known to the broker has signed"
        )
    if any(word in reason for word in _NOT_TLS):
        return UntrustedPeerError(
            "the port does not speak TLS: connect to a TLS listener, or set security.protocol to PLAINTEXT or "
            "SASL_PLAINTEXT"
        )
    return UntrustedPeerError(f"TLS failed: {reason.replace('_', ' ').lower() or error}")


def _explain_distrust(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _WRONG_HOST:
        return (
            f"the broker's certificate is for another host: {error.verify_message}. Connect by a name that it has, or "
            "set ssl.endpoint.identification.algorithm to an empty text"
        )
    return f"the broker's certificate is not trusted: {cause_of_distrust(error)}"
