"""All connections of a kind of listeners: accepts them, bounds them, and ends those that are idle.

Bounds, all of them settings: connections in all and per address, bytes of requests in memory, the size of one request,
bytes taken from one connection per turn, answers outstanding per connection, idle time. A peer that breaks the protocol
is named in the log, at most once a second for all such peers, so that garbage cannot fill the disk either.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.buffers import KEPT_MAX_BYTES, BufferPool
from tailrace.broker.connection import REQUEST_MIN_BYTES, Connection
from tailrace.broker.dispatch import Dispatcher
from tailrace.broker.handlers import CONTROLLER_HANDLERS, HANDLERS, OWN_HANDLERS
from tailrace.model import events
from tailrace.model.config import Endpoint
from tailrace.model.ports import Background, Clock, Listener, Stream

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

_log = events.logger("connections")

# How often idle connections are looked for; Kafka's own bound is as coarse.
_REAP_INTERVAL_SECONDS = 1.0
# While others wait for memory, a client that stops in the middle of a request or an answer loses its buffer after this
# time.
_STUCK_CLIENT_MAX_MS = 10_000
_REPORT_INTERVAL_MS = 1000

# A TLS record of type handshake (22), version 3.x.
_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"PRI * HTTP/2")


class BoundListener(NamedTuple):
    """A listener that is open, with the port that it really has."""

    name: str
    host: str
    port: int
    is_controller: bool = False


class Server:
    """Serves the listeners of one kind: those of clients, or with `is_controller` those of the metadata quorum."""

    def __init__(self, broker: Broker, *, is_controller: bool = False) -> None:
        config, ports = broker.config, broker.ports
        loop = asyncio.get_running_loop()
        self.broker = broker
        self.is_controller = is_controller
        self.clock: Clock = ports.clock
        self.background: Background = ports.background
        self.call_soon = loop.call_soon
        self.dispatcher = Dispatcher(broker, CONTROLLER_HANDLERS if is_controller else HANDLERS | OWN_HANDLERS)
        self.buffers = BufferPool(
            lent_max_bytes=config.queued_max_request_bytes,
            kept_max_bytes=config.socket_buffer_pool_bytes,
            call_soon=loop.call_soon,
        )
        self.request_max_bytes = config.socket_request_max_bytes
        self.turn_max_bytes = config.socket_read_bytes_per_turn
        self.slots_max = config.max_pending_responses_per_connection
        self.answers_max_bytes = config.max_pending_response_bytes_per_connection
        self.size_hint_max_bytes = min(KEPT_MAX_BYTES, config.socket_read_bytes_per_turn)
        self.connections: dict[Connection, None] = {}  # In order of arrival. Bounded by max.connections.
        self.refused_count = 0
        self._per_host: Counter[str] = Counter()
        self._listeners: list[Listener] = []
        self._held_back: list[tuple[Stream, BoundListener]] | None = []  # Accepted before the broker is ready.
        self._reaper: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Event | None = None  # While the server closes.
        self._last_report_ms = -float("inf")
        self._unreported_count = 0

    async def listen(self, endpoints: tuple[Endpoint, ...]) -> tuple[BoundListener, ...]:
        """Binds every endpoint, or none of them. Peers may connect; their requests wait for `open`."""
        try:
            bound = [await self._listen(endpoint) for endpoint in endpoints]
        except OSError:
            self._close_listeners()
            raise
        return tuple(bound)

    async def _listen(self, endpoint: Endpoint) -> BoundListener:
        config = self.broker.config
        listener = await self.broker.ports.network.listen(
            endpoint.host,
            endpoint.port,
            lambda stream: self._accept(stream, bound),
            backlog=config.socket_listen_backlog_size,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            send_buffer_bytes=config.socket_send_buffer_bytes,
        )
        self._listeners.append(listener)
        bound = BoundListener(endpoint.listener_name, endpoint.host, listener.port, self.is_controller)
        return bound

    def open(self) -> None:
        """Starts to serve."""
        held_back, self._held_back = self._held_back or [], None
        for stream, listener in held_back:
            self._accept(stream, listener)
        self._reap()

    async def close(self, *, answers_timeout_ms: float) -> None:
        """No new connections or requests; waits until the answers to earlier requests are sent, but not for ever."""
        self._close_listeners()
        if self._reaper is not None:
            self._reaper.cancel()
        for stream, _listener in self._held_back or []:
            stream.close()
        for connection in list(self.connections):
            connection.finish()
        if self.connections:
            self._all_gone = asyncio.Event()
            await asyncio.wait(
                {waiting := asyncio.ensure_future(self._all_gone.wait())}, timeout=answers_timeout_ms / 1000
            )
            waiting.cancel()
        for connection in list(self.connections):
            connection.close()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _accept(self, stream: Stream, listener: BoundListener) -> None:
        if self._held_back is not None:
            self._held_back.append((stream, listener))
            return
        config = self.broker.config
        host = _host(stream.peer)
        if len(self.connections) >= config.max_connections:
            self._turn_away(stream, f"max.connections={config.max_connections} is reached")
        elif self._per_host[host] >= config.max_connections_per_ip:
            self._turn_away(stream, f"max.connections.per.ip={config.max_connections_per_ip} is reached")
        else:
            self._per_host[host] += 1
            self.connections[Connection(stream, listener, self)] = None

    def _turn_away(self, stream: Stream, reason: str) -> None:
        self._report("turned a connection away", peer=stream.peer, reason=reason)
        stream.close()

    def forget(self, connection: Connection) -> None:
        if self.connections.pop(connection, self) is None:
            host = _host(connection.peer)
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
            if self._all_gone is not None and not self.connections:
                self._all_gone.set()

    def _reap(self) -> None:
        now_ms = self.clock.monotonic_ms()
        idle_max_ms = self.broker.config.connections_max_idle_ms
        for connection in list(self.connections):
            connection.note_progress(now_ms)
            quiet_ms = now_ms - connection.last_active_ms
            if 0 <= idle_max_ms < quiet_ms and connection.waits_for_client:
                _log.debug("closed an idle connection", peer=connection.peer, quiet_ms=int(quiet_ms))
                connection.close()
        if self.buffers.is_short:
            self._free_memory(now_ms)
        interval_seconds = _REAP_INTERVAL_SECONDS
        if 0 <= idle_max_ms < 2000:
            interval_seconds = max(idle_max_ms, 20) / 2000
        self._reaper = asyncio.get_running_loop().call_later(interval_seconds, self._reap)

    def _free_memory(self, now_ms: float) -> None:
        """Some wait for memory that clients hold who have stopped in the middle of a request or of an answer: those
        lose it. If all of them wait for each other instead, one makes room, and another a round later."""
        self.buffers.wake()
        quiet = [
            each
            for each in self.connections
            if each.holds_memory and now_ms - each.last_active_ms > _STUCK_CLIENT_MAX_MS
        ]
        stuck = [each for each in quiet if each.waits_for_client]
        for connection in stuck or [each for each in quiet if each.is_waiting][:1]:
            if not self.buffers.is_short:
                return
            self._report("closed a connection that is stuck: others wait for its memory", peer=connection.peer)
            connection.close()

    def report_refused(self, connection: Connection, problem: str) -> None:
        self._report("closing a connection that broke the protocol", peer=connection.peer, received=problem)

    def describe_size(self, size: int, first_bytes: bytes) -> str:
        """What is wrong with the size of a request, with the remedy where it is not one of Kafka's protocol."""
        if first_bytes.startswith(_TLS_HANDSHAKE):
            return "a TLS handshake: this listener is plaintext. Set security.protocol=PLAINTEXT in the client"
        if first_bytes.startswith(_HTTP_METHODS):
            return "an HTTP request: this port speaks Kafka's protocol. Point the HTTP client elsewhere"
        if size < REQUEST_MIN_BYTES:
            return f"a request of {size} bytes: a Kafka request has at least {REQUEST_MIN_BYTES}"
        return f"a request of {size} bytes, more than socket.request.max.bytes={self.request_max_bytes}"

    def report_bug(self, connection: Connection, error: Exception) -> None:
        _log.error("closing a connection whose request failed", trace=True, peer=connection.peer)
        self.broker.judge_bug(error)

    def report_broken(self, connection: Connection, error: OSError) -> None:
        _log.debug("a connection broke", peer=connection.peer, cause=error.strerror or str(error))

    def _report(self, sentence: str, **facts: object) -> None:
        self.refused_count += 1
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._last_report_ms < _REPORT_INTERVAL_MS:
            self._unreported_count += 1
            return
        if self._unreported_count:
            facts["unreported"] = self._unreported_count
        self._last_report_ms, self._unreported_count = now_ms, 0
        _log.warning(sentence, **facts)


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]
