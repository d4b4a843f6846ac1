"""Producer ids out of blocks that the controller hands out; each id is given once in the life of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding


class ProducerIds:
    def __init__(self, forwarding: Forwarding, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._forwarding = forwarding
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()  # One request for a block at a time.

    async def take(self) -> int:
        async with self._lock:
            if self.is_empty:
                await self._fetch_block()
            self._next += 1
            return self._next - 1

    @property
    def is_empty(self) -> bool:
        """There is none at hand."""
        return self._next == self._end

    def take_now(self) -> int | None:
        """One that is at hand; None if there is none, which `prepare` changes."""
        if self.is_empty:
            return None
        self._next += 1
        return self._next - 1

    async def prepare(self) -> None:
        """Until there is one at hand."""
        async with self._lock:
            if self.is_empty:
                await self._fetch_block()

    async def _fetch_block(self) -> None:
        """Blocks whose answer was lost are never used: there are enough."""
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        answer = await self._forwarding.ask(request, AllocateProducerIdsResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "The controller gave no producer ids")
        self._next = answer.producer_id_start
        self._end = self._next + answer.producer_id_len
