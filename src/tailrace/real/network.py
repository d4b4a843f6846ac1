"""The real Network: raw non-blocking sockets on the running asyncio loop.

`add_reader`/`add_writer` with plain sockets carry as many small requests as epoll by hand, and unlike asyncio's
transports they allow receiving into our own buffers and `sendfile`. This file knows nothing of frames: it moves bytes.
A stream never blocks and never retries; whoever owns it watches for reads and writes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import select
import socket
import sys
import termios
from collections.abc import Callable, Sequence
from itertools import islice

from tailrace.model import events
from tailrace.model.ports import Bytes, FileSlice, Listener, Stream

_log = events.logger("network")

# Accepted in one turn of the loop, so that a storm of connections does not hold the others up.
_ACCEPTS_PER_TURN = 64
# How long to leave the listener alone when the process has no file handle left for connections.
_ACCEPT_PAUSE_SECONDS = 0.2
_WARNING_INTERVAL_SECONDS = 1.0
# The share of the process's file handles for connections. The rest is for the logs: a crowd of clients must not fail
# their disk.
_CONNECTIONS_SHARE = 3 / 4
# Smaller runs of parts are joined and sent as one: cheaper than a vector of many pieces.
_JOIN_MAX_BYTES = 64 * 1024
# The kernel takes at most IOV_MAX pieces in one call.
_PIECES_MAX = 1024
# Given to one socket in one call of send(), so that one fast reader does not hold the loop.
_SEND_TURN_BYTES = 4 * 1024 * 1024
# A host that opens no more sockets because it has no memory or handles for them: all pass with time.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def left_in(descriptor: int) -> int | None:
    """What can be received from a socket whose other side has closed; None while it has not."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    if not poll.poll(0):
        return None
    unread = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int.from_bytes(unread, sys.byteorder)


class SocketStream:
    """One connected socket."""

    __slots__ = ("_descriptor", "_loop", "_peer", "_socket")

    def __init__(self, connected: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        connected.setblocking(False)
        if connected.family != socket.AF_UNIX:
            # Answers are joined by us; the kernel must not hold the last one back for 40 ms.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._descriptor = connected.fileno()
        self._loop = loop
        self._peer = _address_text(connected)

    @property
    def peer(self) -> str:
        return self._peer

    def recv_into(self, buffer: memoryview) -> int:
        return self._socket.recv_into(buffer)

    def send(self, parts: Sequence[Bytes | FileSlice]) -> int:
        if len(parts) == 1 and not isinstance(parts[0], FileSlice):
            try:
                return self._socket.send(parts[0])
            except (BlockingIOError, InterruptedError):
                return 0
        sent = 0
        index = 0
        count = len(parts)
        while index < count and sent < _SEND_TURN_BYTES:
            part = parts[index]
            if isinstance(part, FileSlice):
                taken, size = self._send_slice(part), part.size
                index += 1
            else:
                run, index = _run_of_bytes(parts, index)
                taken, size = self._send_run(run, more=index < count)
            sent += taken
            if taken < size:
                break
        return sent

    def _send_run(self, run: list[Bytes], *, more: bool) -> tuple[int, int]:
        size = sum(map(len, run))
        # A file slice follows: let the kernel put its first bytes into the same packet.
        flags = socket.MSG_MORE if more else 0
        try:
            if len(run) == 1:
                return self._socket.send(run[0], flags), size
            if size <= _JOIN_MAX_BYTES:
                return self._socket.send(b"".join(run), flags), size
            return self._socket.sendmsg(run, (), flags), size
        except (BlockingIOError, InterruptedError):
            return 0, size

    def _send_slice(self, part: FileSlice) -> int:
        descriptor = getattr(part.file, "fileno", None)
        if descriptor is None:  # A file that the kernel does not know: a simulated disk behind a real socket.
            return self._send_run([part.file.read(part.position, min(part.size, _JOIN_MAX_BYTES))], more=False)[0]
        try:
            taken = os.sendfile(self._descriptor, descriptor(), part.position, part.size)
        except (BlockingIOError, InterruptedError):
            return 0
        if taken == 0 and part.size:
            raise OSError(errno.EIO, f"the file ends before position {part.position}", part.file.path)
        return taken

    def left_bytes(self) -> int | None:
        return left_in(self._descriptor)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._descriptor)
        else:
            self._loop.add_reader(self._descriptor, callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_writer(self._descriptor)
        else:
            self._loop.add_writer(self._descriptor, callback)

    def detach(self) -> socket.socket:
        """The socket, for who speaks by other means from now on."""
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        return self._socket

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        self._socket.close()


class SocketListener:
    """Accepts on one bound socket until it is closed."""

    def __init__(self, bound: socket.socket, loop: asyncio.AbstractEventLoop, accept: Callable[[Stream], None]) -> None:
        self._socket = bound
        self._loop = loop
        self._accept = accept
        self._port: int = bound.getsockname()[1]
        self._next_warning_at = 0.0
        loop.add_reader(bound.fileno(), self._on_readable)

    @property
    def port(self) -> int:
        return self._port

    def _on_readable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                continue  # That peer left before it was accepted.
            if _is_reserved(accepted.fileno()):
                accepted.close()
                self._pause(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
                return
            try:
                stream = SocketStream(accepted, self._loop)
            except OSError:  # It left in the very moment.
                accepted.close()
                continue
            self._accept(stream)

    def _pause(self, error: OSError) -> None:
        """A level-triggered listener that cannot accept would spin: look again a little later."""
        now = self._loop.time()
        if now >= self._next_warning_at:
            self._next_warning_at = now + _WARNING_INTERVAL_SECONDS
            _log.warning(
                "cannot accept connections: raise the limit of open files or lower max.connections",
                port=self._port,
                cause=error.strerror,
            )
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()


class RealNetwork:
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], None],
        *,
        backlog: int = 128,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
    ) -> Listener:
        loop = asyncio.get_running_loop()
        family, address = await _resolve(loop, host, port, passive=True)
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit them; the receive window is agreed upon before they are accepted.
            if receive_buffer_bytes != -1:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            if send_buffer_bytes != -1:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            bound.bind(address)
            bound.listen(backlog)
        except OSError as error:
            bound.close()
            raise OSError(error.errno, _listen_failure(error, host, port)) from error
        return SocketListener(bound, loop, accept)

    async def connect(self, host: str, port: int) -> Stream:
        loop = asyncio.get_running_loop()
        family, address = await _resolve(loop, host, port, passive=False)
        connecting = socket.socket(family, socket.SOCK_STREAM)
        connecting.setblocking(False)
        try:
            await loop.sock_connect(connecting, address)
            return SocketStream(connecting, loop)
        except BaseException:  # A cancelled connect must not leak its socket either.
            connecting.close()
            raise


def _is_reserved(descriptor: int) -> bool:
    """The kernel gives the lowest free number, so it tells how many handles are open."""
    limit, _hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and descriptor >= limit * _CONNECTIONS_SHARE


def _run_of_bytes(parts: Sequence[Bytes | FileSlice], start: int) -> tuple[list[Bytes], int]:
    """The byte pieces from `start` up to the next file slice or the kernel's limit, and where they end."""
    run: list[Bytes] = []
    for part in islice(parts, start, start + _PIECES_MAX):
        if isinstance(part, FileSlice):
            break
        run.append(part)
    return run, start + len(run)


def _address_text(connected: socket.socket) -> str:
    if connected.family == socket.AF_UNIX:
        return "local:0"
    host, port, *_scope = connected.getpeername()
    return f"{host}:{port}"


async def _resolve(
    loop: asyncio.AbstractEventLoop, host: str, port: int, *, passive: bool
) -> tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]:
    """The first address of a name. Numbers are taken at once; only names ask the resolver, in a thread of the loop."""
    flags = socket.AI_PASSIVE if passive else 0
    # A str would go through the codec for names beyond ASCII, whose tables are a millisecond of a start.
    numbers = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(numbers or None, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    family, _kind, _protocol, _name, address = found[0]
    return family, address


def _listen_failure(error: OSError, host: str, port: int) -> str:
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: another process uses this port. Stop it, or choose another port (0: any)"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {where}: no such address on this host. Check the host in `listeners`"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: not permitted. Ports below 1024 need privileges; choose a higher one"
    return f"cannot listen on {where}: {error.strerror}"
