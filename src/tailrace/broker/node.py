"""This node as its own parts see it: who it is, what it knows, and whom it can ask. Made once, never changed.

The image and the settings are those of the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding
    from tailrace.broker.cluster.peers import Peers
    from tailrace.broker.cluster.producer_ids import ProducerIds
    from tailrace.broker.quorum.quorum import Quorum
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Ports
    from tailrace.replica.manager import ReplicaManager
    from tailrace.replica.partition import Partition

R = TypeVar("R", bound=Message)

_TOPIC_WAIT_SECONDS = 0.01
_TOPIC_WAIT_TRIES = 100


class JudgeBug(Protocol):
    def __call__(self, error: BaseException, partition: Partition | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    node_id: int
    ports: Ports
    quorum: Quorum
    forwarding: Forwarding
    replicas: ReplicaManager
    producer_ids: ProducerIds
    peers: Peers | None  # None of a node that is a cluster by itself.
    broker_epoch: Callable[[], int]  # -1 until the controller has let it in.
    # Told of an exception that is our bug, after it was logged. One that means that stored data cannot be trusted takes
    # the partition offline that it is about, or ends the broker.
    judge_bug: JudgeBug

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def config(self) -> BrokerConfig:
        """With the dynamic settings of the cluster applied, once they are known."""
        return self.replicas.config

    async def call_broker(
        self, node_id: int, request: Message, response_type: type[R], *, channel: str, timeout_ms: int | None = None
    ) -> R:
        """Asks another broker, for request.timeout.ms at most unless told otherwise. Raises KafkaError."""
        if self.peers is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"There is no broker {node_id} beside this one")
        timeout_ms = min(timeout_ms or self.config.request_timeout_ms, self.config.request_timeout_ms)
        return await self.peers.call(node_id, request, response_type, timeout_ms=timeout_ms, channel=channel)

    async def wait_topics(self, names: Sequence[str]) -> None:
        """Until topics that the controller has just created are in this node's image, but not for long: a client that
        does not find them asks again."""
        tries_left = _TOPIC_WAIT_TRIES
        while tries_left and any(name not in self.image.topics for name in names):
            tries_left -= 1
            await asyncio.sleep(_TOPIC_WAIT_SECONDS)
