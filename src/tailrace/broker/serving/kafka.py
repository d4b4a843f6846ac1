"""Kafka's protocol on the connections of an acceptor: what all of them share.

Bounds, all of them settings: bytes of requests in memory, the size of one request, bytes taken from one connection per
turn, answers outstanding per connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tailrace.broker.serving.buffers import KEPT_MAX_BYTES, BufferPool
from tailrace.broker.serving.connection import REQUEST_MIN_BYTES, KafkaConnection
from tailrace.broker.serving.dispatch import Dispatcher
from tailrace.broker.serving.express import may_be_used
from tailrace.catalogue import Audience
from tailrace.model import events

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener
    from tailrace.broker.services import Services
    from tailrace.broker.serving.acceptor import Acceptor
    from tailrace.model.ports import Stream

_log = events.logger("connections")

# While others wait for memory, a client that stops in the middle of a request or an answer loses its buffer after this
# time.
_STUCK_CLIENT_MAX_MS = 10_000

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
            kept_max_bytes=config.socket_buffer_pool_bytes,
            call_soon=self.call_soon,
        )
        self.request_max_bytes = config.socket_request_max_bytes
        self.turn_max_bytes = config.socket_read_bytes_per_turn
        self.slots_max = config.max_pending_responses_per_connection
        self.answers_max_bytes = config.max_pending_response_bytes_per_connection
        self.size_hint_max_bytes = min(KEPT_MAX_BYTES, config.socket_read_bytes_per_turn)

    def speak(self, stream: Stream, listener: BoundListener, acceptor: Acceptor) -> KafkaConnection:
        return KafkaConnection(stream, listener, self, acceptor)

    def tend(self, acceptor: Acceptor, now_ms: float) -> None:
        """Some may wait for memory that clients hold who have stopped in the middle of a request or of an answer: those
        lose it. If all of them wait for each other instead, one makes room, and another a round later."""
        if not self.buffers.is_short:
            return
        self.buffers.wake()
        connections = cast("list[KafkaConnection]", list(acceptor.connections))
        quiet = [
            each for each in connections if each.holds_memory and now_ms - each.last_active_ms > _STUCK_CLIENT_MAX_MS
        ]
        stuck = [each for each in quiet if each.waits_for_client]
        for connection in stuck or [each for each in quiet if each.is_waiting][:1]:
            if not self.buffers.is_short:
                return
            acceptor.report("closed a connection that is stuck: others wait for its memory", peer=connection.peer)
            connection.close()

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
