"""Listeners of a kind, and the connections on them: accepts, bounds, and ends those that are idle.

What is spoken on a connection is the business of a `SpokenProtocol`, which is given each stream that was let in.
Until there is one, whoever connects waits. Where a listener has a door (`broker.auth`), whoever comes stands there
until it is known who it is.

Bounds, all of them settings: connections in all and per address, how fast they come (`quotas.connections`), idle time.
A peer that breaks its protocol is named in the log, at most once a second for all such peers, so that garbage cannot
fill the disk either.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from tailrace.broker.context import BoundListener
from tailrace.broker.quotas.connections import Gate
from tailrace.model import events
from tailrace.model.config import BrokerConfig, Endpoint
from tailrace.model.ports import Listener, Ports, Stream
from tailrace.model.security import ANONYMOUS, Principal

if TYPE_CHECKING:
    from tailrace.broker.auth.doors import Door
    from tailrace.broker.auth.entrance import Entrance
    from tailrace.broker.auth.login import Admission
    from tailrace.broker.services import Services

_log = events.logger("connections")

# How often idle connections are looked for; Kafka's own bound is as coarse.
_REAP_INTERVAL_SECONDS = 1.0
_REPORT_INTERVAL_MS = 1000


class Speaker(Protocol):
    """One connection, in whatever protocol it speaks. It tells `Acceptor.forget` when it is closed."""

    last_active_ms: float
    principal: Principal

    @property
    def peer(self) -> str: ...

    @property
    def listener(self) -> BoundListener: ...

    @property
    def waits_for_client(self) -> bool:
        """It is the client's turn: to read its answers or to send a request."""

    def note_progress(self, now_ms: float) -> None:
        """A client that reads is as active as one that sends."""

    def finish(self) -> None:
        """Takes no more requests; closes when the answers to earlier ones are sent."""

    def close(self) -> None: ...


class SpokenProtocol(Protocol):
    @property
    def services(self) -> Services: ...

    def speak(
        self,
        stream: Stream,
        listener: BoundListener,
        acceptor: Acceptor,
        principal: Principal,
        admission: Admission | None = None,
    ) -> Speaker:
        """`admission` where there was a login."""

    def tend(self, acceptor: Acceptor, now_ms: float) -> None:
        """Called about once a second."""

    def make_room(self, acceptor: Acceptor) -> None:
        """All places are taken, and somebody comes: a connection that can be spared may be closed."""


class Acceptor:
    """Has the listeners of clients, or with `is_controller` those of the metadata quorum."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        ports: Ports,
        *,
        is_controller: bool = False,
        doors: Mapping[str, Door] | None = None,
    ) -> None:
        self.is_controller = is_controller
        self.connections: dict[Speaker, None] = {}  # In order of arrival. Bounded by max.connections.
        self.refused_count = 0
        self._doors = doors or {}  # By the names of listeners.
        self._at_the_door: dict[Entrance, None] = {}  # Counted among the connections.
        self._config = config
        self._ports = ports
        self._protocol: SpokenProtocol | None = None
        self._gate = Gate(config, ports.clock, let_in=self._let_in, turn_away=self._turn_away)
        self._per_host: Counter[str] = Counter()
        self._listeners: list[Listener] = []
        self._held_back: list[tuple[Stream, BoundListener]] = []  # Accepted before there is a protocol.
        self._reaper: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Event | None = None  # While it closes.
        self._last_report_ms = -float("inf")
        self._unreported_count = 0

    async def listen(self, endpoints: Collection[Endpoint]) -> tuple[BoundListener, ...]:
        """Binds every endpoint, or none of them. Peers may connect; their requests wait for `open`."""
        try:
            bound = [await self._listen(endpoint) for endpoint in endpoints]
        except OSError:
            self._close_listeners()
            raise
        return tuple(bound)

    async def _listen(self, endpoint: Endpoint) -> BoundListener:
        config = self._config()
        listener = await self._ports.network.listen(
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

    def open(self, protocol: SpokenProtocol) -> None:
        """Starts to serve."""
        self._protocol = protocol
        held_back, self._held_back = self._held_back, []
        for stream, listener in held_back:
            self._accept(stream, listener)
        self._reap()

    async def close(self, *, answers_timeout_ms: float) -> None:
        """No new connections or requests; waits until the answers to earlier requests are sent, but not for ever."""
        self._close_listeners()
        if self._reaper is not None:
            self._reaper.cancel()
        self._gate.close()
        for stream, _listener in self._held_back:
            stream.close()
        for entrance in list(self._at_the_door):
            entrance.close()
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
        if self._protocol is None:
            self._held_back.append((stream, listener))
        elif self.is_controller:
            self._let_in(stream, listener)
        else:
            self._gate.arrive(stream, listener, self._protocol.services.image.client_quotas)

    def _let_in(self, stream: Stream, listener: BoundListener) -> None:
        assert self._protocol is not None, "it is open"
        config = self._config()
        host = host_of(stream.peer)
        if self._taken >= config.max_connections:
            self._protocol.make_room(self)
        if self._taken >= config.max_connections:
            self._turn_away(stream, f"max.connections={config.max_connections} is reached")
        elif self._per_host[host] >= config.max_connections_per_ip:
            self._turn_away(stream, f"max.connections.per.ip={config.max_connections_per_ip} is reached")
        else:
            self._per_host[host] += 1
            door = self._doors.get(listener.name)
            if door is None:
                self.connections[self._protocol.speak(stream, listener, self, ANONYMOUS)] = None
            else:
                self._ask(stream, listener, door, self._protocol.services)

    @property
    def _taken(self) -> int:
        return len(self.connections) + len(self._at_the_door)

    def _ask(self, stream: Stream, listener: BoundListener, door: Door, services: Services) -> None:
        from tailrace.broker.auth.entrance import Entrance

        entrance = Entrance(stream, listener, door, self, services)
        self._at_the_door[entrance] = None
        entrance.open()

    def admit(
        self,
        entrance: Entrance,
        stream: Stream,
        listener: BoundListener,
        principal: Principal,
        admission: Admission | None,
    ) -> None:
        """It is known who that is, by its login if there was one."""
        assert self._protocol is not None, "nobody stands at the door before it is open"
        del self._at_the_door[entrance]
        self.connections[self._protocol.speak(stream, listener, self, principal, admission)] = None

    def forget_entrance(self, entrance: Entrance) -> None:
        if self._at_the_door.pop(entrance, self) is None:
            self._leave(entrance.peer)

    def _turn_away(self, stream: Stream, reason: str) -> None:
        self.report("turned a connection away", peer=stream.peer, reason=reason)
        stream.close()

    def forget(self, connection: Speaker) -> None:
        if self.connections.pop(connection, self) is None:
            self._leave(connection.peer)
            if self._all_gone is not None and not self.connections:
                self._all_gone.set()

    def _leave(self, peer: str) -> None:
        host = host_of(peer)
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def _reap(self) -> None:
        assert self._protocol is not None, "it is open"
        now_ms = self._ports.clock.monotonic_ms()
        idle_max_ms = self._config().connections_max_idle_ms
        for connection in list(self.connections):
            connection.note_progress(now_ms)
            quiet_ms = now_ms - connection.last_active_ms
            if 0 <= idle_max_ms < quiet_ms and connection.waits_for_client:
                _log.debug("closed an idle connection", peer=connection.peer, quiet_ms=int(quiet_ms))
                connection.close()
        self._protocol.tend(self, now_ms)
        interval_seconds = _REAP_INTERVAL_SECONDS
        if 0 <= idle_max_ms < 2000:
            interval_seconds = max(idle_max_ms, 20) / 2000
        self._reaper = asyncio.get_running_loop().call_later(interval_seconds, self._reap)

    def report(self, sentence: str, **facts: object) -> None:
        """A peer that is refused, or breaks its protocol."""
        self.refused_count += 1
        now_ms = self._ports.clock.monotonic_ms()
        if now_ms - self._last_report_ms < _REPORT_INTERVAL_MS:
            self._unreported_count += 1
            return
        if self._unreported_count:
            facts["unreported"] = self._unreported_count
        self._last_report_ms, self._unreported_count = now_ms, 0
        _log.warning(sentence, **facts)


def host_of(peer: str) -> str:
    return peer.rpartition(":")[0]
