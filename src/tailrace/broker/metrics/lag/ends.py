"""Where the logs that this broker leads ended when: what is asked of it by coordinators. No log is read for it."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING

from tailrace.model.metrics.lag import EndRing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.model.ports import Clock
    from tailrace.replica.manager import ReplicaManager
    from tailrace.replica.partition import Partition

# Partitions that are looked at before others have a turn: a fifth of a millisecond.
_PER_TURN = 256
_UNKNOWN_MS = -1


class Ends:
    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        # By topic and partition: those that were led here when it was last looked.
        self._rings: dict[tuple[str, int], tuple[int, EndRing]] = {}
        self._last_look_ms = clock.monotonic_ms()

    async def look(self) -> None:
        now_ms, last_ms = self._clock.monotonic_ms(), self._last_look_ms
        rings: dict[tuple[str, int], tuple[int, EndRing]] = {}
        for number, (key, partition) in enumerate(list(self._replicas.partitions.items())):
            if number % _PER_TURN == _PER_TURN - 1:
                await sleep(0)
            if not partition.is_leader:
                continue
            # Of another epoch the ends may have been others.
            epoch, ring = self._rings.get(key, (-1, None))
            if ring is None or epoch != partition.leader_epoch:
                ring = EndRing(now_ms, partition.high_watermark)
            else:
                ring.note(now_ms, partition.high_watermark, last_look_ms=last_ms)
            rings[key] = partition.leader_epoch, ring
        self._rings, self._last_look_ms = rings, now_ms

    def ages_ms(self, partition: Partition, offsets: Sequence[int]) -> list[int]:
        """How old the records at these offsets are; -1 where that is not known."""
        topic_partition = partition.topic_partition
        epoch, ring = self._rings.get((topic_partition.topic, topic_partition.partition), (-1, None))
        if ring is None or epoch != partition.leader_epoch:
            return [_UNKNOWN_MS] * len(offsets)
        now_ms, end = self._clock.monotonic_ms(), partition.high_watermark
        return [int(ring.age_ms(offset, now_ms, end)) for offset in offsets]
