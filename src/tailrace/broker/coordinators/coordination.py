"""The coordinators of a broker, of groups and of transactions: begun when one is asked for, or its topic is there.

A broker that has neither does not pay for them. Those that it has follow the metadata.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.coordinators.runtime import GroupCoordinators
    from tailrace.broker.coordinators.transactions import TransactionCoordinators
    from tailrace.controller.image import MetadataImage


class Coordination:
    def __init__(self, broker: Broker) -> None:
        self.running_groups: GroupCoordinators | None = None
        self.running_transactions: TransactionCoordinators | None = None
        self._broker = broker
        self._is_open = False

    @property
    def groups(self) -> GroupCoordinators:
        if self.running_groups is None:
            from tailrace.broker.coordinators.runtime import GroupCoordinators

            self.running_groups = GroupCoordinators(self._broker)
        return self.running_groups

    @property
    def transactions(self) -> TransactionCoordinators:
        if self.running_transactions is None:
            from tailrace.broker.coordinators.transactions import TransactionCoordinators

            self.running_transactions = TransactionCoordinators(self._broker)
        return self.running_transactions

    def open(self) -> None:
        """The broker has started."""
        self._is_open = True
        self.follow_image(self._broker.image, self._broker.image)

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
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
