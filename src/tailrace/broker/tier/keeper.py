"""What the leader of a partition with remote storage does, again and again: copies, retention over both tiers, orphans.

    each round, of each partition that is led here: copy what is closed and stable, oldest first; begin the deletion of
    what has had its time, and of what nobody can read; delete what was begun long enough ago; now and then, list

Rounds are remote.log.manager.task.interval.ms apart; each partition has a task of its own, one at a time. Nothing is
done before the records of the tier are replayed up to now, past the lease, and before it is known that the store is
this cluster's. A round ends where the lead does: what it has begun then is the next leader's, who finds it in the
records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import StoreError, StoreRefusalError
from tailrace.tier.keeping.decisions import (
    decide_copy,
    decide_remote_expired,
    decide_unreadable,
)
from tailrace.tier.keeping.local import LocalSegmentSource

if TYPE_CHECKING:
    from tailrace.broker.tier.announcing import Announcer
    from tailrace.broker.tier.parts import TieredLog
    from tailrace.broker.tier.room import Room
    from tailrace.tier.metadata.coverage import RemoteSegment
    from tailrace.tier.metadata.machine import TierMachine
    from tailrace.wire.schema import Message

_log = events.logger("tier")

# However far behind the copies are, retention has its turn.
_COPIES_BEFORE_RETENTION = 16


class PartRecords:
    """As `tier.keeping.copying.MetadataLog`, of one partition in one leader epoch."""

    def __init__(self, part: TieredLog, leader_epoch: int) -> None:
        self._part = part
        self._leader_epoch = leader_epoch

    async def append(self, record: Message) -> None:
        partition = self._part.partition
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{partition.topic_partition} is led by another broker")
        await self._part.tier.metadata.append(self._part.owner, record)


class Keeper:
    failure = "rounds of remote storage cannot begin"

    def __init__(self, tier: Room, announcer: Announcer) -> None:
        self._tier = tier
        self._announcer = announcer
        self._busy: dict[TieredLog, asyncio.Task[None]] = {}
        self._swept_ms: dict[TieredLog, float] = {}
        self._refused: dict[TieredLog, str] = {}  # Why the store would not copy or delete, until a round is well again.

    async def close(self) -> None:
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def problem(self) -> str:
        """What an operator should know of; empty if all is well."""
        refused = [
            (part.partition.topic_partition, cause)
            for part, cause in self._refused.items()
            if self._tier.may_keep(part)
        ]
        if not refused:
            return ""
        (name, cause), others = refused[0], f" and of {len(refused) - 1} others" if len(refused) > 1 else ""
        return f"remote storage: the copies of {name}{others} cannot be kept: {cause}"

    def forget(self, part: TieredLog) -> None:
        self._swept_ms.pop(part, None)
        self._refused.pop(part, None)
        if (task := self._busy.get(part)) is not None:
            task.cancel()

    @property
    def pause_seconds(self) -> float:
        return self._tier.config.remote_log_manager_task_interval_ms / 1000

    async def round(self) -> None:
        for number, part in enumerate(list(self._tier.parts.values())):
            if number % 64 == 63:
                await asyncio.sleep(0)
            if part not in self._busy and self._tier.may_keep(part):
                self._begin(part)

    def _begin(self, part: TieredLog) -> None:
        task = asyncio.get_running_loop().create_task(self._keep(part), name=f"tier {part.partition.topic_partition}")
        self._busy[part] = task
        task.add_done_callback(lambda _task: self._busy.pop(part, None))

    async def _keep(self, part: TieredLog) -> None:
        name = part.partition.topic_partition
        try:
            await self._round(part, PartRecords(part, part.partition.leader_epoch), part.partition.leader_epoch)
            self._refused.pop(part, None)
        except StoreError as error:
            self._tier.complain(f"the copies of {name} cannot be kept", error)
            if isinstance(error, StoreRefusalError):
                self._refused[part] = str(error)
        except (KafkaError, StorageError, OSError) as error:
            _log.info("a round of remote storage ended early", partition=name, cause=error)
        except Exception as error:
            _log.error("a round of remote storage failed", trace=True, partition=name)
            self._tier.node.judge_bug(error, part.partition)

    async def _round(self, part: TieredLog, records: PartRecords, leader_epoch: int) -> None:
        await self._tier.catch_up(part)
        uncopied: StoreError | StorageError | OSError | None = None
        copied = 0
        try:
            while part.state.deletion is None and await self._copy_next(part, records, leader_epoch):
                copied += 1
                if copied % _COPIES_BEFORE_RETENTION == 0:
                    await self._expire(part, records, leader_epoch)
        except (StoreError, StorageError, OSError) as error:
            uncopied = error  # A damaged segment, say: what is in the store has its time all the same.
        await self._expire(part, records, leader_epoch)
        tier, remover = part.state, self._tier.remover
        await remover.begin_orphans(
            records,
            part.owner,
            self._machine_of(part),
            under_way=self._tier.copier.under_way,
            leader_epoch=leader_epoch,
        )
        if tier.deleting:
            await self._tier.confirm_ours()
            await remover.finish(records, part.owner, tier, leader_epoch=leader_epoch)
        await self._sweep(part)
        if uncopied is not None:
            raise uncopied

    async def _copy_next(self, part: TieredLog, records: PartRecords, leader_epoch: int) -> bool:
        """Whether there was something to copy, and it was."""
        partition, is_disabled = part.partition, part.config.remote_log_copy_disable
        if is_disabled or not self._tier.may_keep(part) or partition.leader_epoch != leader_epoch:
            return False
        number = decide_copy(part.local_view())
        if number is None:
            return False
        ports, tier = self._tier.node.ports, self._tier
        source = LocalSegmentSource(ports.disk, ports.background, partition.log, number)
        began_ms = ports.clock.monotonic_ms()
        segment = await tier.copier.copy(
            records, partition.topic_partition.topic, part.owner, source, source.epochs, leader_epoch=leader_epoch
        )
        tier.note_copied(segment.size_bytes)
        _log.info(
            "a segment was copied",
            partition=partition.topic_partition,
            start=segment.base_offset,
            end=segment.end_offset,
            bytes=segment.object_bytes,
            took_ms=round(ports.clock.monotonic_ms() - began_ms, 1),
        )
        return True

    async def _expire(self, part: TieredLog, records: PartRecords, leader_epoch: int) -> None:
        part.settle()
        view, config = part.whole_view(), part.config
        expired: list[RemoteSegment] = []
        log_start_offset = part.log_start_offset
        if "delete" in config.cleanup_policy:
            now_ms = self._tier.node.ports.clock.wall_ms()
            expired, log_start_offset = decide_remote_expired(view, config, now_ms=now_ms)
        log = part.partition.log
        lineage = [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
        if lineage and lineage[0][1] <= part.log_start_offset:
            # A history that does not reach back to the log start does not say what is not part of the log.
            expired += decide_unreadable(
                list(view.coverage.unused.values()),
                lineage,
                log_start_offset=part.log_start_offset,
                log_end_offset=log.log_end_offset,
            )
        if expired:
            _log.info(
                "copies have had their time",
                partition=part.partition.topic_partition,
                segments=len(expired),
                log_start=log_start_offset,
            )
            await self._tier.remover.begin(
                records,
                part.owner,
                part.state,
                expired,
                leader_epoch=leader_epoch,
                log_start_offset=log_start_offset,
            )
            part.settle()

    async def _sweep(self, part: TieredLog) -> None:
        now_ms = self._tier.node.ports.clock.monotonic_ms()
        due_ms = self._swept_ms.setdefault(part, now_ms) + self._tier.config.remote_log_sweep_interval_ms
        if now_ms < due_ms:
            return
        await self._tier.confirm_ours()
        self._swept_ms[part] = now_ms
        await self._announcer.remove_old(part)
        lost = await self._tier.remover.sweep(part.owner, self._machine_of(part), lambda: self._tier.catch_up(part))
        if lost:
            _log.info("objects that nothing refers to were deleted", partition=part.partition, count=len(lost))

    def _machine_of(self, part: TieredLog) -> TierMachine:
        found = self._tier.metadata.part_of(part.owner)
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The records of the tier are not followed any more")
        return found.machine
