"""The share coordinators of this broker (__share_group_state): who keeps the state of which share-partition.

Nothing compacts the log of a share coordinator, for its records build on each other. Every now and then, once it has
grown, all states are written once more; when that is committed the log before it is cut off.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.runtime import Coordinators
from tailrace.coordinator.share_state.machine import ShareStateMachine
from tailrace.model import events
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ids import SHARE_GROUP_STATE_TOPIC, Uuid, uuid_text
from tailrace.wire.apis.shares import DeleteShareGroupStateResponse

if TYPE_CHECKING:
    from tailrace.broker.coordinators.shard import Shard
    from tailrace.broker.node import Node
    from tailrace.wire.schema import Message

_log = events.logger("coordinator")

# A log that holds less than so many records for each state is not worth the writing.
_GROWTH_MIN = 1000


def share_key(group_id: str, topic_id: Uuid, partition: int) -> str:
    """By which the coordinator of a share-partition is found."""
    return f"{group_id}:{uuid_text(topic_id)}:{partition}"


class ShareCoordinators(Coordinators):
    def __init__(self, node: Node) -> None:
        super().__init__(node, SHARE_GROUP_STATE_TOPIC, ShareStateMachine)
        self._timer: TimerHandle | None = None
        self._renewed: dict[int, int] = {}  # Where the log of a partition ended when its states were last written.
        self._arm()

    def _arm(self) -> None:
        seconds = self._node.config.share_coordinator_state_topic_prune_interval_ms / 1000
        self._timer = get_running_loop().call_later(seconds, self._prune)

    def _prune(self) -> None:
        self._arm()
        for index, shard in self.shards.items():
            if not shard.is_active or not shard.may_act:
                continue
            log = shard.partition.log
            machine = shard.machine
            assert isinstance(machine, ShareStateMachine), "a shard of __share_group_state"
            since = max(self._renewed.get(index, 0), log.log_start_offset)
            if log.log_end_offset - since >= _GROWTH_MIN + len(machine.states):
                self._renewed[index] = log.log_end_offset
                machine.renew(_Cut(shard, log.log_end_offset), DeleteShareGroupStateResponse())
                shard.decide(lambda _call: [])

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await super().close()


class _Cut:
    """Told once everything that the log says before `offset` has been written after it."""

    def __init__(self, shard: Shard, offset: int) -> None:
        self._shard = shard
        self._offset = offset

    def complete(self, _answer: Message) -> None:
        if not self._shard.is_active:
            return
        partition = self._shard.partition
        try:
            partition.log.advance_start(min(self._offset, partition.high_watermark))
        except StorageError as error:
            _log.warning("a log cannot be cut", partition=partition.topic_partition, cause=error)

    def fail(self, error: KafkaError) -> None:
        """It is tried again when the log has grown further."""
