"""How much a micro-batch takes: pure, but for the time of its last one."""

from __future__ import annotations

from tailrace.model.ids import TopicPartition
from tailrace.spark.source.offsets import Offsets


def limit_end(start: Offsets, latest: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Divides what may be read among the partitions in proportion to what they have, at least one record each.
    `start` has every partition of `latest`."""
    sizes = {partition: end - start[partition] for partition, end in latest.items() if end > start[partition]}
    total = sum(sizes.values())
    limited = dict(latest)
    for partition, size in sizes.items():
        share = max(1, offsets_max * size // total)
        limited[partition] = start[partition] + min(size, share)
    return limited


def limit_to(until: Offsets, start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Goes no further than `until`, and nowhere in partitions that it does not name."""
    limited = {}
    for partition, end in latest.items():
        if partition in until:
            limited[partition] = min(end, max(until[partition], start.get(partition, 0)))
        elif partition in start:
            limited[partition] = start[partition]
    return limited


class TriggerDelay:
    """minOffsetsPerTrigger: a batch waits until there is enough for it, but not longer than maxTriggerDelay after the
    one before. The first does not wait."""

    def __init__(self, *, offsets_min: int, delay_ms_max: int) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._last_ms: float | None = None

    def must_wait(self, start: Offsets, latest: Offsets, *, now_ms: float) -> bool:
        available = sum(max(0, end - start[partition]) for partition, end in latest.items())
        is_early = self._last_ms is not None and now_ms - self._last_ms < self._delay_ms_max
        if is_early and available < self._offsets_min:
            return True
        self._last_ms = now_ms
        return False
