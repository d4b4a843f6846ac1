"""All that this broker fetches from others: a `Fetcher` for each leader."""

from __future__ import annotations

from tailrace.model.ids import NodeId
from tailrace.replica.following.cuts import Cuts
from tailrace.replica.following.fetcher import Fetcher, FetchingBroker, Leaders
from tailrace.replica.partition import Partition
from tailrace.replica.throttle import Throttle


class Fetchers:
    """All fetchers of a broker. A partition is with the one of its leader, or with none."""

    def __init__(self, broker: FetchingBroker, leaders: Leaders, cuts: Cuts) -> None:
        self._broker = broker
        self._cuts = cuts
        self._leaders = leaders
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._leader_of: dict[Partition, NodeId] = {}
        self._throttle = Throttle()

    def settle(self, partition: Partition) -> None:
        """The partition's leader or leader epoch may have changed."""
        leader_id = partition.leader_id
        old_id = self._leader_of.get(partition)
        if old_id is not None and old_id != leader_id:
            self.drop(partition)
        if leader_id < 0 or leader_id == partition.node_id:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(
                self._broker, self._leaders, leader_id, throttle=self._throttle, cuts=self._cuts
            )
        self._leader_of[partition] = leader_id
        fetcher.add(partition)

    def drop(self, partition: Partition) -> None:
        """The partition is not to be fetched any more."""
        self._cuts.forget(partition)
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is not None:
            self._fetchers[leader_id].remove(partition)

    def wake(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def on_new_incarnation(self, leader_id: NodeId) -> None:
        """A fetch that hangs at a dead incarnation would never be answered."""
        fetcher = self._fetchers.get(leader_id)
        if fetcher is not None:
            fetcher.interrupt()

    def close(self) -> None:
        """Nothing is appended after it."""
        self._cuts.close()
        fetchers, self._fetchers = self._fetchers, {}
        self._leader_of.clear()
        for fetcher in fetchers.values():
            fetcher.close()
