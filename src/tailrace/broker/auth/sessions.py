"""A connection whose login is good for a while only (KIP-368).

Its client logs in again before the time is over, by the same requests, between others and without another connection;
as the same principal and by the same mechanism, or the connection closes. Once the time is over, whatever else comes
closes it. A second login within a second of the last is refused with ILLEGAL_SASL_STATE, as in Kafka.

Requests of such a connection take no express lane, which would not ask how late it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.auth.login import Admission, Login, LoginRefusedError, Mechanisms, log_in, read_handshake
from tailrace.broker.serving.connection import KafkaConnection
from tailrace.broker.serving.outbox import Slot
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


class SessionConnection(KafkaConnection):
    __slots__ = ("_login", "_session")

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
        self._express = None
        self._login: Login | None = None  # While one is under way again.
        self._session: Session
        self._begin(admission)

    def _begin(self, admission: Admission) -> None:
        now_ms = self._protocol.clock.monotonic_ms()
        self.principal = admission.principal
        assert admission.mechanism is not None, "there was a login"
        ends_ms = now_ms + admission.mechanism.session_ms
        self._session = Session(admission.name, admission.mechanisms, now_ms, ends_ms)

    def _take(self, frame: memoryview) -> None:
        session = self._session
        now_ms = self._protocol.clock.monotonic_ms()
        key = int.from_bytes(frame[:2], "big")
        if self._login is not None:
            self._go_on(bytes(frame))
        elif key == ApiKey.SASL_HANDSHAKE and now_ms - session.began_ms >= _PAUSE_MS:
            self._log_in_again(bytes(frame), session)
        elif now_ms >= session.ends_ms and key not in (*_LOGIN_KEYS, ApiKey.API_VERSIONS):
            self._refuse("a request after the end of its session, and no new login: see connections.max.reauth.ms")
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
        self._go_on(frame)

    def _go_on(self, request: bytes) -> None:
        assert self._login is not None, "a login is under way"
        try:
            self._send(self._login.send(request))
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

    def _send(self, answer: bytes) -> None:
        """In its place behind the answers to earlier requests."""
        if not answer:
            return
        self._queued_bytes += len(answer)
        if self._slots:
            self._add_slot(Slot(None, [answer]))
        else:
            self._outbox.put([answer], None)
