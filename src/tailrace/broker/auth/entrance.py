"""A connection that is not let in yet: its TLS handshake, its login, and a deadline for both.

Rules
- Nothing of it reaches the dispatcher. It has no buffers of the pool: it holds what it has sent of one request, which
  is bounded by sasl.server.max.receive.size, and no byte beyond the request is received.
- While a helper thread is at its handshake nothing else touches the stream: a close waits for it.
- A refusal is held back for connection.failed.authentication.delay.ms, without holding the loop.
- The log names a peer that was refused and why, at most once a second for all of them, and nothing that it sent.
"""

from __future__ import annotations

from asyncio import Future, TimerHandle, ensure_future, get_running_loop
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from tailrace.broker.auth.conversations import Wait
from tailrace.broker.auth.login import Admission, Login, LoginRefusedError, log_in
from tailrace.model.errors import ProtocolError
from tailrace.model.ports import SecureStream, Stream, Want
from tailrace.model.security import ANONYMOUS, Principal

if TYPE_CHECKING:
    from tailrace.broker.auth.doors import Door
    from tailrace.broker.context import BoundListener
    from tailrace.broker.services import Services
    from tailrace.broker.serving.acceptor import Acceptor

_SIZE = Struct(">i")
# Received at a time: requests of a login are small.
_RECEIVE_BYTES = 4096


class Entrance:
    def __init__(
        self, stream: Stream, listener: BoundListener, door: Door, acceptor: Acceptor, services: Services
    ) -> None:
        self.peer = stream.peer
        self._stream = stream
        self._listener = listener
        self._door = door
        self._acceptor = acceptor
        self._services = services
        self._secure: SecureStream | None = None  # With TLS: the same as the stream.
        self._is_shaking = False
        self._is_closed = False
        self._login: Login | None = None
        self._received = bytearray()  # Of one request, with its size.
        self._unsent = memoryview(b"")
        self._then: Callable[[], None] = self._listen  # What follows once all is sent.
        self._waiting: Future[Any] | None = None  # For what the login has to know.
        self._timer: TimerHandle | None = None
        self._deadline = get_running_loop().call_later(door.limits.login_max_ms / 1000, self._on_late)

    def open(self) -> None:
        identity = self._door.identity
        if identity is None:
            self._greet()
            return
        try:
            self._stream = self._secure = identity.tls.accept(self._stream, identity.current)
        except OSError as error:
            self._refuse(_cause(error))
            return
        # Its first step waits for the client's first words: whoever says nothing takes no thread.
        self._stream.watch_reads(self._shake_hands)

    # ---- TLS

    def _shake_hands(self) -> None:
        assert self._secure is not None, "there is TLS"
        self._stream.watch_reads(None)
        self._stream.watch_writes(None)
        self._is_shaking = True
        self._door.handshakes.run(self._secure.shake_hands, self._on_shaken)

    def _on_shaken(self, step: Future[Want]) -> None:
        self._is_shaking = False
        if self._is_closed:
            step.cancelled() or step.exception()
            self._stream.close()
            return
        try:
            want = step.result()
        except OSError as error:
            self._refuse(_cause(error))
            return
        match want:
            case Want.NOTHING:
                self._greet()
            case Want.READ:
                self._stream.watch_reads(self._shake_hands)
            case Want.WRITE:
                self._stream.watch_writes(self._shake_hands)

    # ---- SASL

    def _greet(self) -> None:
        """Whoever it is by its certificate comes in, unless it must log in: then that counts."""
        if self._door.mechanisms is not None:
            self._login = log_in(self._services, self._listener, self.peer, self._door.mechanisms)
            next(self._login)
            self._listen()
            return
        principal = ANONYMOUS if self._secure is None else self._door.name(self._secure.subject)
        if principal is None:
            self._refuse("ssl.principal.mapping.rules has no rule for the subject of its certificate")
        else:
            self._admit(principal)

    def _listen(self) -> None:
        self._stream.watch_reads(self._on_readable)

    def _on_readable(self) -> None:
        received = self._received
        scratch = bytearray(_RECEIVE_BYTES)
        try:
            count = self._stream.recv_into(memoryview(scratch)[: min(self._missing_bytes(), _RECEIVE_BYTES)])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if not count:
            self.close()
            return
        received += scratch[:count]
        if len(received) == _SIZE.size:
            (size,) = _SIZE.unpack(received)
            if not 0 <= size <= self._door.limits.receive_max_bytes:
                self._refuse(_describe_size(bytes(received), size, self._door.limits.receive_max_bytes))
                return
        if not self._missing_bytes():
            self._received = bytearray()
            self._stream.watch_reads(None)
            self._go_on(bytes(received[_SIZE.size :]))

    def _missing_bytes(self) -> int:
        received = self._received
        if len(received) < _SIZE.size:
            return _SIZE.size - len(received)
        size: int = _SIZE.unpack_from(received)[0]
        return _SIZE.size + size - len(received)

    def _go_on(self, said: Any) -> None:
        """`said` by the client, or what was waited for."""
        assert self._login is not None, "it logs in"
        try:
            answer = self._login.send(said)
            if isinstance(answer, Wait):
                self._waiting = ensure_future(answer.begin())
                self._waiting.add_done_callback(self._on_found)
            else:
                self._send(answer, then=self._listen)
        except StopIteration as end:
            admission: Admission = end.value
            self._send(admission.last, then=lambda: self._admit(admission.principal, admission))
        except LoginRefusedError as error:
            self._acceptor.report("refused a login", peer=self.peer, listener=self._listener.name, cause=str(error))
            answer = error.answer
            self._timer = get_running_loop().call_later(
                self._door.limits.failure_delay_ms / 1000, lambda: self._send(answer, then=self.close)
            )
        except ProtocolError as error:
            self._refuse(str(error))

    def _on_found(self, found: Future[Any]) -> None:
        self._waiting = None
        if self._is_closed:
            found.cancelled() or found.exception()
        elif found.cancelled():
            self.close()
        else:
            self._go_on(found.result())

    def _send(self, answer: bytes, *, then: Callable[[], None]) -> None:
        self._unsent = memoryview(answer)
        self._then = then
        self._go_on_sending()

    def _go_on_sending(self) -> None:
        try:
            while self._unsent:
                taken = self._stream.send([self._unsent])
                if not taken:
                    self._stream.watch_writes(self._go_on_sending)
                    return
                self._unsent = self._unsent[taken:]
        except OSError:
            self.close()
            return
        self._stream.watch_writes(None)
        self._then()

    # ---- the end

    def _admit(self, principal: Principal, admission: Admission | None = None) -> None:
        self._stream.watch_reads(None)
        self._deadline.cancel()
        self._is_closed = True  # As far as this one is concerned.
        self._acceptor.admit(self, self._stream, self._listener, principal, admission)

    def _refuse(self, cause: str) -> None:
        self._acceptor.report(
            "turned a connection away at the door", peer=self.peer, listener=self._listener.name, cause=cause
        )
        self.close()

    def _on_late(self) -> None:
        self._refuse(f"it has not logged in within connection.login.max.ms={self._door.limits.login_max_ms}")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._deadline.cancel()
        for pending in (self._timer, self._waiting):
            if pending is not None:
                pending.cancel()
        if not self._is_shaking:
            self._stream.close()
        self._acceptor.forget_entrance(self)


def _cause(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _describe_size(first_bytes: bytes, size: int, size_max: int) -> str:
    if first_bytes.startswith(b"\x16\x03"):
        return "a TLS handshake: this listener has none. Set security.protocol=SASL_PLAINTEXT in the client"
    return f"a request of {size} bytes before its login, more than sasl.server.max.receive.size={size_max}"
