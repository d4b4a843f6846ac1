"""The transaction coordinators of this broker, and what they owe: the markers of decided transactions.

A decision is answered, once it is committed, to a `_Decision` too: it has the markers written (`markers.MarkerWriter`)
and tells the machine when the last one is.
"""

from __future__ import annotations

from asyncio import get_running_loop
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.markers import MarkerWriter, WriteMarkers
from tailrace.broker.coordinators.runtime import Coordinators
from tailrace.coordinator.placement import coordinator_partition
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TRANSACTION_STATE_TOPIC
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Machine, Shard
    from tailrace.broker.node import Node
    from tailrace.coordinator.op import Told
    from tailrace.coordinator.transactions.transaction import Transaction

# After a decision that was written, but not committed in time.
_RETRY_SECONDS = 0.1


class TransactionCoordinators(Coordinators):
    def __init__(self, node: Node, write_markers: WriteMarkers) -> None:
        self.markers = MarkerWriter(node, write_markers)
        self.committed_count = self.aborted_count = 0  # Transactions that were completed here.
        super().__init__(node, TRANSACTION_STATE_TOPIC, self._make_machine)

    def _make_machine(self) -> TransactionMachine:
        return TransactionMachine(self._node.producer_ids.take_now, self._owe_markers)

    def _owe_markers(self, transactional_id: str) -> Told:
        return _Decision(self, transactional_id)

    def shard_with(self, transactional_id: str) -> Shard | None:
        """Where it is coordinated, if here and now."""
        shard = self.shards.get(coordinator_partition(transactional_id, self._partition_count or 1))
        return shard if shard is not None and shard.is_active else None

    async def close(self) -> None:
        await super().close()
        await self.markers.close()


class _Decision:
    """Told once a decision is committed, as the client is that asked for it."""

    def __init__(self, coordinators: TransactionCoordinators, transactional_id: str) -> None:
        self._coordinators = coordinators
        self._transactional_id = transactional_id
        self._shard: Shard | None = None
        self._decided: Transaction | None = None
        self._is_commit = False

    def complete(self, request: Message) -> None:
        shard = self._shard = self._coordinators.shard_with(self._transactional_id)
        if shard is not None:
            self._decided = _machine(shard).state.transactions.get(self._transactional_id)
            # The epoch of the coordinator is that of its leadership: a leader takes no marker of an earlier one.
            (marker,) = request.markers  # type: ignore[attr-defined]
            self._is_commit = marker.transaction_result
            marker.coordinator_epoch = shard.leader_epoch
            self._coordinators.markers.write(marker, self._on_written, is_wanted=self._is_wanted)

    def fail(self, _error: KafkaError) -> None:
        """A machine that is loaded anew, here or elsewhere, finds the decision on its log. This one asks again."""
        shard = self._coordinators.shard_with(self._transactional_id)
        if shard is not None:
            get_running_loop().call_later(_RETRY_SECONDS, self._ask_again, shard, shard.machine)

    def _is_wanted(self) -> bool:
        """While the machine holds this very decision. A machine that was loaded anew owes it to another one, and a
        marker that came after that one's could end the next transaction."""
        shard = self._shard
        return (
            shard is not None
            and shard.is_active
            and self._decided is not None
            and _machine(shard).state.transactions.get(self._transactional_id) is self._decided
        )

    def _ask_again(self, shard: Shard, machine: Machine) -> None:
        if shard.is_active and shard.machine is machine:
            shard.decide(lambda _call: [_machine(shard).owe_markers(self._transactional_id)])

    def _on_written(self, producer_id: int, producer_epoch: int) -> None:
        shard = self._shard
        if shard is None or not self._is_wanted():
            return
        if self._is_commit:
            self._coordinators.committed_count += 1
        else:
            self._coordinators.aborted_count += 1
        machine, transactional_id = _machine(shard), self._transactional_id
        shard.decide(
            lambda call: [machine.complete(call, transactional_id, producer_id=producer_id, epoch=producer_epoch)]
        )


def _machine(shard: Shard) -> TransactionMachine:
    assert isinstance(shard.machine, TransactionMachine), "a shard of __transaction_state"
    return shard.machine
