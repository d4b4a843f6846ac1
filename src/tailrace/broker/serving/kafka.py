"""Kafka's protocol on the connections of an acceptor: what all of them share.

Bounds, all of them settings: bytes of requests in memory, in all and for one address, the size of one request and the
time that it takes to arrive, bytes taken from one connection per turn, answers outstanding per connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

from tailrace.broker.serving.acceptor import host_of
from tailrace.broker.serving.arrival import ArrivalRules
from tailrace.broker.serving.buffers import HEAP_MAX_BYTES, START_BYTES, Account, BufferPool
from tailrace.broker.serving.connection import REQUEST_MIN_BYTES, KafkaConnection
from tailrace.broker.serving.dispatch import Dispatcher
from tailrace.broker.serving.express import may_be_used
from tailrace.broker.serving.turns import Turns
from tailrace.catalogue import Audience
from tailrace.model import events

if TYPE_CHECKING:
    from tailrace.broker.auth.login import Admission
    from tailrace.broker.context import BoundListener
    from tailrace.broker.services import Services
    from tailrace.broker.serving.acceptor import Acceptor
    from tailrace.model.ports import Stream
    from tailrace.model.security import Principal

_log = events.logger("connections")

# While others wait for memory, a client that stops in the middle of an answer loses its buffer after this time.
_STUCK_CLIENT_MAX_MS = 10_000
# Looks at how requests arrive are about a second apart; if two are further apart than this, the whole process stood
# still, and what clients have sent meanwhile lies unread.
_LOOK_INTERVAL_MAX_MS = 2000

# A TLS record of type handshake (22), version 3.x.
_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"PRI * HTTP/2")


class KafkaProtocol:
    def __init__(self, services: Services, dispatcher: Dispatcher) -> None:
        config, ports = services.config, services.ports
        self.services = services
        self.dispatcher = dispatcher
        # Nobody produces to the metadata quorum.
        self.has_express = dispatcher.audience is Audience.CLIENTS and may_be_used()
        self.clock = ports.clock
        self.background = ports.background
        self.call_soon = asyncio.get_running_loop().call_soon
        self.buffers = BufferPool(
            lent_max_bytes=config.queued_max_request_bytes,
            account_max_bytes=config.queued_max_request_bytes_per_ip,
            reserved_bytes=config.socket_reserved_request_bytes,
            kept_max_bytes=config.socket_buffer_pool_bytes,
            memory=ports.memory,
            call_soon=self.call_soon,
        )
        self.turns = Turns(self.clock, self.call_soon)
        self._trimming: asyncio.Future[None] | None = None  # Held, for the loop keeps only weak references.
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()  # Of addresses with connections.
        self._arrival_rules = ArrivalRules(
            config.socket_request_max_ms,
            config.socket_request_rate_window_ms,
            config.socket_request_min_bytes_per_second,
        )
        self._last_look_ms = self.clock.monotonic_ms()
        self.request_max_bytes = config.socket_request_max_bytes
        self.turn_max_bytes = config.socket_read_bytes_per_turn
        self.slots_max = config.max_pending_responses_per_connection
        self.answers_max_bytes = config.max_pending_response_bytes_per_connection
        hint_max_bytes = min(HEAP_MAX_BYTES, config.socket_read_bytes_per_turn)
        self.size_hint_max_bytes = max(START_BYTES, 1 << (hint_max_bytes.bit_length() - 1))

    def speak(
        self,
        stream: Stream,
        listener: BoundListener,
        acceptor: Acceptor,
        principal: Principal,
        admission: Admission | None = None,
    ) -> KafkaConnection:
        account = self._accounts.setdefault(host_of(stream.peer), Account())
        mechanism = None if admission is None or not admission.session_ms else admission.mechanism
        if mechanism is not None and mechanism.make_connection is not None:
            session: KafkaConnection = mechanism.make_connection(
                stream, listener, self, acceptor, account, admission=admission
            )
            return session
        connection = KafkaConnection(stream, listener, self, acceptor, account)
        connection.principal = principal
        return connection

    def make_room(self, acceptor: Acceptor) -> None:
        """Whoever is connected stays."""

    def tend(self, acceptor: Acceptor, now_ms: float) -> None:
        connections = cast("list[KafkaConnection]", list(acceptor.connections))
        holders = [each for each in connections if each.inbox.buffer is not None]
        for connection in [each for each in holders if each.has_lost_client]:
            _log.debug("a client has left in the middle of a request", peer=connection.peer)
            connection.close()
        holders = [each for each in holders if not each.is_closed]
        short = self.buffers.find_short()
        wanted = [each for each in holders if short is None or each.inbox.account in short]
        self._close_late(holders, set(wanted), acceptor, now_ms)
        if self.buffers.is_short:
            self._find_memory([each for each in wanted if not each.is_closed], acceptor, now_ms)
        if self.buffers.age(now_ms):
            self._trimming = asyncio.ensure_future(self._trim())

    def _close_late(
        self, holders: list[KafkaConnection], wanted: set[KafkaConnection], acceptor: Acceptor, now_ms: float
    ) -> None:
        """Others wait for what those who are `wanted` hold."""
        since_ms, self._last_look_ms = self._last_look_ms, now_ms
        stood_still = now_ms - since_ms > _LOOK_INTERVAL_MAX_MS
        for connection in holders:
            inbox = connection.inbox
            if inbox.arrival is not None and (stood_still or connection.is_held_back):
                inbox.arrival.excuse(now_ms - since_ms, now_ms)
                continue
            is_short = connection in wanted and self.buffers.is_short
            problem = inbox.decide_late(now_ms, self._arrival_rules, is_short=is_short)
            if problem is not None:
                acceptor.report(
                    "closed a connection whose request comes in too slowly", peer=connection.peer, got=problem
                )
                connection.close()

    def _find_memory(self, wanted: list[KafkaConnection], acceptor: Acceptor, now_ms: float) -> None:
        """Some wait for memory that others hold and do not need; or that clients hold who have stopped in the middle
        of an answer: those lose it. If all of them wait for each other instead, those who hold most make room: an
        eighth of what is held so, and another a look later."""
        for connection in wanted:
            connection.inbox.shrink()
        self.buffers.wake()
        quiet = [each for each in wanted if now_ms - each.last_active_ms > _STUCK_CLIENT_MAX_MS]
        stuck = [each for each in quiet if each.waits_for_client]
        room_bytes = float("inf")
        if not stuck:
            stuck = [each for each in quiet if each.waits_for_memory]
            stuck.sort(key=lambda each: -len(each.inbox.view))
            room_bytes = sum(len(each.inbox.view) for each in stuck) / 8
        for connection in stuck:
            if room_bytes <= 0 or not self.buffers.is_short:
                return
            room_bytes -= len(connection.inbox.view)
            acceptor.report("closed a connection that is stuck: others wait for its memory", peer=connection.peer)
            connection.close()

    async def _trim(self) -> None:
        await self.background.run(self.buffers.trim)

    def describe_size(self, size: int, first_bytes: bytes) -> str:
        """What is wrong with the size of a request, with the remedy where it is not one of Kafka's protocol."""
        if first_bytes.startswith(_TLS_HANDSHAKE):
            return "a TLS handshake: this listener is plaintext. Set security.protocol=PLAINTEXT in the client"
        if first_bytes.startswith(_HTTP_METHODS):
            return "an HTTP request: this port speaks Kafka's protocol. Point the HTTP client elsewhere"
        if size < REQUEST_MIN_BYTES:
            return f"a request of {size} bytes: a Kafka request has at least {REQUEST_MIN_BYTES}"
        return f"a request of {size} bytes, more than socket.request.max.bytes={self.request_max_bytes}"

    def report_bug(self, connection: KafkaConnection, error: Exception) -> None:
        _log.error("closing a connection whose request failed", trace=True, peer=connection.peer)
        self.services.judge_bug(error)

    def report_broken(self, connection: KafkaConnection, error: OSError) -> None:
        _log.debug("a connection broke", peer=connection.peer, cause=error.strerror or str(error))
