"""A connection whose login is good for a while only (KIP-368).

Its client logs in again before the time is over, by the same requests, between others and without another connection;
as the same principal and by the same mechanism, or the connection closes. Once the time is over, whatever else comes
closes it. A second login within a second of the last is refused with ILLEGAL_SASL_STATE, as in Kafka.

Small produces take the express lane, which does not ask how late it is: that is looked at once a turn.
"""

from __future__ import annotations

from asyncio import Future, ensure_future
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.broker.auth.conversations import Wait
from tailrace.broker.auth.login import Admission, Login, LoginRefusedError, Mechanisms, log_in, read_handshake
from tailrace.broker.serving.connection import KafkaConnection
from tailrace.model.errors import ProtocolError
from tailrace.wire.apis.keys import ApiKey

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener
    from tailrace.broker.serving.acceptor import Acceptor
    from tailrace.broker.serving.buffers import Account
    from tailrace.broker.serving.kafka import KafkaProtocol
    from tailrace.model.ports import Stream

_LOGIN_KEYS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_PAUSE_MS = 1000


class Session(NamedTuple):
    mechanism: str
    mechanisms: Mechanisms
    began_ms: float
    ends_ms: float
    receive_max_bytes: int


class SessionConnection(KafkaConnection):
    __slots__ = ("_lanes", "_login", "_session")

    def __init__(
        self,
        stream: Stream,
        listener: BoundListener,
        protocol: KafkaProtocol,
        acceptor: Acceptor,
        account: Account,
        *,
        admission: Admission,
    ) -> None:
        super().__init__(stream, listener, protocol, acceptor, account)
        self._lanes = self._express
        self._login: Login | None = None  # While one is under way again.
        self._session: Session
        self._begin(admission)

    def _begin(self, admission: Admission) -> None:
        now_ms = self._protocol.clock.monotonic_ms()
        self.principal = admission.principal
        assert admission.mechanism is not None, "there was a login"
        ends_ms = now_ms + admission.session_ms
        receive_max_bytes = admission.mechanism.receive_max_bytes
        self._session = Session(admission.name, admission.mechanisms, now_ms, ends_ms, receive_max_bytes)

    def _take_frames(self, now_ms: float) -> None:
        self._express = self._lanes if self._login is None and now_ms < self._session.ends_ms else None
        super()._take_frames(now_ms)

    def _take(self, frame: memoryview) -> None:
        session = self._session
        now_ms = self._protocol.clock.monotonic_ms()
        key = int.from_bytes(frame[:2], "big")
        is_handshake = key == ApiKey.SASL_HANDSHAKE and now_ms - session.began_ms >= _PAUSE_MS
        if (self._login is not None or is_handshake) and len(frame) > session.receive_max_bytes:
            self._refuse(f"{len(frame)} bytes within a login, more than sasl.server.max.receive.size")
        elif self._login is not None:
            self._go_on(bytes(frame))
        elif is_handshake:
            self._log_in_again(bytes(frame), session)
        elif now_ms >= session.ends_ms and key not in (*_LOGIN_KEYS, ApiKey.API_VERSIONS):
            self._refuse(
                "a request after the end of its session, and no new login (connections.max.reauth.ms, or its token)"
            )
        else:
            super()._take(frame)

    def _log_in_again(self, frame: bytes, session: Session) -> None:
        try:
            version, mechanism = read_handshake(frame)
        except ProtocolError as error:
            self._refuse(str(error))
            return
        if version == 0 or mechanism != session.mechanism:
            self._refuse("another login than the first one, by another mechanism or in its old form")
            return
        self._login = log_in(self._protocol.services, self.listener, self.peer, session.mechanisms)
        next(self._login)
        self._express = None  # What comes next belongs to the login, in this turn too.
        self._go_on(frame)

    def _go_on(self, said: Any) -> None:
        """`said` by the client, or what was waited for. Until that is known, later requests are held back."""
        assert self._login is not None, "a login is under way"
        try:
            answer = self._login.send(said)
            if isinstance(answer, Wait):
                self._held_by = waiting = ensure_future(answer.begin())
                waiting.add_done_callback(self._on_found)
            else:
                self._send(answer)
        except StopIteration as end:
            admission: Admission = end.value
            self._login = None
            if admission.principal != self.principal:
                self._refuse("a login as somebody else within a session")
                return
            self._begin(admission)
            self._send(admission.last)
        except LoginRefusedError as error:
            self._send(error.answer)
            self._refuse(f"a login that failed within a session: {error}")
        except ProtocolError as error:
            self._refuse(str(error))

    def _on_found(self, found: Future[Any]) -> None:
        self._held_by = None
        if self.is_closed:
            found.cancelled() or found.exception()
            return
        if found.cancelled():
            self._is_closing = True
        else:
            self._go_on(found.result())
        self._resume()

    def _send(self, answer: bytes) -> None:
        """In its place behind the answers to earlier requests."""
        if not answer:
            return
        self._queued_bytes += len(answer)
        self._slots.put([answer], None)
