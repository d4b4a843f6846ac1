"""Connections to the other nodes: one for each (address, channel), opened when it is first needed.

A node answers the requests of one connection in order, and a fetch may wait for half a second: whoever must not wait
for another has a channel of its own. Brokers and controllers are called by listeners of their own, each with its TLS
and its login. A connection that fails is opened anew by the next call, after a pause that doubles while the address
cannot be reached, so that a dead peer is not hammered; the call waits for it.

Every failure is a KafkaError; NETWORK_EXCEPTION means that no answer came, and the request may or may not have been
done. Nothing is sent twice here: only the caller knows whether that is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tailrace.client.connection import Address, Connection, ConnectionLimits, Login, open_connection
from tailrace.controller.image import MetadataImage
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.model.ports import Dialer, Ports
from tailrace.wire.schema import Message

R = TypeVar("R", bound=Message)
Way = tuple[Dialer, Login | None]  # How a listener of other nodes is called.


class Ways(NamedTuple):
    to_brokers: Way
    to_controllers: Way


# Kafka's reconnect.backoff.ms, and a maximum below its second: a peer that restarts is back sooner than that.
_RECONNECT_PAUSE_MS = 50.0
_RECONNECT_PAUSE_MAX_MS = 500.0
# Channels that are kept; of those beyond it the ones without a connection go. A node has a handful for each peer.
_CHANNELS_MAX = 1024


class Peers:
    """`image` gives the newest metadata, in which the addresses of brokers stand."""

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        *,
        image: Callable[[], MetadataImage] | None = None,
        listener_name: str | None = None,
        ways: Ways | None = None,
    ) -> None:
        self.image = image
        self._ports = ports
        self._client_id = f"node-{config.node_id}"
        self._listener_name = listener_name or config.inter_broker_listener_name or "PLAINTEXT"
        self._ways = ways or Ways((ports.network, None), (ports.network, None))
        self._channels: dict[tuple[Address, str], _Channel] = {}
        self._is_closed = False

    async def call(
        self, node_id: int, request: Message, response_type: type[R], *, timeout_ms: int, channel: str = ""
    ) -> R:
        """Asks a broker, by the listener that brokers use among themselves."""
        broker = None if self.image is None else self.image().brokers.get(NodeId(node_id))
        endpoint = None if broker is None else broker.endpoint(self._listener_name)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                f"cannot reach broker {node_id}: the metadata has no address of it on listener {self._listener_name}",
            )
        address = Address(endpoint.host, endpoint.port)
        return await self._call((address, channel), self._ways.to_brokers, request, response_type, timeout_ms)

    async def call_address(
        self, host: str, port: int, request: Message, response_type: type[R], *, timeout_ms: int, channel: str = ""
    ) -> R:
        """Asks a controller. `timeout_ms` bounds the whole call, a new connection included."""
        key = Address(host, port), channel
        return await self._call(key, self._ways.to_controllers, request, response_type, timeout_ms)

    async def _call(
        self, key: tuple[Address, str], way: Way, request: Message, response_type: type[R], timeout_ms: int
    ) -> R:
        found = self._channels.get(key)
        if found is None:
            if self._is_closed:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "this node is stopping")
            self._make_room()
            found = self._channels[key] = _Channel(self._ports, way, key[0], f"{self._client_id}-{key[1]}")
        ready = found.ready_connection
        if ready is not None:
            # It bounds the time itself; another timer for each fetch would be a tenth of its cost.
            return await ready.call(request, response_type, timeout_ms=timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await found.wait_connection()
                return await connection.call(request, response_type, timeout_ms=timeout_ms)
        except TimeoutError:
            # What waits behind an answer that does not come would wait for ever.
            found.drop()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no answer from {key[0]} within {timeout_ms} ms") from None

    def close(self) -> None:
        """Fails all calls that are under way."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _make_room(self) -> None:
        if len(self._channels) < _CHANNELS_MAX:
            return
        for key in [key for key, channel in self._channels.items() if channel.is_idle]:
            del self._channels[key]


class _Channel:
    """One connection at a time; all who need it while it is being opened wait for the same one."""

    def __init__(self, ports: Ports, way: Way, address: Address, client_id: str) -> None:
        self._ports = ports
        self._dialer, self._login = way
        self._address = address
        self._client_id = client_id
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._failures_count = 0
        self._next_try_ms = 0.0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return self._opening is None and (self._connection is None or not self._connection.is_open)

    @property
    def ready_connection(self) -> Connection | None:
        """One that sends at once."""
        connection = self._connection
        return connection if connection is not None and connection.has_room else None

    async def wait_connection(self) -> Connection:
        connection = self._connection
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "this node is stopping")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name=f"connect {self._address}")
            self._opening.add_done_callback(self._on_opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "this node is stopping") from None
            raise

    async def _open(self) -> Connection:
        pause_ms = self._next_try_ms - self._ports.clock.monotonic_ms()
        if pause_ms > 0:
            await asyncio.sleep(pause_ms / 1000)
        return await open_connection(
            self._dialer, self._address, client_id=self._client_id, limits=_LIMITS, login=self._login
        )

    def _on_opened(self, opening: asyncio.Task[Connection]) -> None:
        self._opening = None
        if opening.cancelled():
            return
        if opening.exception() is None:
            if self._is_closed:
                opening.result().close()
                return
            self._connection = opening.result()
            self._failures_count = 0
            # A peer that accepts and then fails at once is not hammered either.
            self._next_try_ms = self._ports.clock.monotonic_ms() + _RECONNECT_PAUSE_MS
            return
        pause_ms = min(_RECONNECT_PAUSE_MS * 2**self._failures_count, _RECONNECT_PAUSE_MAX_MS)
        self._failures_count = min(self._failures_count + 1, 10)
        # A fifth of it at random, so that all the peers of a node that comes back do not come at once.
        jitter = 0.9 + 0.2 * self._ports.random.random()
        self._next_try_ms = self._ports.clock.monotonic_ms() + pause_ms * jitter

    def drop(self) -> None:
        """Ends the connection, and with it the calls that are under way."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._is_closed = True
        self.drop()
        if self._opening is not None:
            self._opening.cancel()


# The kernel of a peer answers a connection at once, or is not there. What is asked first by a new one, the versions and
# the login, its process has to answer: one that is starved needs seconds, and one whose host is gone by then never
# does, while all calls of the channel wait for it. Calls have times of their own.
_LIMITS = ConnectionLimits(connect_timeout_ms=2000, request_timeout_ms=10_000)
