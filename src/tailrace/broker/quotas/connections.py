"""How fast new connections may come (KIP-402, KIP-612): to this broker, to one of its listeners, and from one address.

    max.connection.creation.rate      whoever comes too fast waits at the gate, in the order of arrival
    listener.name.X. ... of the same  as well, for one listener. The one among brokers has this bound alone
    connection_creation_rate          a quota of addresses: the connection is closed after the time that its like should
                                      have waited, so that coming again at once does not pay. It does not count

At most socket.listen.backlog.size wait to be let in, and as many to be closed: the next are closed at once, as a kernel
does whose backlog is full. While nothing is bounded nobody passes through here.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.broker.quotas.windows import Rate, Windows
from tailrace.controller.security.limits import AddressLimits, parse_address
from tailrace.model.listeners import prefix_of
from tailrace.model.settings import INT_MAX

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Clock, Stream
    from tailrace.model.quotas import Quotas

_SETTING = "max.connection.creation.rate"
_BROKER = ""  # Among the names of listeners, none of which is empty.


class ConnectionRates:
    def __init__(self, config: Callable[[], BrokerConfig], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        static = config()
        self._windows = Windows(static.quota_window_num, static.quota_window_size_seconds * 1000.0)
        self._listener_bounds = {
            name.removesuffix(f".{_SETTING}"): int(text)
            for name, text in static.listener_settings
            if name.endswith(f".{_SETTING}")
        }
        self._addresses_max = static.quota_clients_max
        self._quotas: Quotas = {}
        self._limits = AddressLimits({})
        self._rates: dict[str, Rate] = {}  # By listener, and one for the broker.
        self._address_rates: dict[str, Rate] = {}

    def follow(self, quotas: Quotas) -> None:
        if quotas is not self._quotas:
            self._quotas = quotas
            self._limits = AddressLimits(quotas)

    def is_bounded(self, listener: BoundListener) -> bool:
        return bool(self._limits or self._bounds(listener))

    def count(self, listener: BoundListener) -> int:
        """One more; for how long it has to wait, in ms."""
        return max((self._count(self._rates, *each) for each in self._bounds(listener).items()), default=0)

    def count_address(self, listener: BoundListener, host: str) -> int:
        """One more from there. If it is too many it is not let in, and does not count; then for how long it waits."""
        address = parse_address(host) or host
        bound = self._limits.find(address)
        if bound is None:
            return 0
        self._make_room()
        throttle_ms = self._count(self._address_rates, address, bound)
        if throttle_ms:
            now_ms = self._clock.monotonic_ms()
            self._address_rates[address].note(-1, now_ms)
            for name in self._bounds(listener):
                self._rates[name].note(-1, now_ms)
        return throttle_ms

    def _count(self, rates: dict[str, Rate], name: str, bound: float) -> int:
        now_ms = self._clock.monotonic_ms()
        rate = rates.get(name)
        if rate is None:
            rate = rates[name] = Rate(self._windows)
        rate.note(1, now_ms)
        return min(rate.throttle_ms(bound, now_ms), int(self._windows.size_ms)) if bound else int(self._windows.size_ms)

    def _bounds(self, listener: BoundListener) -> dict[str, float]:
        """Of the listener and of the broker, where there is one."""
        config = self._config()
        bounds: dict[str, float] = {}
        own = self._listener_bounds.get(prefix_of(listener.name).removesuffix("."))
        if own is not None:
            bounds[listener.name] = own
        is_among_brokers = listener.name == (config.inter_broker_listener_name or "").upper()
        if config.max_connection_creation_rate < INT_MAX and not is_among_brokers:
            bounds[_BROKER] = config.max_connection_creation_rate
        return bounds

    def _make_room(self) -> None:
        if len(self._address_rates) >= self._addresses_max:
            now_ms = self._clock.monotonic_ms()
            kept = [(address, rate) for address, rate in self._address_rates.items() if rate.used(now_ms)]
            self._address_rates = dict(kept[-self._addresses_max // 2 :])


class Gate:
    """Where those wait who come faster than they may."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        *,
        let_in: Callable[[Stream, BoundListener], None],
        turn_away: Callable[[Stream, str], None],
    ) -> None:
        self._rates = ConnectionRates(config, clock)
        self._let_in = let_in
        self._turn_away = turn_away
        self._waiting_max = config().socket_listen_backlog_size
        self._waiting: deque[tuple[Stream, BoundListener]] = deque()
        self._refused: dict[Stream, TimerHandle] = {}  # To be closed.
        self._timer: TimerHandle | None = None  # Of the first who waits.

    def arrive(self, stream: Stream, listener: BoundListener, quotas: Quotas) -> None:
        self._rates.follow(quotas)
        if not self._waiting and not self._rates.is_bounded(listener):
            self._let_in(stream, listener)
        elif len(self._waiting) >= self._waiting_max:
            self._turn_away(stream, f"{_SETTING}: {len(self._waiting)} wait for their turn already")
        else:
            self._waiting.append((stream, listener))
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._timer is None:
            wait_ms = self._rates.count(self._waiting[0][1])
            if wait_ms:
                self._timer = get_running_loop().call_later(wait_ms / 1000, self._end_wait)
            else:
                self._take_first()

    def _end_wait(self) -> None:
        self._timer = None
        self._take_first()
        self._go_on()

    def _take_first(self) -> None:
        stream, listener = self._waiting.popleft()
        throttle_ms = self._rates.count_address(listener, stream.peer.rpartition(":")[0])
        if not throttle_ms:
            self._let_in(stream, listener)
        elif len(self._refused) >= self._waiting_max:
            self._turn_away(stream, "connection_creation_rate of its address is exceeded")
        else:
            self._refused[stream] = get_running_loop().call_later(throttle_ms / 1000, self._end_refusal, stream)

    def _end_refusal(self, stream: Stream) -> None:
        del self._refused[stream]
        self._turn_away(stream, "connection_creation_rate of its address is exceeded")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for stream, timer in self._refused.items():
            timer.cancel()
            stream.close()
        for stream, _listener in self._waiting:
            stream.close()
        self._refused.clear()
        self._waiting.clear()
