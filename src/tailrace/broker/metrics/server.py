"""The listeners of metrics and health of one node, and what is counted for them. What answers is loaded for the first
who asks, as a start need not wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.broker.metrics.elections import Elections
from tailrace.broker.metrics.requests import WINDOW_TICK_SECONDS, RequestMeters
from tailrace.broker.serving.acceptor import Acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailrace.broker.auth.doors import Door
    from tailrace.broker.auth.login import Admission
    from tailrace.broker.context import BoundListener
    from tailrace.broker.metrics.http import HttpConnection, HttpProtocol
    from tailrace.broker.metrics.lag.watch import LagWatch
    from tailrace.broker.metrics.watched import WatchedNode
    from tailrace.broker.services import Services
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Ports, Stream
    from tailrace.model.security import Principal

# A scrape that is under way at a stop may end.
_ANSWERS_TIMEOUT_MS = 1000.0


class MetricsServer:
    def __init__(self, config: BrokerConfig, ports: Ports, doors: Mapping[str, Door] | None = None) -> None:
        self.meters = RequestMeters(
            sample_every=config.metrics_request_sample_every, express_sample_every=config.metrics_express_sample_every
        )
        self.listeners: tuple[BoundListener, ...] = ()
        self._config = config
        self._ports = ports
        self._started_ms = ports.clock.wall_ms()
        bounds = config.replace(
            max_connections=config.metrics_max_connections,
            max_connections_per_ip=config.metrics_max_connections,
            connections_max_idle_ms=config.metrics_connections_max_idle_ms,
        )
        # Not among those whose rate quotas bound: whoever watches is let in.
        self._acceptor = Acceptor(lambda: bounds, ports, is_controller=True, doors=doors)
        self._elections = Elections()
        self._timer: asyncio.TimerHandle | None = None
        self._lag_timer: asyncio.TimerHandle | None = None
        self._lag_watch: LagWatch | None = None  # From the first interval on.

    @property
    def urls(self) -> list[str]:
        """Where it is reached, with the ports that it really has."""
        return [
            f"{each.name.lower()}://{f'[{each.host}]' if ':' in each.host else each.host or 'localhost'}:{each.port}"
            for each in self.listeners
        ]

    async def bind(self) -> None:
        """Raises OSError. Whoever connects waits until it is opened."""
        self.listeners = await self._acceptor.listen(self._config.metrics_listeners)

    def open(self, node: WatchedNode) -> None:
        """The services of the node are there: its health can be told while it recovers."""
        node.services.quorum.subscribe(self._elections.follow_image)
        self._acceptor.open(_Late(node.services, lambda: self._make_protocol(node)))
        self._tick()
        lag_watch = node.services.lag_watch
        if lag_watch is not None and node.roles.is_broker:
            seconds = self._config.metrics_lag_interval_ms / 1000
            self._lag_timer = asyncio.get_running_loop().call_later(seconds, self._watch_lag, lag_watch)

    def _watch_lag(self, lag_watch: Callable[[], LagWatch]) -> None:
        self._lag_watch = lag_watch()
        self._lag_watch.start()

    def _make_protocol(self, node: WatchedNode) -> HttpProtocol:
        from tailrace.broker.metrics.http import HttpProtocol
        from tailrace.broker.metrics.pages import Pages
        from tailrace.broker.metrics.watched import Watched

        watched = Watched(node, node.services, node.roles, self.meters, self._elections, self._started_ms)
        return HttpProtocol(
            node.services,
            self._ports.clock,
            Pages(watched).answer,
            frozenset({"HTTPS"}),
            request_max_bytes=self._config.metrics_request_max_bytes,
            request_max_ms=self._config.metrics_request_max_ms,
        )

    def _tick(self) -> None:
        self.meters.tick()
        self._timer = asyncio.get_running_loop().call_later(WINDOW_TICK_SECONDS, self._tick)

    async def close(self) -> None:
        for timer in (self._timer, self._lag_timer):
            if timer is not None:
                timer.cancel()
        if self._lag_watch is not None:
            self._lag_watch.close()
        await self._acceptor.close(answers_timeout_ms=_ANSWERS_TIMEOUT_MS)


class _Late:
    """The protocol, which is made when the first connection comes."""

    def __init__(self, services: Services, make: Callable[[], HttpProtocol]) -> None:
        self.services = services
        self._make = make
        self._made: HttpProtocol | None = None

    def speak(
        self,
        stream: Stream,
        listener: BoundListener,
        acceptor: Acceptor,
        principal: Principal,
        admission: Admission | None = None,
    ) -> HttpConnection:
        if self._made is None:
            self._made = self._make()
        return self._made.speak(stream, listener, acceptor, principal, admission)

    def make_room(self, acceptor: Acceptor) -> None:
        if self._made is not None:
            self._made.make_room(acceptor)

    def tend(self, acceptor: Acceptor, now_ms: float) -> None:
        if self._made is not None:
            self._made.tend(acceptor, now_ms)
