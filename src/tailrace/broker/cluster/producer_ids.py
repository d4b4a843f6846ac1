"""Producer ids out of blocks that the controller hands out; each id is given once in the life of the cluster.

The next block is fetched when half of this one is left, so that nobody waits for it and ids last for a while without
a controller. A block whose answer was lost is never used: there are enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding

_log = events.logger("producer_ids")

# The next block is fetched when this share of the last one is left. Kafka waits until it is a tenth.
_FETCH_AHEAD = 0.5


class ProducerIds:
    def __init__(self, forwarding: Forwarding, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._forwarding = forwarding
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._block = range(0)  # What is left of it.
        self._next_block = range(0)
        self._ahead = 0  # How many are left of the block when the next one is fetched.
        self._fetching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """There is none at hand."""
        return not self._block and not self._next_block

    def take_now(self) -> int | None:
        """One that is at hand; None if there is none, and then some are being fetched."""
        if not self._block:
            self._block, self._next_block = self._next_block, range(0)
            self._ahead = int(len(self._block) * _FETCH_AHEAD)
        producer_id = self._block[0] if self._block else None
        self._block = self._block[1:]
        self.fetch_if_few()
        return producer_id

    def fetch_if_few(self) -> None:
        if len(self._block) > self._ahead or self._next_block or self._is_closed:
            return
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_block(), name="fetch producer ids")

    async def take(self, *, wait_ms: float) -> int:
        """Raises KafkaError if there is none in time: the client asks again."""
        producer_id = self.take_now()
        if producer_id is None:
            await self.wait_fetched(wait_ms=wait_ms)
            producer_id = self.take_now()
        if producer_id is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "There is no producer id at hand, and the controller has not given more yet: try again",
            )
        return producer_id

    async def wait_fetched(self, *, wait_ms: float) -> None:
        """Until what is being fetched is there, or will not be, or the time is over."""
        if self._fetching is not None:
            await asyncio.wait((self._fetching,), timeout=wait_ms / 1000)

    async def close(self) -> None:
        self._is_closed = True
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))

    async def _fetch_block(self) -> None:
        try:
            request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
            answer = await self._forwarding.ask(request, AllocateProducerIdsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code), ErrorCode(answer.error_code).name)
            self._next_block = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
        except KafkaError as error:
            _log.warning("the controller gave no producer ids", cause=error)
        finally:
            self._fetching = None
