"""Moves logs between the data folders of this broker (AlterReplicaLogDirs, KIP-113) while they are in use.

A copy is made in the other folder (`<topic>-<partition>.<id>-future`). It follows the log as a replica would: it takes
its batches up to the log end, is cut where the log is cut, starts where the log starts. Once it has all, and all that
was synced is synced there too, it takes the log's place within one turn of the loop, and the old files are deleted.

Rules:
  - The controller knows of the new folder before the swap (`assign`, KIP-858): if that folder fails right after it, the
    replica is known to be gone.
  - Both folders have the log between the swap and the deletion of the old files. A start that finds both takes the one
    that the metadata names.
  - A copy that fails is given up and the log stays where it is; the next request, or the next start, begins again.
  - One batch of reads is under way per move, in Background; `replica.alter.log.dirs.io.max.bytes.per.second` bounds the
    rate of all moves together. Moves are at most as many as the broker has logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tailrace.log.directory import LogDirectory
from tailrace.log.log import Log
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Background
from tailrace.replica.directories import LogDirectories
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.partition import Partition

_log = events.logger("future_logs")

# One read: large enough for the device, small beside a broker's memory.
_READ_BYTES = 1 << 20
# Moves that copy at the same time; the others wait. More would only make a disk seek.
_MOVES_AT_ONCE_MAX = 2

Assign = Callable[[TopicPartition, LogDirectory], Awaitable[None]]


class _Move:
    """One log on its way to another folder."""

    def __init__(self, partition: Partition, source: LogDirectory, target: LogDirectory) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.cut_offset: int | None = None  # the lowest at which the log was cut since the copy was last looked at
        self.task: asyncio.Task[None] | None = None


class FutureLogs:
    def __init__(
        self,
        replicas: ReplicaManager,
        directories: LogDirectories,
        *,
        background: Background,
    ) -> None:
        self.assign: Assign | None = None  # tells the controller; None where there is nobody to tell
        self._replicas = replicas
        self._directories = directories
        self._background = background
        self._moves: dict[TopicPartition, _Move] = {}
        self._device = asyncio.Semaphore(_MOVES_AT_ONCE_MAX)
        self._free_at = 0.0  # On the loop's clock: what was copied so far is within the rate by then.
        for directory in directories:
            directory.before_cuts.append(self._on_cut)
        replicas.before_deletion.append(self.cancel)

    def is_moving(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._moves

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Begins to move a log, or ends a move if the log lies there already. Raises KafkaError."""
        target = self._find_target(path)
        partition = self._replicas.find_any(*topic_partition)
        under_way = self._moves.get(topic_partition)
        if under_way is not None:
            if under_way.target is target:
                return
            self.cancel(topic_partition)
        source = self._folder_of(partition)
        if source is None or source.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The folder of {topic_partition} is offline.")
        if source is not target:
            self._begin(partition, source, target)

    def resume(self) -> None:
        """After a start: goes on with the copies of the last run, and removes those that are of no use."""
        for target in self._directories.online:
            for topic_partition in target.partitions_to_come():
                partition = self._replicas.partitions.get(topic_partition)
                source = self._folder_of(partition) if partition is not None else None
                if partition is None or source is None or source is target or topic_partition in self._moves:
                    _delete_future(target, topic_partition)
                else:
                    self._begin(partition, source, target)

    def cancel(self, topic_partition: TopicPartition) -> None:
        """The log is about to be deleted, or moves elsewhere."""
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            if move.task is not None:
                move.task.cancel()
            _delete_future(move.target, topic_partition)

    async def close(self) -> None:
        """Copies are left as they are, for the next start to go on with."""
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        self._moves.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find_target(self, path: str) -> LogDirectory:
        if path in self._directories.unusable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The data folder {path} is offline.")
        target = next((each for each in self._directories if each.path == path), None)
        if target is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's log.dirs.")
        if target.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The data folder {path} is offline.")
        return target

    def _folder_of(self, partition: Partition) -> LogDirectory | None:
        topic_partition = partition.topic_partition
        return next((each for each in self._directories if each.logs.get(topic_partition) is partition.log), None)

    # ---- one move

    def _begin(self, partition: Partition, source: LogDirectory, target: LogDirectory) -> None:
        move = _Move(partition, source, target)
        self._moves[partition.topic_partition] = move
        move.task = asyncio.create_task(self._run(move), name=f"move of {partition.topic_partition}")

    async def _run(self, move: _Move) -> None:
        topic_partition = move.partition.topic_partition
        try:
            async with self._device:
                await self._copy_and_swap(move)
        except (OSError, StorageError, KafkaError) as error:
            _log.error("a log cannot be moved", partition=topic_partition, folder=move.target.path, cause=error)
            if self._moves.get(topic_partition) is move:
                _delete_future(move.target, topic_partition)
        except Exception as error:
            _log.error("a log cannot be moved", trace=True, partition=topic_partition, folder=move.target.path)
            self._replicas.on_bug(error, move.partition)
        finally:
            if self._moves.get(topic_partition) is move:
                del self._moves[topic_partition]

    async def _copy_and_swap(self, move: _Move) -> None:
        partition, target = move.partition, move.target
        topic_partition = partition.topic_partition
        future = target.open_future(topic_partition, partition.log.config, topic_id=partition.topic_id)
        self._align(move, future)
        await self._catch_up(move, future)
        if partition.log.config.remote_storage_enable:
            # It reaches back farther than the batches do. Once the metadata names the new folder, a start takes it from
            # there, and without it nothing of the store could be read.
            future.epochs.restore(partition.log.epochs.entries)
            await self._sync(future)
        if self.assign is not None:
            # Before the swap: a start that finds the log in both folders keeps the one that the metadata names.
            await self.assign(topic_partition, target)
            await self._catch_up(move, future)
        self._swap(move, future)
        # The new name, and where the log starts, must be stored for good before the old files may go: else a power loss
        # could leave the log under the name of a copy, and with no other one beside it.
        await self._sync(future)
        await self._background.run(target.begin_checkpoint())
        del self._moves[topic_partition]
        move.source.delete_log(topic_partition)

    async def _catch_up(self, move: _Move, future: Log) -> None:
        """The first time there is much to copy and to sync; then what came meanwhile, less each time."""
        while not self._is_level(move, future):
            await self._copy(move, future)
            await self._sync(future)

    async def _copy(self, move: _Move, future: Log) -> None:
        log = move.partition.log
        while True:
            self._align(move, future)
            if future.log_end_offset >= log.log_end_offset:
                return
            found = log.read(future.log_end_offset, _READ_BYTES, end_offset=log.log_end_offset)
            if found is None:
                return
            data = await self._background.run(found.read)
            if self._align(move, future):
                try:
                    future.append_as_follower(memoryview(data))
                except KafkaError:
                    log.suspect(future.log_end_offset)
                    raise
                await self._wait_turn(len(data))

    def _align(self, move: _Move, future: Log) -> bool:
        """Cuts the copy where the log was cut, at either end. False if what was read meanwhile is of no use."""
        log = move.partition.log
        if log.is_offline:
            raise StorageError(f"the log of {log.topic_partition} is offline: {log.files.offline_reason}")
        cut_offset, move.cut_offset = move.cut_offset, None
        # After a restart nobody has told of cuts: the epochs do.
        epoch, end_offset = log.epochs.end_offset_for(future.epochs.latest, log.log_end_offset)
        diverged = future.log_end_offset > log.log_end_offset or (
            future.epochs.latest >= 0 and (epoch != future.epochs.latest or end_offset < future.log_end_offset)
        )
        if cut_offset is not None or diverged:
            limits = [future.log_end_offset, log.log_end_offset]
            limits += [cut_offset] if cut_offset is not None else []
            limits += [end_offset] if diverged and end_offset >= 0 else []
            future.truncate(min(limits))
        if future.log_end_offset < log.log_start_offset:
            future.truncate_fully_and_start_at(log.log_start_offset)
            return False
        future.advance_start(log.log_start_offset)
        return cut_offset is None and not diverged

    async def _sync(self, future: Log) -> None:
        work, end_offset = future.begin_sync()
        try:
            await self._background.run(work)
        except (OSError, StorageError) as error:
            future.mark_sync_failed(end_offset, error)
            raise
        future.mark_synced(end_offset)

    def _is_level(self, move: _Move, future: Log) -> bool:
        log = move.partition.log
        return (
            self._align(move, future)
            and future.log_end_offset == log.log_end_offset
            and future.recovery_point >= log.recovery_point
        )

    def _swap(self, move: _Move, future: Log) -> None:
        """Within this turn, so that no append can come between."""
        partition = move.partition
        topic_partition, old = partition.topic_partition, partition.log
        future.adopt_producers(old)
        if old.config.remote_storage_enable:
            future.epochs.restore(old.epochs.entries)
        for entry in old.epochs.entries[-1:]:  # It may have begun without a record.
            future.epochs.assign(entry.epoch, entry.start_offset)
        future.max_decompressed_bytes = old.max_decompressed_bytes
        if future.config is not old.config:
            future.reconfigure(old.config)
        for tell in self._replicas.before_deletion:
            if tell != self.cancel:
                tell(topic_partition)
        move.target.promote_future(topic_partition)
        partition.log = future
        partition.reconfigure()
        _log.info("moved a log", partition=topic_partition, folder=move.target.path)

    async def _wait_turn(self, size_bytes: int) -> None:
        now = asyncio.get_running_loop().time()
        rate = max(self._replicas.config.replica_alter_log_dirs_io_max_bytes_per_second, 1)
        self._free_at = max(self._free_at, now) + size_bytes / rate
        await asyncio.sleep(max(0.0, self._free_at - now))

    def _on_cut(self, log: Log, offset: int) -> None:
        move = self._moves.get(log.topic_partition)
        if move is not None and move.partition.log is log:
            move.cut_offset = offset if move.cut_offset is None else min(move.cut_offset, offset)


def _delete_future(directory: LogDirectory, topic_partition: TopicPartition) -> None:
    try:
        directory.delete_future(topic_partition)
    except StorageError as error:
        _log.error("cannot delete the copy of a log", partition=topic_partition, cause=error)
