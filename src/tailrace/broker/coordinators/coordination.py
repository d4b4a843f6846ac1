"""The coordinators of a broker, of groups and of transactions: begun when one is asked for, or its topic is there.

A broker that has neither does not pay for them. Those that it has follow the metadata.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.topics import TopicCreations
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from tailrace.broker.coordinators.runtime import GroupCoordinators
    from tailrace.broker.coordinators.transactions import TransactionCoordinators
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.wire.apis.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class Coordination:
    def __init__(self, node: Node) -> None:
        self.running_groups: GroupCoordinators | None = None
        self.running_transactions: TransactionCoordinators | None = None
        self.creations = TopicCreations(node)  # Of topics that somebody misses; the internal ones are among them.
        self._node = node
        self._is_open = False

    @property
    def groups(self) -> GroupCoordinators:
        if self.running_groups is None:
            from tailrace.broker.coordinators.runtime import GroupCoordinators

            self.running_groups = GroupCoordinators(self._node)
        return self.running_groups

    @property
    def transactions(self) -> TransactionCoordinators:
        if self.running_transactions is None:
            from tailrace.broker.coordinators.transactions import TransactionCoordinators

            self.running_transactions = TransactionCoordinators(self._node, self.write_markers)
        return self.running_transactions

    async def write_markers(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Into the partitions that this broker leads."""
        from tailrace.broker.coordinators.markers import write_markers

        return await write_markers(self._node, self.groups.shard_at, request)

    def open(self) -> None:
        """The broker has started."""
        self._is_open = True
        self.follow_image(self._node.image, self._node.image)

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self.creations.follow_image(old, new)
        for topic, running in (
            (CONSUMER_OFFSETS_TOPIC, self.running_groups),
            (TRANSACTION_STATE_TOPIC, self.running_transactions),
        ):
            if running is not None:
                running.follow_image(old, new)
            elif self._is_open and topic in new.topics:
                # In a turn of its own: it takes some milliseconds.
                asyncio.get_running_loop().call_soon(self._begin, topic)

    def _begin(self, topic: str) -> None:
        if self._is_open:
            _ = self.groups if topic == CONSUMER_OFFSETS_TOPIC else self.transactions

    async def close(self) -> None:
        self._is_open = False
        for running in (self.running_groups, self.running_transactions):
            if running is not None:
                await running.close()
        await self.creations.close()
        await self._node.producer_ids.close()
