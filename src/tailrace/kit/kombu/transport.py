"""kombu's virtual transport over a `link`: queues are topics with share groups, broadcasts topics that all read.

    ack                 accepted                        reject              rejected: for the group's dead letters
    requeue             released, for any member        a closed channel    released, at once
    a worker that dies  its messages go to others at once, by the broker

Options (`transport_options`): `kafka`, a mapping of options of the kit (security, for one); `prefix` of topics and
groups; `partitions` of a new queue; `delays`, the room of a mover (`tailrace delays`), by which a message with an `eta`
waits in the cluster and not in a worker.
"""

from __future__ import annotations

import threading
from datetime import datetime
from queue import Empty
from time import monotonic, time
from typing import Any

from kombu.transport import virtual
from kombu.utils.json import dumps, loads

from tailrace.client.shares.consumer import ACCEPT, REJECT, RELEASE
from tailrace.kit.kombu.link import Binding, Link, Names
from tailrace.kit.kombu.taking import Arrived, Broadcast, Queue
from tailrace.kit.threads import LoopThread, loop_thread
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition

DEFAULT_PORT = 9092
# Taken ahead of the worker by a channel without a prefetch count, from each queue.
_PREFETCH = 32
_WAIT_S = 1.0
# For a place in the group, and for one message that is asked for without a consumer.
_JOIN_S = 15.0
_GET_S = 5.0


class QoS(virtual.QoS):
    """Answers go to the broker."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.settle(delivery_tag, ACCEPT)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.settle(delivery_tag, RELEASE if requeue else REJECT)
        super().ack(delivery_tag)


class Channel(virtual.Channel):
    QoS = QoS
    supports_fanout = True
    # The broker gives back what was not answered for.
    do_restore = False

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._sources: dict[str, Queue | Broadcast] = {}
        self._wanted: dict[str, int] = {}  # by queue: those of `basic_get`
        self._unanswered: set[str] = set()  # queues whose messages count as done when they are taken
        self._settling: dict[str, Queue | Broadcast] = {}

    # --- queues

    def _new_queue(self, queue: str, **_: Any) -> None:
        self._run(self._link.declare(self._names.queue(queue)))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return bool(self._run(self._link.exists(self._names.queue(queue))))

    def _size(self, queue: str) -> int:
        return int(self._run(self._link.depth(self._names.queue(queue), self._names.group(queue))))

    def _purge(self, queue: str) -> int:
        return int(self._run(self._link.purge(self._names.queue(queue), self._names.group(queue))))

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *_: Any, **__: Any) -> None:
        self._drop(queue)
        self._run(self._link.unbind(Binding(exchange, routing_key or "", pattern or "", queue)))
        self._run(self._link.delete(self._names.queue(queue), self._names.group(queue)))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self._transport.hearing[queue] = self._run(self._link.broadcast_positions(exchange))
        else:
            self._run(self._link.bind(Binding(exchange, routing_key or "", pattern or "", queue)))

    def get_table(self, exchange: str) -> list[tuple[str, str, str]]:
        """Of all processes."""
        own = self.state.exchanges.get(exchange, {}).get("table", [])
        others = [(each.routing_key, each.pattern, each.queue) for each in self._link.bindings if each[0] == exchange]
        return list(dict.fromkeys([(key or "", pattern or "", queue) for key, pattern, queue in own] + others))

    # --- messages

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        topic, value = self._names.queue(queue), dumps(message).encode()
        self._run(self._link.put(topic, value, _due(message)))

    def _put_fanout(self, exchange: str, message: dict[str, Any], _routing_key: str, **_: Any) -> None:
        self._run(self._link.put(self._names.broadcast(exchange), dumps(message).encode(), None))

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any) -> Any:
        (self._unanswered.add if no_ack else self._unanswered.discard)(queue)
        found = super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._wait_polls(self._source(queue), 1, _JOIN_S)
        return found

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues:
            self._drop_ready(queue)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Waits until the broker has said whether there is one."""
        if queue not in self._active_queues:
            (self._unanswered.add if no_ack else self._unanswered.discard)(queue)
        self._wanted[queue] = 1
        source = self._source(queue)
        source.wake()
        self._wait_polls(source, source.polls + 2, _GET_S)
        try:
            return super().basic_get(queue, no_ack=no_ack, **kwargs)
        finally:
            self._wanted.pop(queue, None)

    def _wait_polls(self, source: Queue | Broadcast, count: int, seconds: float) -> None:
        deadline = monotonic() + seconds
        while not source.ready and source.failure is None and source.polls < count and monotonic() < deadline:
            self._transport.wait(_WAIT_S / 20)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:  # noqa: ARG002 - as kombu calls it
        source = self._source(queue)
        if source.failure is not None:
            del self._sources[queue]
            raise source.failure
        while source.ready:
            arrived = source.ready.popleft()
            source.wake()
            message = loads((arrived.value or b"{}").decode())
            if _is_expired(message, arrived):
                source.settle(arrived.tag, ACCEPT)
                continue
            message["properties"]["delivery_tag"] = arrived.tag
            message["properties"]["delivery_info"]["redelivered"] = arrived.is_redelivered
            if queue in self._unanswered:
                source.settle(arrived.tag, ACCEPT)
            else:
                self._settling[arrived.tag] = source
            return dict(message)
        raise Empty

    def settle(self, tag: str, kind: int) -> None:
        source = self._settling.pop(tag, None)
        if source is not None:
            source.settle(tag, kind)

    def close(self) -> None:
        if not self.closed:
            for queue in list(self._sources):
                self._drop(queue)
        super().close()

    # --- how they come

    def _source(self, queue: str) -> Queue | Broadcast:
        source = self._sources.get(queue)
        if source is None:

            def room() -> int:
                return self._room(queue)

            arrival = self._transport.arrived.set
            positions = self._transport.hearing.get(queue)
            source = self._sources[queue] = (
                self._run(self._link.queue(queue, room, arrival))
                if positions is None
                else self._run(self._link.broadcast(positions, room, arrival))
            )
        return source

    def _room(self, queue: str) -> int:
        """Asked on the loop: how many messages of a queue may be in hand that the worker has not got yet."""
        if queue not in self._active_queues:
            return self._wanted.get(queue, 0)
        free: int | None = self.qos.can_consume_max_estimate()
        return _PREFETCH if free is None else min(free, _PREFETCH)

    def _drop(self, queue: str) -> None:
        source = self._sources.pop(queue, None)
        if source is not None:
            self._run(source.close())

    def _drop_ready(self, queue: str) -> None:
        """Nobody wants them here any more."""
        source = self._sources.get(queue)
        while source is not None and source.ready:
            source.settle(source.ready.popleft().tag, RELEASE)

    @property
    def _transport(self) -> Transport:
        found: Transport = self.connection
        return found

    @property
    def _link(self) -> Link:
        return self._transport.link

    @property
    def _names(self) -> Names:
        return self._transport.link.names

    def _run(self, work: Any) -> Any:
        return self._transport.thread.run(work)


class Transport(virtual.Transport):
    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "kafka"
    driver_name = "tailrace"
    connection_errors = (*virtual.Transport.connection_errors, KafkaError)
    channel_errors = (*virtual.Transport.channel_errors, KafkaError)
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(["direct", "topic", "fanout"]))

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.arrived = threading.Event()
        # Queues that hear a broadcast, and from where on.
        self.hearing: dict[str, dict[TopicPartition, int]] = {}
        self.thread: LoopThread = loop_thread()
        self._link: Link | None = None

    def establish_connection(self) -> Any:
        """Raises KafkaError if no broker answers."""
        if self._link is None:
            self.thread = loop_thread()
            self._link = self.thread.run(self._open())
        return super().establish_connection()

    async def _open(self) -> Link:
        given = self.client.transport_options
        options = {"bootstrap.servers": _bootstrap(self.client), **given.get("kafka", {})}
        names = Names(given.get("prefix", ""))
        link = Link(options, names, partitions=int(given.get("partitions", 1)), delays=given.get("delays"))
        try:
            await link.open()
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def link(self) -> Link:
        assert self._link is not None, "the connection is established"
        return self._link

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        link, self._link = self._link, None
        if link is not None:
            self.thread.run(link.close())

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # noqa: ARG002 - as kombu calls it
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            self.arrived.clear()
            try:
                self.cycle.get(self._deliver, timeout=timeout)
                return
            except Empty:
                left = _WAIT_S if deadline is None else deadline - monotonic()
                if left <= 0:
                    raise TimeoutError from None
                self.wait(min(left, _WAIT_S))

    def wait(self, seconds: float) -> None:
        """Until something has come, perhaps."""
        self.arrived.wait(seconds)


def _bootstrap(client: Any) -> str:
    return f"{client.hostname or 'localhost'}:{client.port or DEFAULT_PORT}"


def _due(message: dict[str, Any]) -> datetime | None:
    eta = (message.get("headers") or {}).get("eta")
    if eta is None:
        return None
    due = eta if isinstance(eta, datetime) else datetime.fromisoformat(eta)
    return due if due.tzinfo is not None and due.timestamp() > time() else None


def _is_expired(message: dict[str, Any], arrived: Arrived) -> bool:
    expiration = message["properties"].get("expiration")
    return expiration is not None and arrived.timestamp + int(expiration) < time() * 1000
