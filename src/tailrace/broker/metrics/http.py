"""A few lines of HTTP/1.1: GET and HEAD, without bodies in requests, on the node's own acceptor.

Rules
- A request head has at most `metrics.request.max.bytes`, and from its first byte to the last of its answer there are
  `metrics.request.max.ms`. Connections are bounded by `metrics.max.connections`, those that say nothing by
  `metrics.connections.max.idle.ms`. Where all places are taken the oldest connection that has not asked, or not yet
  as a whole, gives way to a new one: nobody shuts out others by holding connections.
- One request at a time; what a client has sent beyond it waits in the socket.
- An answer is made in pieces, for as long as a slice lasts, then others have their turn: all connections together have
  one slice in a round of the loop. It is made no faster than its client reads, and never held as a whole.
- Whatever is not understood is answered with what is wrong, and then the connection closes.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle, get_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import events

if TYPE_CHECKING:
    from tailrace.broker.auth.login import Admission
    from tailrace.broker.context import BoundListener
    from tailrace.broker.services import Services
    from tailrace.broker.serving.acceptor import Acceptor
    from tailrace.model.ports import Clock, Stream
    from tailrace.model.security import Principal

_log = events.logger("metrics")

_RECEIVE_BYTES = 2048
# Half of the millisecond for which the loop may be held.
_SLICE_MS = 0.5
# Made before it is handed to the socket: about so much.
_SEND_BYTES = 64 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Question(NamedTuple):
    method: str
    path: str  # Without what follows a `?`.
    headers: dict[str, str]  # By their names in small letters.
    is_newest: bool  # HTTP/1.1, not 1.0.

    @property
    def keeps_alive(self) -> bool:
        wish = self.headers.get("connection", "").lower()
        return "close" not in wish if self.is_newest else "keep-alive" in wish


class Page(NamedTuple):
    status: int
    content_type: str
    pieces: Iterator[str]
    headers: tuple[tuple[str, str], ...] = ()


class BadRequestError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


# What answers a question, given who asks and from where. It may come later: then it calls back.
Answering = Callable[[Question, "Asker", Callable[[Page], None]], None]


class Asker(NamedTuple):
    peer: str
    is_encrypted: bool
    principal: Principal


def plain_page(status: int, text: str, *headers: tuple[str, str]) -> Page:
    return Page(status, "text/plain; charset=utf-8", iter([text + "\n"]), headers)


def parse_head(head: bytes) -> Question:
    """Raises BadRequestError."""
    try:
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = request_line.split(" ")
    except ValueError:
        raise BadRequestError(400, "the first line must be METHOD PATH HTTP/1.1") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequestError(505, "HTTP/1.0 and HTTP/1.1 are spoken here")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(400, "a header must be NAME: VALUE")
        headers[name.lower()] = value.strip()
    if method not in ("GET", "HEAD"):
        raise BadRequestError(405, "only GET and HEAD are answered here")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "a request must have no body here")
    if version == "HTTP/1.1" and "host" not in headers:
        raise BadRequestError(400, "there is no Host header")
    if not target.startswith("/"):
        raise BadRequestError(400, "the path must begin with /")
    return Question(method, target.partition("?")[0], headers, version == "HTTP/1.1")


class Slices:
    """Whose answer is made next: one slice in a round of the loop, whoever many ask."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()  # One for each connection, at most.
        self._next: Handle | None = None

    def join(self, take: Callable[[], None]) -> None:
        self._waiting.append(take)
        if self._next is None:
            self._next = self._loop.call_soon(self._run)

    def leave(self, take: Callable[[], None]) -> None:
        if take in self._waiting:
            self._waiting.remove(take)

    def _run(self) -> None:
        self._next = None
        if self._waiting:
            take = self._waiting.popleft()
            if self._waiting:
                self._next = self._loop.call_soon(self._run)
            take()


class HttpProtocol:
    """What all connections share. `services` of the node are for those at a door."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        answer: Answering,
        encrypted: frozenset[str],
        *,
        request_max_bytes: int,
        request_max_ms: float,
    ) -> None:
        """`encrypted` are the names of listeners with TLS."""
        self.services = services
        self.clock = clock
        self.answer = answer
        self.encrypted = encrypted
        self.request_max_bytes = request_max_bytes
        self.request_max_ms = request_max_ms
        self.slices = Slices(get_running_loop())
        self.broken_count = 0  # Requests that were not understood.

    def speak(
        self,
        stream: Stream,
        listener: BoundListener,
        acceptor: Acceptor,
        principal: Principal,
        admission: Admission | None = None,  # noqa: ARG002 - nobody logs in by SASL here
    ) -> HttpConnection:
        return HttpConnection(stream, listener, self, acceptor, principal)

    def make_room(self, acceptor: Acceptor) -> None:
        for connection in acceptor.connections:
            if isinstance(connection, HttpConnection) and not connection.is_asked:
                connection.close()
                return

    def tend(self, acceptor: Acceptor, now_ms: float) -> None:
        for connection in list(acceptor.connections):
            if isinstance(connection, HttpConnection):
                connection.close_if_late(now_ms)


class HttpConnection:
    __slots__ = (
        "_acceptor",
        "_asker",
        "_began_ms",
        "_has_answer",
        "_is_chunked",
        "_is_finishing",
        "_keeps_alive",
        "_pieces",
        "_protocol",
        "_received",
        "_seen_sent_bytes",
        "_sent_bytes",
        "_stream",
        "_unsent",
        "is_asked",
        "is_closed",
        "last_active_ms",
        "listener",
        "peer",
        "principal",
    )

    def __init__(
        self,
        stream: Stream,
        listener: BoundListener,
        protocol: HttpProtocol,
        acceptor: Acceptor,
        principal: Principal,
    ) -> None:
        self.peer = stream.peer
        self.listener = listener
        self.is_asked = False  # A whole request is under way.
        self.is_closed = False
        self.last_active_ms = protocol.clock.monotonic_ms()
        self._stream = stream
        self._protocol = protocol
        self._acceptor = acceptor
        self.principal = principal
        self._asker = Asker(stream.peer, listener.name in protocol.encrypted, principal)
        self._received = bytearray()  # Of one head, and perhaps the next.
        self._began_ms: float | None = None  # When the request under way began.
        self._has_answer = False  # It is known, and perhaps not sent.
        self._pieces: Iterator[str] | None = None  # What is still to be made of it.
        self._unsent = memoryview(b"")
        self._sent_bytes = self._seen_sent_bytes = 0
        self._keeps_alive = self._is_chunked = False
        self._is_finishing = False
        stream.watch_reads(self._on_readable)

    # ---- as the acceptor sees it

    @property
    def waits_for_client(self) -> bool:
        return self._began_ms is None or not self._has_answer or bool(self._unsent)

    def note_progress(self, now_ms: float) -> None:
        if self._sent_bytes != self._seen_sent_bytes:
            self._seen_sent_bytes = self._sent_bytes
            self.last_active_ms = now_ms

    def finish(self) -> None:
        self._is_finishing = True
        if self._began_ms is None:
            self.close()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._pieces = None
            self._protocol.slices.leave(self._make)
            self._stream.close()
            self._acceptor.forget(self)

    def close_if_late(self, now_ms: float) -> None:
        if self._began_ms is not None and now_ms - self._began_ms > self._protocol.request_max_ms:
            self._acceptor.report("closed a connection whose request takes too long", peer=self.peer)
            self.close()

    # ---- receiving

    def _on_readable(self) -> None:
        scratch = bytearray(_RECEIVE_BYTES)
        try:
            count = self._stream.recv_into(memoryview(scratch))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self.close()
            return
        self.last_active_ms = self._protocol.clock.monotonic_ms()
        self._received += scratch[:count]
        self._take()

    def _take(self) -> None:
        if self._began_ms is None:
            while self._received.startswith(b"\r\n"):  # As some send behind a request.
                del self._received[:2]
            if not self._received:
                return
            self._began_ms = self.last_active_ms
        if not self._received[:1].isupper():
            # Another protocol, such as TLS: what it waits for would never come.
            self._stream.watch_reads(None)
            self._received.clear()
            self._protocol.broken_count += 1
            self._answer(None, plain_page(400, "HTTP without TLS is spoken here, and its methods are capital letters"))
            return
        end = self._received.find(_END_OF_HEAD)
        if end < 0 and len(self._received) <= self._protocol.request_max_bytes:
            return
        self._stream.watch_reads(None)
        try:
            if end < 0 or end > self._protocol.request_max_bytes:
                raise BadRequestError(431, f"a request head has at most {self._protocol.request_max_bytes} bytes here")
            head = bytes(self._received[:end])
            del self._received[: end + len(_END_OF_HEAD)]
            self.is_asked = True
            self._ask(parse_head(head))
        except BadRequestError as error:
            self._protocol.broken_count += 1
            self._answer(None, plain_page(error.status, str(error)))

    def _ask(self, question: Question) -> None:
        try:
            self._protocol.answer(question, self._asker, lambda page: self._answer(question, page))
        except Exception as error:
            self._report(error)
            self._answer(None, plain_page(500, "the node failed on this request; its log says why"))

    def _report(self, error: Exception) -> None:
        _log.error("a page failed", trace=True, peer=self.peer)
        self._protocol.services.judge_bug(error)

    # ---- answering

    def _answer(self, question: Question | None, page: Page) -> None:
        """Without a question that was understood the connection closes."""
        if self.is_closed:
            return
        self._has_answer = True
        self._keeps_alive = question is not None and question.keeps_alive and not self._is_finishing
        self._is_chunked = question is not None and question.is_newest
        self._keeps_alive = self._keeps_alive and self._is_chunked
        lines = [f"HTTP/1.1 {page.status} {_REASONS[page.status]}", f"Content-Type: {page.content_type}"]
        lines += [f"{name}: {value}" for name, value in page.headers]
        lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff"]
        lines += ["Transfer-Encoding: chunked"] if self._is_chunked else []
        lines += [] if self._keeps_alive else ["Connection: close"]
        self._unsent = memoryview("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        if question is not None and question.method == "HEAD":
            self._is_chunked = False
        else:
            self._pieces = page.pieces
        self._send()

    def _send(self) -> None:
        """What is made; then more of it is made, or the request is over."""
        try:
            while self._unsent:
                taken = self._stream.send([self._unsent])
                if not taken:
                    self._stream.watch_writes(self._on_room)
                    return
                self._sent_bytes += taken
                self._unsent = self._unsent[taken:]
        except OSError:
            self.close()
            return
        if self._pieces is not None:
            self._protocol.slices.join(self._make)
        else:
            self._end()

    def _on_room(self) -> None:
        self._stream.watch_writes(None)
        self._send()

    def _make(self) -> None:
        """One slice of the answer."""
        assert self._pieces is not None, "whoever stands in line has more to make"
        clock = self._protocol.clock
        ends_ms = clock.monotonic_ms() + _SLICE_MS
        made: list[str] = []
        size = 0
        try:
            for piece in self._pieces:
                if piece:
                    made.append(piece)
                    size += len(piece)
                if size >= _SEND_BYTES or clock.monotonic_ms() >= ends_ms:
                    break
            else:
                self._pieces = None
        except Exception as error:
            # The client sees an answer that is cut short.
            self._report(error)
            self.close()
            return
        self._unsent = memoryview(self._framed("".join(made).encode()))
        self._send()

    def _framed(self, data: bytes) -> bytes:
        if not self._is_chunked:
            return data
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return chunk if self._pieces is not None else chunk + b"0\r\n\r\n"

    def _end(self) -> None:
        self._began_ms, self._has_answer, self.is_asked = None, False, False
        if not self._keeps_alive or self._is_finishing:
            self.close()
            return
        self.last_active_ms = self._protocol.clock.monotonic_ms()
        self._stream.watch_reads(self._on_readable)
        self._take()
