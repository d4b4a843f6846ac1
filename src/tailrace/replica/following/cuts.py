"""Leave to cut off what was confirmed: a follower whose leader lacks records below the follower's high watermark.

Either these records were given up by an unclean election, or the leader has lost them and must not lead. The metadata
tells of the first only as long as the leader recovers; so the controller is asked, who knows whether this replica is
counted on (`controller.partitions.reports`). Until it has given leave the partition is not followed, and the other
partitions are. A controller of Kafka's does not know the question: there the follower does what Kafka's would.

What is cut is kept first, in a file beside the log (`log.files.kept`), in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tailrace.controller.partitions.change import RECOVERING
from tailrace.log.files.kept import begin_keeping
from tailrace.model import events
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NodeId
from tailrace.model.ports import Background
from tailrace.replica.partition import OnBug, Partition
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse

_log = events.logger("cuts")

AskLeave = Callable[[AllowTruncationRequest], Awaitable[AllowTruncationResponse]]


class CuttingBroker(Protocol):
    node_id: NodeId
    broker_epoch: int
    config: BrokerConfig
    on_bug: OnBug


class Cuts:
    """`ask` reaches the controller; without it nobody has to be asked."""

    def __init__(self, broker: CuttingBroker, background: Background, ask: AskLeave | None) -> None:
        self.broker = broker
        self.background = background
        self._ask = ask
        # The leader epoch in which a partition may be cut, and from which offset on. An entry is used once: what is
        # confirmed after that cut was not asked about.
        self._allowed: dict[Partition, tuple[int, int]] = {}
        self._refused_epochs: dict[Partition, int] = {}  # Leader epochs of which that was logged.
        self._asking: dict[Partition, asyncio.Task[None]] = {}  # At most one for each partition that is followed.

    def check(self, partition: Partition, offset: int) -> None:
        """Returns if the log may be cut at `offset` now. Else it raises KafkaError and sees to it: later it may."""
        if offset >= partition.high_watermark:
            return
        epoch, allowed_offset = self._allowed.get(partition, (-1, 0))
        if epoch == partition.leader_epoch and allowed_offset <= offset:
            del self._allowed[partition]
            return
        if partition not in self._asking:
            task = asyncio.get_running_loop().create_task(self._prepare(partition, offset), name="cut")
            self._asking[partition] = task
            task.add_done_callback(lambda _task: self._asking.pop(partition, None))
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader {partition.leader_id} lacks what was confirmed from offset {offset} to {partition.high_watermark}",
        )

    def forget(self, partition: Partition) -> None:
        """It is not followed any more."""
        self._allowed.pop(partition, None)
        self._refused_epochs.pop(partition, None)

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    async def _prepare(self, partition: Partition, offset: int) -> None:
        epoch, high_watermark, name = partition.leader_epoch, partition.high_watermark, partition.topic_partition
        facts: dict[str, Any] = {
            "partition": name,
            "leader": partition.leader_id,
            "offset": offset,
            "high_watermark": high_watermark,
        }
        try:
            if not await self._has_leave(partition):
                if self._refused_epochs.get(partition) != epoch:
                    self._refused_epochs[partition] = epoch
                    _log.warning("the leader lacks confirmed records: another one has to be elected", **facts)
                return
            max_bytes = self.broker.config.replica_cut_retention_bytes
            log = partition.log
            work = begin_keeping(log.files.disk, log, offset, high_watermark, leader_epoch=epoch, max_bytes=max_bytes)
            path = await self.background.run(work)
        except KafkaError as error:
            _log.warning("nothing is cut before a controller has given leave", cause=error.message, **facts)
        except (OSError, StorageError) as error:
            _log.warning("nothing is cut before it can be kept", cause=error, **facts)
        except Exception as error:
            # A bug of ours: the next try begins anew.
            _log.error("a cut failed", trace=True, **facts)
            self.broker.on_bug(error, partition)
        else:
            _log.warning("cutting off confirmed records that the leader does not have", kept=path, **facts)
            self._allowed[partition] = epoch, offset
            if partition.wake_fetcher is not None:
                partition.wake_fetcher()

    async def _has_leave(self, partition: Partition) -> bool:
        if partition.leader_recovery_state == RECOVERING or self._ask is None:
            return True
        request = AllowTruncationRequest(
            broker_id=self.broker.node_id,
            broker_epoch=self.broker.broker_epoch,
            topic_id=partition.topic_id,
            partition_index=partition.topic_partition.partition,
            leader_epoch=partition.leader_epoch,
        )
        try:
            response = await self._ask(request)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return True
            raise
        if response.error_code not in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            raise KafkaError(ErrorCode(response.error_code), f"it says {ErrorCode(response.error_code).name}")
        return response.error_code == ErrorCode.NONE
