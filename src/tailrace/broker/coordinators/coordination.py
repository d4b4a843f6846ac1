"""The coordinators of a broker, of groups, transactions and share-partitions: begun when one is asked for, or its topic
is there.

A broker that has neither does not pay for them. Those that it has follow the metadata.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.topics import StreamsTopics, TopicCreations
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from tailrace.broker.coordinators.runtime import Coordinators, GroupCoordinators
    from tailrace.broker.coordinators.share_states import ShareStates
    from tailrace.broker.coordinators.shares import ShareCoordinators
    from tailrace.broker.coordinators.transactions import TransactionCoordinators
    from tailrace.broker.node import Node
    from tailrace.controller.image import MetadataImage
    from tailrace.wire.apis.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class Coordination:
    def __init__(self, node: Node) -> None:
        self.running_groups: GroupCoordinators | None = None
        self.running_transactions: TransactionCoordinators | None = None
        self.running_shares: ShareCoordinators | None = None
        self.creations = TopicCreations(node)  # Of topics that somebody misses; the internal ones are among them.
        self.streams_topics = StreamsTopics(node)
        self._node = node
        self._is_open = False

    @property
    def groups(self) -> GroupCoordinators:
        if self.running_groups is None:
            from tailrace.broker.coordinators.runtime import GroupCoordinators

            self.running_groups = GroupCoordinators(self._node, lambda: self.share_states)
        return self.running_groups

    @property
    def transactions(self) -> TransactionCoordinators:
        if self.running_transactions is None:
            from tailrace.broker.coordinators.transactions import TransactionCoordinators

            self.running_transactions = TransactionCoordinators(self._node, self.write_markers)
        return self.running_transactions

    @property
    def shares(self) -> ShareCoordinators:
        if self.running_shares is None:
            from tailrace.broker.coordinators.shares import ShareCoordinators

            self.running_shares = ShareCoordinators(self._node)
        return self.running_shares

    @cached_property
    def share_states(self) -> ShareStates:
        """The way to share coordinators, wherever they are."""
        from tailrace.broker.coordinators.share_states import ShareStates

        return ShareStates(self._node, self.creations, lambda: self.shares)

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
            (SHARE_GROUP_STATE_TOPIC, self.running_shares),
        ):
            if running is not None:
                running.follow_image(old, new)
            elif self._is_open and topic in new.topics:
                # In a turn of its own: it takes some milliseconds.
                asyncio.get_running_loop().call_soon(self._begin, topic)

    def _begin(self, topic: str) -> None:
        if not self._is_open:
            return
        if topic == CONSUMER_OFFSETS_TOPIC:
            _ = self.groups
        elif topic == TRANSACTION_STATE_TOPIC:
            _ = self.transactions
        else:
            _ = self.shares

    async def close(self) -> None:
        self._is_open = False
        running: Coordinators | None
        for running in (self.running_groups, self.running_transactions, self.running_shares):
            if running is not None:
                await running.close()
        if "share_states" in vars(self):
            await self.share_states.close()
        await self.streams_topics.close()
        await self.creations.close()
        await self._node.producer_ids.close()
