"""The active controller looks for brokers that have missed heartbeats: does anybody listen on their port?

A connection that is refused tells that the process is hardly there any more, though its host is: the session ends
earlier (`controller.brokers.sessions`). A process that is stopped or starved still has its port, and a host without
power or behind a cut link says nothing: neither is held against it. It is a hint and no proof, for a firewall may
refuse too. One try at a time for each silent broker, a few in the time of a lease, and none while all are heard.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tailrace.model import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.controller.image import BrokerImage
    from tailrace.model.ids import NodeId
    from tailrace.model.ports import Clock, Dialer

_log = events.logger("controller")

# Looks in the time of a lease, so that a broker is tried soon after it counts as silent, which is after half of one.
_LOOKS_IN_LEASE = 8
# Shares of a lease until a broker whose port did not refuse is tried again. One that heartbeats every other second, as
# Kafka's do, is not bothered more often than that.
_PAUSE_SHARE = 0.5


class Watch(Protocol):
    """What the controller knows of brokers, and is told."""

    def silent_brokers(self) -> Sequence[BrokerImage]: ...

    def note_refused(self, node_id: NodeId, since_ms: float) -> None: ...


class Probes:
    """From `start` until `close`. `listener_name` is the one that brokers use among themselves; without it, or on a
    broker that has no such listener, the first one is tried."""

    def __init__(
        self, dialer: Dialer, clock: Clock, watch: Watch, *, listener_name: str | None, lease_ms: float
    ) -> None:
        self._dialer = dialer
        self._clock = clock
        self._watch = watch
        self._listener_name = (listener_name or "").upper()
        self._lease_seconds = lease_ms / 1000
        self._look: asyncio.Task[None] | None = None
        # By broker; bounded by those that are registered.
        self._tries: dict[NodeId, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._look = asyncio.create_task(self._look_for_ever(), name="probes")

    def close(self) -> None:
        for task in (self._look, *self._tries.values()):
            if task is not None:
                task.cancel()

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / _LOOKS_IN_LEASE)
            for broker in self._watch.silent_brokers():
                if broker.node_id not in self._tries:
                    task = asyncio.create_task(self._try(broker), name=f"probe of broker {broker.node_id}")
                    self._tries[broker.node_id] = task
                    task.add_done_callback(lambda _, node_id=broker.node_id: self._tries.pop(node_id, None))  # type: ignore[misc]

    async def _try(self, broker: BrokerImage) -> None:
        endpoint = broker.endpoint(self._listener_name) or next(iter(broker.endpoints), None)
        if endpoint is None:
            return
        since_ms = self._clock.patient_ms()
        try:
            async with asyncio.timeout(self._lease_seconds):
                stream = await self._dialer.connect(endpoint.host, endpoint.port)
            stream.close()
        except ConnectionRefusedError:
            _log.info("a silent broker refuses connections", node=broker.node_id, at=f"{endpoint.host}:{endpoint.port}")
            self._watch.note_refused(broker.node_id, since_ms)
            return
        except OSError as error:  # A TimeoutError is one.
            _log.debug("a silent broker cannot be asked", node=broker.node_id, cause=error)
        await asyncio.sleep(self._lease_seconds * _PAUSE_SHARE)
