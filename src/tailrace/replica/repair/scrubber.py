"""Reads segments again, to find what the device has changed: slowly, one after the other.

    round      all segments of all partitions, but closed ones that are not synced yet. It begins log.scrub.interval.ms
               after the one before did, or when that has ended. The first one begins at another partition after each
               start, so that a broker which is often restarted comes to all of them
    pace       log.scrub.max.bytes.per.second, and a hundredth of a processor: after each step a rest of 99 times what
               it has cost. The cost is counted, not measured: a busy broker is not taken for a slow one
    suspects   what readers or the cleaner have met trouble with (`KnownDamage`) is looked at within a second, and not
               again for a while: a few megabytes first, if they know where, and the whole segment if those are bad

Damage that two checks in a row have found is noted in the log (readers get CORRUPT_MESSAGE from then on), logged with
file and offsets, and given to `repairs`. Nothing here is needed for a correct answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.log.compaction.cleaner import drive
from tailrace.log.files.damaged import DamagedError, DamagedRange
from tailrace.log.files.segment import LOG_SUFFIX, Segment
from tailrace.log.log import Log
from tailrace.log.scrub.check import Outcome, SegmentCheck
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Ports
from tailrace.replica.manager import ReplicaManager
from tailrace.replica.partition import Partition

if TYPE_CHECKING:
    from tailrace.replica.repair.repairs import Repairs

_log = events.logger("scrub")

# How soon a suspect is looked at, and whether the next round is due.
_LOOK_SECONDS = 1.0
# A suspect's segment may be read so much faster than the others, since somebody waits for it.
_HASTE = 10
# The same partition is not suspected again for so long: what looks odd to readers may be their own.
_SUSPECT_REST_MS = 30_000
# It takes one part in a hundred of one processor's time.
_REST_PER_STEP = 99


class Scrubber:
    def __init__(self, replicas: ReplicaManager, ports: Ports, repairs: Repairs) -> None:
        self.found_count = 0  # Damaged ranges, since the start.
        self.checked_bytes = 0
        self._replicas = replicas
        self._clock = ports.clock
        self._disk = ports.disk
        self._background = ports.background
        self._repairs = repairs
        self._round: Iterator[Partition] | None = None
        self._rounds_count = 0
        self._next_round_ms = 0.0
        self._suspected_ms: dict[TopicPartition, float] = {}  # One entry a partition that was suspected lately.

    async def run(self) -> None:
        """Never returns."""
        self._next_round_ms = self._clock.monotonic_ms()
        while True:
            try:
                is_idle = not await self._check_suspect() and not await self._check_next()
            except Exception as error:
                _log.error("a round of the scrub failed", trace=True)
                self._replicas.on_bug(error, None)
                is_idle = True
            await asyncio.sleep(_LOOK_SECONDS if is_idle else 0)

    # Which partition

    async def _check_suspect(self) -> bool:
        """Whether there was one."""
        now_ms = self._clock.monotonic_ms()
        for topic_partition, suspect in list(self._replicas.suspects.items()):
            del self._replicas.suspects[topic_partition]
            partition = self._replicas.partitions.get(topic_partition)
            if partition is None or now_ms < self._suspected_ms.get(topic_partition, 0.0):
                continue
            self._suspected_ms = {key: due_ms for key, due_ms in self._suspected_ms.items() if due_ms > now_ms}
            self._suspected_ms[topic_partition] = now_ms + _SUSPECT_REST_MS
            segments = [each for each in partition.log.segments if each.base_offset <= suspect.offset]
            for segment in segments[-1:]:
                if suspect.is_whole_segment or await self._is_bad(partition, segment, suspect.offset):
                    await self.check(partition, segment, haste=_HASTE)
            return True
        return False

    async def _check_next(self) -> bool:
        """All of the next partition of the round; False if no round is due."""
        now_ms = self._clock.monotonic_ms()
        config = self._replicas.config
        if config.log_scrub_max_bytes_per_second <= 0:
            return False
        if self._round is None:
            if now_ms < self._next_round_ms:
                return False
            self._next_round_ms = now_ms + config.log_scrub_interval_ms
            self._round = iter(self._begin_round())
        partition = next(self._round, None)
        if partition is None:
            self._round = None
            self._rounds_count += 1
            return False
        log = partition.log
        for segment in list(log.segments):
            if self._replicas.suspects:
                await self._check_suspect()
            await self.check(partition, segment)
        return True

    def _begin_round(self) -> list[Partition]:
        partitions = list(self._replicas.partitions.values())
        start = self._clock.wall_ms() % len(partitions) if partitions and self._rounds_count == 0 else 0
        return partitions[start:] + partitions[:start]

    # One segment

    async def check(self, partition: Partition, segment: Segment, *, haste: int = 1) -> None:
        outcome = await self._look_at(partition, segment, haste=haste)
        if outcome is not None and set(outcome.damage) - set(segment.damaged_ranges):
            # Once more: a log that was cut and written anew beside the check looks damaged too.
            again = await self._look_at(partition, segment, haste=_HASTE)
            is_same = again is not None and again.damage and again.damage[0].position == outcome.damage[0].position
            outcome = again if is_same else None
        if outcome is not None and self._is_here(partition, partition.log, segment):
            await self._settle(partition, segment, outcome)

    async def _is_bad(self, partition: Partition, segment: Segment, offset: int) -> bool:
        try:
            probed = await self._look_at(partition, segment, haste=_HASTE, probed_offset=offset)
        except DamagedError:
            return True
        return probed is not None and bool(probed.damage)

    async def _look_at(
        self, partition: Partition, segment: Segment, *, haste: int, probed_offset: int | None = None
    ) -> Outcome | None:
        """None if it is not there any more, or could not be read. DamagedError if a probe does not find its place."""
        log = partition.log
        if segment not in log.segments or log.is_offline or log.is_mended:
            return None
        following = next((each for each in log.segments if each.base_offset > segment.base_offset), None)
        end_offset = log.log_end_offset if following is None else following.base_offset
        if end_offset <= log.log_start_offset:
            return None  # It is about to be deleted.
        if following is not None and end_offset > log.recovery_point and self._has_file(segment):
            return None  # It is not synced yet, and recovery would look at it. One that is lost will never be synced.
        is_compacted = "compact" in log.config.cleanup_policy
        is_lost = segment.size_bytes == 0 and bool(segment.damaged_ranges)  # As the start has found it.
        check = SegmentCheck(
            self._disk,
            segment,
            end_offset=end_offset,
            is_closed=following is not None,
            is_gapless=is_lost or (not is_compacted and segment.base_offset >= log.gapless_from),
            leader_epoch_at=log.epochs.epoch_for,
            is_present=lambda: self._is_here(partition, log, segment),
            probed_offset=probed_offset,
        )
        pace = _Pace(self._replicas, check, haste)
        try:
            return await drive(check.steps(), self._background, pace.wait_turn)
        except DamagedError:
            raise
        except FileNotFoundError:
            return _lost(segment, end_offset) if self._is_here(partition, log, segment) else None
        except AssertionError as error:
            self._replicas.on_bug(error, partition)
            return None
        except (OSError, StorageError) as error:
            _log.warning("a segment could not be checked", partition=log.topic_partition, cause=error)
            if isinstance(error, OSError) and log.files.on_disk_error is not None:
                log.files.on_disk_error(error)
            return None

    def _has_file(self, segment: Segment) -> bool:
        try:
            self._disk.size(segment.path(LOG_SUFFIX))
        except FileNotFoundError:
            return False
        return True

    def _is_here(self, partition: Partition, log: Log, segment: Segment) -> bool:
        """Whether its path is still its own. Once the log was deleted or moved, a new topic may have it."""
        is_log = self._replicas.partitions.get(log.topic_partition) is partition and partition.log is log
        return is_log and segment in log.segments

    async def _settle(self, partition: Partition, segment: Segment, outcome: Outcome) -> None:
        log = partition.log
        self.checked_bytes += outcome.size_bytes
        known = set(segment.damaged_ranges)
        log.note_damaged_ranges(segment, outcome.damage)
        for each in outcome.damage:
            if each in known:
                continue
            self.found_count += 1
            _log.error(
                "records are damaged on the disk: readers get CORRUPT_MESSAGE until they are repaired",
                partition=log.topic_partition,
                file=each.file,
                position=each.position,
                bytes=each.end_position - each.position,
                first_offset=each.start_offset,
                last_offset=each.end_offset - 1,
                cause=each.cause,
            )
        if log.damaged_ranges:
            self._repairs.submit(partition)
        elif outcome.index_problem:
            await self._repairs.renew_indexes(partition, segment.base_offset, outcome.index_problem)


def _lost(segment: Segment, end_offset: int) -> Outcome:
    """Its file is gone. As long as somebody holds it, it can be copied, as if only its indexes were wrong."""
    cause = "its file is gone"
    if segment.is_open:
        return Outcome((), cause, 0)
    path = segment.path(LOG_SUFFIX)
    return Outcome((DamagedRange(path, 0, segment.size_bytes, segment.base_offset, end_offset, cause),), "", 0)


class _Pace:
    """Lets the loop turn between the steps of a check, and rests as long as it must."""

    def __init__(self, replicas: ReplicaManager, check: SegmentCheck, haste: int) -> None:
        self._replicas = replicas
        self._check = check
        self._haste = haste
        self._paid_bytes = 0
        self._paid_us = 0

    async def wait_turn(self) -> None:
        new_bytes, new_us = self._check.read_bytes - self._paid_bytes, self._check.cost_us - self._paid_us
        self._paid_bytes += new_bytes
        self._paid_us += new_us
        rate = self._replicas.config.log_scrub_max_bytes_per_second or 1 << 20
        await asyncio.sleep(max(new_bytes / rate, new_us * _REST_PER_STEP / 1e6) / self._haste)
