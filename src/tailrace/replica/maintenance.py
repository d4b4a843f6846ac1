"""The work behind the requests, each kind in a task of its own:

    flushing      logs whose flush.ms is over, and closed segments, are synced
    in-sync sets  followers that lag for too long are to leave them
    checkpoints   recovery points, log start offsets and high watermarks are saved
    retention     expired segments are deleted
    missing       logs that could not be opened are tried again
    removal       files of deleted logs and segments are removed once their delay is over
    compaction    the dirtiest log is compacted, in steps that let the loop turn (log.compaction), at a bounded rate
    producers     the state of idle producers is forgotten

Nothing here is needed for a correct answer: what is late is done later. Sweeps over many logs let the loop turn,
syncs and removals run in the background. A task that fails is logged and goes on with its next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

from tailrace.log.compaction.cleaner import Cleaner, drive
from tailrace.log.compaction.run import CompactionAborted, Limits
from tailrace.log.directory import LogDirectory
from tailrace.log.log import Log
from tailrace.log.retention import expire_segments
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Ports
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.partition import OnBug, Partition

_log = events.logger("maintenance")

# Logs looked at before the loop turns: a few hundred microseconds.
_LOGS_PER_TURN = 64
_REMOVAL_INTERVAL_MS = 1000
# Logs that could not be opened are tried again this often.
_MISSING_INTERVAL_MS = 5000
_IDLE_HANDLES_INTERVAL_MS = 60_000
# flush.ms is looked after this often, or more often where a topic asks for less.
_FLUSH_INTERVAL_MS = 1000
_FLUSH_INTERVAL_MIN_MS = 10
# An interval of 0, which Kafka's bounds allow, must not keep the loop busy.
_INTERVAL_MIN_MS = 10


class Maintenance:
    def __init__(self, replicas: ReplicaManager, ports: Ports) -> None:
        self._replicas = replicas
        self._clock = ports.clock
        self._background = ports.background
        self._cleaners = {
            directory: Cleaner(ports.disk, directory.path, self._cleaner_limits()) for directory in replicas.directories
        }
        for directory, cleaner in self._cleaners.items():
            directory.lower_cleaned_offset = cleaner.lower
        self._tasks: list[asyncio.Task[None]] = []
        self._flush_interval_ms: float = _FLUSH_INTERVAL_MS

    def start(self) -> None:
        config = self._replicas.config
        initial_ms = config.log_initial_task_delay_ms
        self._every(lambda: self._flush_interval_ms, self.flush_due)
        self._every(lambda: config.log_flush_offset_checkpoint_interval_ms, self.checkpoint_recovery_points)
        self._every(lambda: config.log_flush_start_offset_checkpoint_interval_ms, self.checkpoint_log_start_offsets)
        self._every(lambda: config.replica_high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks)
        # As in Kafka twice in the time that a follower may lag: it is found out after at most half as much again.
        self._every(lambda: self._replicas.lag_max_ms / 2, self.shrink_isrs)
        self._every(lambda: config.log_retention_check_interval_ms, self.apply_retention, first_ms=initial_ms)
        self._every(lambda: _REMOVAL_INTERVAL_MS, self.remove_due)
        self._every(lambda: _MISSING_INTERVAL_MS, self.open_missing)
        self._every(lambda: _IDLE_HANDLES_INTERVAL_MS, self.close_idle_handles)
        self._every(lambda: config.producer_id_expiration_check_interval_ms, self.expire_producers)
        self._replicas.before_deletion.append(self._on_deletion)
        if config.log_cleaner_enable:
            self._every(lambda: self._replicas.config.log_cleaner_backoff_ms, self.compact)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def adopt(self, work: Coroutine[None, None, None]) -> None:
        """Another task that ends with these."""
        self._tasks.append(asyncio.create_task(work))

    def _every(
        self, interval_ms: Callable[[], float], work: Callable[[], Awaitable[None]], *, first_ms: float | None = None
    ) -> None:
        repeated = _repeat(interval_ms, work, first_ms, self._replicas.on_bug)
        self._tasks.append(asyncio.create_task(repeated, name=work.__name__))

    async def flush_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        interval_ms: float = _FLUSH_INTERVAL_MS
        async for partition in self._sweep():
            log = partition.log
            interval_ms = min(interval_ms, max(_FLUSH_INTERVAL_MIN_MS, log.config.flush_ms / 2))
            if not log.unflushed_messages or log.is_offline:
                continue
            if now_ms - log.files.last_flush_ms >= log.config.flush_ms or log.files.has_unsynced_closed_segments:
                self._replicas.flusher.request(partition)
        self._flush_interval_ms = interval_ms

    async def checkpoint_recovery_points(self) -> None:
        for directory in self._replicas.directories.online:
            await self._run_on(directory, directory.begin_recovery_point_checkpoint())

    async def checkpoint_log_start_offsets(self) -> None:
        for directory in self._replicas.directories.online:
            await self._run_on(directory, directory.begin_log_start_checkpoint())

    async def checkpoint_high_watermarks(self) -> None:
        for directory in self._replicas.directories.online:
            await self._run_on(directory, self._replicas.begin_high_watermark_checkpoint(directory))

    async def _run_on(self, directory: LogDirectory, work: Callable[[], None]) -> None:
        """A folder that refuses must not keep the others from their turn."""
        try:
            await self._background.run(work)
        except OSError as error:
            directory.judge(error)
            _log.warning("a data folder could not be tended", folder=directory.path, cause=error)

    async def shrink_isrs(self) -> None:
        async for partition in self._sweep():
            partition.shrink_isr()

    async def apply_retention(self) -> None:
        """The log starts are stored before segments go: a start would take missing ones behind an earlier log start for
        lost (`log.retention`). On a full disk they cannot be: the names of the deleted files tell it until they are
        (`log.files.segments.remove_deleted`)."""
        expired: list[Partition] = []
        async for partition in self._sweep():
            try:
                log, now_ms = partition.log, self._clock.wall_ms()
                if log.is_offline:
                    continue
                high_watermark, tier = partition.high_watermark, partition.tier
                if (
                    expire_segments(log, now_ms=now_ms, high_watermark=high_watermark)
                    if tier is None
                    else tier.expire_local(now_ms=now_ms, high_watermark=high_watermark)
                ):
                    expired.append(partition)
            except StorageError as error:
                _log.error("retention failed", partition=partition.topic_partition, cause=error)
        if expired:
            await self.checkpoint_log_start_offsets()
        for partition in expired:
            if self._replicas.partitions.get(partition.topic_partition) is not partition or partition.log.is_offline:
                continue
            try:
                partition.log.delete_expired_segments()
                self._replicas.flusher.note_deleted(partition, partition.log.size_bytes)
            except StorageError as error:
                _log.error("retention failed", partition=partition.topic_partition, cause=error)

    async def remove_due(self) -> None:
        for directory in self._replicas.directories.online:
            work = directory.begin_removal(self._clock.monotonic_ms())
            if work is not None:
                await self._run_on(directory, work)

    async def open_missing(self) -> None:
        self._replicas.open_missing()

    async def close_idle_handles(self) -> None:
        for directory in self._replicas.directories:
            directory.close_idle_handles()

    async def expire_producers(self) -> None:
        async for partition in self._sweep():
            partition.log.producers.expire(self._clock.wall_ms())

    async def compact(self) -> None:
        for directory, cleaner in self._cleaners.items():
            cleaner.limits = self._cleaner_limits()
            pace = _Pace(cleaner, lambda: self._replicas.config.log_cleaner_io_max_bytes_per_second)
            while (steps := cleaner.begin(self._compacted_logs(directory), self._clock.wall_ms())) is not None:
                try:
                    await drive(steps, self._background, pace.wait_turn)
                except (StorageError, CompactionAborted):
                    continue  # The cleaner has logged it and lets that log rest.

    def _compacted_logs(self, directory: LogDirectory) -> list[tuple[Log, int]]:
        partitions = self._replicas.partitions
        return [
            (log, partitions[key].last_stable_offset)
            for key, log in directory.logs.items()
            if key in partitions and "compact" in log.config.cleanup_policy
        ]

    def is_compacting(self, topic_partition: TopicPartition) -> bool:
        return any(cleaner.is_running(topic_partition) for cleaner in self._cleaners.values())

    def _cleaner_limits(self) -> Limits:
        config = self._replicas.config
        return Limits(
            map_bytes=config.log_cleaner_dedupe_buffer_size,
            read_bytes=config.log_cleaner_io_buffer_size,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )

    def _on_deletion(self, topic_partition: TopicPartition) -> None:
        for cleaner in self._cleaners.values():
            cleaner.abort(topic_partition)
            cleaner.forget(topic_partition)

    async def _sweep(self) -> AsyncIterator[Partition]:
        """All partitions; the loop turns now and then, so some may have come or gone meanwhile."""
        for number, partition in enumerate(list(self._replicas.partitions.values())):
            if number % _LOGS_PER_TURN == _LOGS_PER_TURN - 1:
                await asyncio.sleep(0)
            yield partition


class _Pace:
    """Lets the loop turn between the steps of a cleaner, for as long as its reads and writes are ahead of a rate."""

    def __init__(self, cleaner: Cleaner, bytes_per_second: Callable[[], float]) -> None:
        self._cleaner = cleaner
        self._bytes_per_second = bytes_per_second
        self._paid_bytes = cleaner.io_bytes
        self._free_at = 0.0  # On the loop's clock: what was read and written so far is within the rate by then.

    async def wait_turn(self) -> None:
        now = asyncio.get_running_loop().time()
        new_bytes = self._cleaner.io_bytes - self._paid_bytes
        self._paid_bytes += new_bytes
        # Below a byte a second it would never end; Kafka sets no bound.
        self._free_at = max(self._free_at, now) + new_bytes / max(self._bytes_per_second(), 1.0)
        await asyncio.sleep(max(0.0, self._free_at - now))


async def _repeat(
    interval_ms: Callable[[], float], work: Callable[[], Awaitable[None]], first_ms: float | None, on_bug: OnBug
) -> None:
    pause_ms = interval_ms() if first_ms is None else first_ms
    while True:
        await asyncio.sleep(max(pause_ms, _INTERVAL_MIN_MS) / 1000)
        try:
            await work()
        except Exception as error:
            _log.error("a round of maintenance failed", trace=True, work=work.__name__)
            on_bug(error, None)
        pause_ms = interval_ms()
