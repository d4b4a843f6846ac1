"""Which log is compacted next, and where each one's dirty part begins.

Owns cleaner-offset-checkpoint, Kafka's file of the first dirty offset of each log, written after a run has swapped
its last segment: a crash before that makes the next run begin where this one did, which changes nothing but time.

One run at a time. The shell drives it (`drive` below) and calls `abort` before it closes or deletes a log; retention
and truncation may come between two steps, and the run then ends by itself. A log whose run failed rests for a while,
since the next try would meet the same full disk or damaged batch; the log itself stays online.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from tailrace.log.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from tailrace.log.compaction.plan import Cleanable, decide_cleanable, decide_first_dirty_offset
from tailrace.log.compaction.run import (
    CompactableLog,
    Compaction,
    CompactionAborted,
    Limits,
    Outcome,
    Steps,
)
from tailrace.log.files.damaged import DamagedError
from tailrace.model import events
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Background, Disk

FAILED_REST_MS = 60_000

events_log = events.logger("log.compaction")

R = TypeVar("R")


class CleanableLog(CompactableLog, Protocol):
    """What the choice asks of a log beyond what a run does."""

    topic_partition: TopicPartition
    log_start_offset: int
    log_end_offset: int

    @property
    def recovery_point(self) -> int: ...

    @property
    def is_offline(self) -> bool: ...

    is_mended: bool

    def suspect(self, offset: int, *, is_whole_segment: bool = False) -> None: ...

    def give_up(self, error: AssertionError) -> StorageError: ...


class Cleaner:
    def __init__(self, disk: Disk, data_folder: str, limits: Limits) -> None:
        self.limits = limits
        self.io_bytes = 0  # read and written by all its runs
        self._disk = disk
        self._checkpoint = OffsetCheckpoint(disk, data_folder, CLEANER_OFFSETS)
        self._first_dirty_offsets = self._checkpoint.read()
        self._resting_until_ms: dict[TopicPartition, int] = {}
        self._running: tuple[TopicPartition, Steps[Outcome]] | None = None

    def begin(self, logs: Iterable[tuple[CleanableLog, int]], now_ms: int) -> Steps[Outcome] | None:
        """The steps of a run over the dirtiest of the logs, each given with its last stable offset; None if none is
        dirty enough, or while another run is on its way."""
        if self._running is not None:
            return None
        chosen: tuple[CleanableLog, Cleanable] | None = None
        for log, last_stable_offset in logs:
            plan = self._plan(log, last_stable_offset, now_ms)
            if plan is not None and (chosen is None or plan.dirty_ratio > chosen[1].dirty_ratio):
                chosen = log, plan
        if chosen is None:
            return None
        log, plan = chosen
        steps = self._run(log, plan, now_ms)
        self._running = log.topic_partition, steps
        return steps

    def abort(self, topic_partition: TopicPartition) -> None:
        """Ends the run over a log that is about to be closed or deleted. Does nothing for others."""
        if self._running is not None and self._running[0] == topic_partition:
            self._running[1].close()
            self._running = None

    def is_running(self, topic_partition: TopicPartition) -> bool:
        return self._running is not None and self._running[0] == topic_partition

    def forget(self, topic_partition: TopicPartition) -> None:
        """The log was deleted: another one of its name begins dirty."""
        self._first_dirty_offsets.pop(topic_partition, None)
        self._resting_until_ms.pop(topic_partition, None)

    def lower(self, topic_partition: TopicPartition, offset: int) -> None:
        """The log is about to be truncated at `offset`: what is written anew from there on is dirty. Stored at once,
        since a checkpoint above it would call new records clean. OSError."""
        self.abort(topic_partition)
        if self._checkpoint.highest(topic_partition) > offset:
            self._first_dirty_offsets[topic_partition] = offset
            self._checkpoint.begin_write(dict(self._first_dirty_offsets))()

    def _plan(self, log: CleanableLog, last_stable_offset: int, now_ms: int) -> Cleanable | None:
        if log.is_offline or log.is_mended or self._resting_until_ms.get(log.topic_partition, 0) > now_ms:
            return None
        first_dirty_offset = decide_first_dirty_offset(
            self._first_dirty_offsets.get(log.topic_partition),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )
        return decide_cleanable(
            log.segments,
            log.config,
            now_ms=now_ms,
            first_dirty_offset=first_dirty_offset,
            # What is not synced yet would not survive the power loss that its cleaned copy, which is, survives.
            last_stable_offset=min(last_stable_offset, log.recovery_point),
        )

    def _run(self, log: CleanableLog, plan: Cleanable, now_ms: int) -> Steps[Outcome]:
        topic_partition = log.topic_partition
        try:
            compaction = Compaction(self._disk, log, plan, now_ms=now_ms, limits=self.limits, count_io=self._count_io)
            outcome = yield from compaction.steps()
            # A power loss may bring back old files as long as their folder is not synced. A checkpoint that called
            # them clean would leave values in them that a tombstone, itself gone by then, has deleted.
            yield partial(self._disk.sync_folder, log.folder)
            self._first_dirty_offsets[topic_partition] = outcome.first_dirty_offset
            yield self._checkpoint.begin_write(dict(self._first_dirty_offsets))
        except (OSError, StorageError, AssertionError) as error:
            if isinstance(error, AssertionError):
                log.give_up(error)
            self._resting_until_ms[topic_partition] = now_ms + FAILED_REST_MS
            if isinstance(error, DamagedError):
                log.suspect(error.offset, is_whole_segment=True)
            events_log.warning("a compaction failed", partition=topic_partition, cause=error)
            raise StorageError(f"{topic_partition} was not compacted: {error}") from error
        except CompactionAborted as aborted:
            events_log.info("a compaction was given up", partition=topic_partition, cause=aborted)
            raise
        finally:
            self._running = None
        self._resting_until_ms.pop(topic_partition, None)
        events_log.info("compacted a log", partition=topic_partition, **outcome._asdict())
        return outcome

    def _count_io(self, size_bytes: int) -> None:
        self.io_bytes += size_bytes


async def drive(steps: Steps[R], background: Background, wait_turn: Callable[[], Awaitable[None]]) -> R | None:
    """Runs steps to their end: what they hand out in the background, and a turn of the loop after each. None if they
    were aborted meanwhile."""
    try:
        work = next(steps)
        while True:
            result: object = None
            try:
                if work is not None:
                    result = await background.run(work)
            except (OSError, StorageError, KafkaError, AssertionError) as error:
                if getattr(steps, "gi_frame", None) is None:
                    return None  # Aborted while the work ran: its log was deleted, and the files went with it.
                work = steps.throw(error)
                continue
            await wait_turn()
            work = steps.send(result)
    except StopIteration as end:
        outcome: R | None = end.value
        return outcome
    finally:
        steps.close()
