"""Cuts __remote_log_metadata: Kafka's grows for ever, and whoever begins to follow it replays all of it.

The leader of a partition of it writes what is known once more (`tier.metadata.restated`), partition by partition, and
then deletes the records before, as DeleteRecords does. So each replica has what it needs in the log itself, and nobody
has to ask another for a snapshot.

Rules
- What is known is written where everything is replayed and committed, with no record between: it is encoded in
  Background, and thrown away if a record has come meanwhile.
- The log is cut only once all of it is committed, by the same leader in the same epoch.
- It begins when the log has remote.log.metadata.restate.records more than what is known, and twice as many: so not more
  is written for it than others have written.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import REMOTE_LOG_METADATA_TOPIC
from tailrace.replica.leading.deletion import delete_records
from tailrace.tier.metadata.restated import restate
from tailrace.wire.record_envelopes import encode_metadata_record
from tailrace.wire.records import Record, build_batch

if TYPE_CHECKING:
    from tailrace.broker.tier.metadata import MetadataPartition
    from tailrace.broker.tier.room import Room
    from tailrace.replica.partition import Partition
    from tailrace.tier.format.names import TieredPartition
    from tailrace.tier.metadata.partition import PartitionTier

_log = events.logger("tier")

# Of one batch: below what a topic takes.
_BATCH_BYTES = 500_000
# So often it is tried to write where no record is between.
_TRIES = 50
_PAUSE_SECONDS = 0.1


class Restater:
    failure = "the records of the tier cannot be cut"

    def __init__(self, tier: Room) -> None:
        self._tier = tier

    @property
    def pause_seconds(self) -> float:
        return self._tier.config.remote_log_manager_task_interval_ms / 1000

    async def round(self) -> None:
        for part in list(self._tier.metadata.parts.values()):
            try:
                if self._is_due(part):
                    await self._restate(part)
            except (KafkaError, StorageError, OSError) as error:
                _log.info("the records of the tier are not cut yet", partition=part.index, cause=error)

    def _is_due(self, part: MetadataPartition) -> bool:
        partition = self._led(part)
        if partition is None or not part.is_ready:
            return False
        known = sum(
            len(tier.visible) + len(tier.copying) + len(tier.deleting) for tier in part.machine.partitions.values()
        )
        there = partition.log.log_end_offset - partition.log.log_start_offset
        return there - known >= max(self._tier.config.remote_log_metadata_restate_records, known)

    def _led(self, part: MetadataPartition) -> Partition | None:
        partition = self._tier.node.replicas.partitions.get((REMOTE_LOG_METADATA_TOPIC, part.index))
        return partition if partition is not None and partition.is_leader else None

    async def _restate(self, part: MetadataPartition) -> None:
        partition = self._led(part)
        assert partition is not None, "it was just led"
        machine, leader_epoch = part.machine, partition.leader_epoch
        await self._wait_quiet(part, partition)
        start_offset = machine.next_offset
        for owner in list(machine.partitions):
            await self._restate_one(part, partition, owner)
            if part.machine is not machine or not partition.is_leader or partition.leader_epoch != leader_epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "somebody else leads it")
        delete_records(partition, start_offset)
        await self._tier.node.replicas.store_log_start_offsets()
        _log.info(
            "the records of the tier were cut",
            partition=part.index,
            log_start=start_offset,
            log_end=partition.log.log_end_offset,
        )

    async def _wait_quiet(self, part: MetadataPartition, partition: Partition) -> None:
        for _ in range(_TRIES):
            if _is_quiet(part, partition):
                return
            await asyncio.sleep(_PAUSE_SECONDS)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "records come all the time")

    async def _restate_one(self, part: MetadataPartition, partition: Partition, owner: TieredPartition) -> None:
        node = self._tier.node
        for _ in range(_TRIES):
            await self._wait_quiet(part, partition)
            known, offset = part.machine.partitions.get(owner), part.machine.next_offset
            if known is None:
                return  # It was deleted meanwhile.
            copy, now_ms = known.copy(), node.ports.clock.wall_ms()
            batches = await node.ports.background.run(
                lambda copy=copy, now_ms=now_ms: _encode(owner, copy, node.node_id, now_ms)  # type: ignore[misc]
            )
            if not _is_quiet(part, partition) or part.machine.next_offset != offset:
                continue
            partition = node.replicas.find_to_write(REMOTE_LOG_METADATA_TOPIC, part.index)
            end_offset = offset
            for batch in batches:  # In one turn: no other record comes between.
                end_offset = partition.append(memoryview(batch), required_acks=-1).next_offset
            self._tier.metadata.wake()
            await self._wait_replayed(part, end_offset)
            return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "records come all the time")

    async def _wait_replayed(self, part: MetadataPartition, offset: int) -> None:
        """It is committed, then: nothing else is replayed."""
        timeout_ms = self._tier.config.rlmm_config_remote_log_metadata_consume_wait_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await part.wait_offset(offset)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "records of the tier were not committed in time") from None


def _is_quiet(part: MetadataPartition, partition: Partition) -> bool:
    return partition.is_leader and (
        part.machine.next_offset == partition.log.log_end_offset == partition.high_watermark
    )


def _encode(owner: TieredPartition, tier: PartitionTier, broker_id: int, now_ms: int) -> list[bytearray]:
    batches: list[bytearray] = []
    records: list[Record] = []
    size_bytes = 0
    for record in restate(owner, tier, broker_id=broker_id, now_ms=now_ms):
        value = encode_metadata_record(record)
        if records and size_bytes + len(value) > _BATCH_BYTES:
            batches.append(bytearray(build_batch(records)))
            records, size_bytes = [], 0
        records.append(Record(len(records), now_ms, None, value, ()))
        size_bytes += len(value)
    return [*batches, bytearray(build_batch(records))]
