"""What the nodes tell by /metrics, as the balancer needs it: rates of partitions, busy loops, clients that wait.

    rates     bytes in and out of each partition, and the time that a broker's loop spends in requests, between two
              looks at the counters
    watch     the 99th percentile of Produce, against what it was before anything moved

`ask` gives the texts of the nodes that answer. Series that nobody knows are passed over: a Kafka without /metrics is
balanced by sizes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.balance.run.look import Rates
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Clock

Ask = Callable[[], Awaitable[Sequence[str]]]

_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([-+0-9.eE]+|NaN)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_NODE = "tailrace_build_info"
_IN, _OUT = "tailrace_partition_bytes_in_total", "tailrace_partition_bytes_out_total"
_LOCAL = "kafka_network_requestmetrics_localtimems_sum"
_TOTAL = "kafka_network_requestmetrics_totaltimems"
_WANTED = (_NODE, _IN, _OUT, _LOCAL, _TOTAL)
# Clients wait too long if it is this much longer than before, and not short all the same.
_SLOWER = 1.5
_SHORT_MS = 10.0


class Reading(NamedTuple):
    """Of one node, at one moment."""

    node_id: int
    bytes_in: Mapping[TopicPartition, float]
    bytes_out: Mapping[TopicPartition, float]
    busy_ms: float
    p99_ms: float


def parse_reading(text: str) -> Reading | None:
    """None if it does not come from a node of ours."""
    node_id, busy_ms, p99_ms = None, 0.0, 0.0
    counts: dict[str, dict[TopicPartition, float]] = {_IN: {}, _OUT: {}}
    for line in text.splitlines():
        if not line.startswith(_WANTED):
            continue
        found = _LINE.match(line)
        if found is None:
            continue
        name, value = found[1], float(found[3])
        labels = dict(_LABEL.findall(found[2] or ""))
        if name == _NODE:
            node_id = int(labels["node"])
        elif name == _LOCAL:
            busy_ms += value
        elif name == _TOTAL and labels.get("request") == "Produce" and labels.get("quantile") == "0.99":
            p99_ms = value if value == value else 0.0  # noqa: PLR0124 - not a number while there was no Produce.
        elif name in counts:
            counts[name][TopicPartition(labels["topic"], PartitionIndex(int(labels["partition"])))] = value
    return None if node_id is None else Reading(node_id, counts[_IN], counts[_OUT], busy_ms, p99_ms)


def decide_rates(before: Sequence[Reading], after: Sequence[Reading], seconds: float) -> Rates:
    """Of the nodes that were seen twice; a counter that fell has begun anew."""
    old = {reading.node_id: reading for reading in before}
    bytes_in: dict[TopicPartition, float] = {}
    bytes_out: dict[TopicPartition, float] = {}
    loops = {}
    for reading in after:
        was = old.get(reading.node_id)
        if was is None:
            continue
        for sums, counts, first in (
            (bytes_in, reading.bytes_in, was.bytes_in),
            (bytes_out, reading.bytes_out, was.bytes_out),
        ):
            for partition, count in counts.items():
                sums[partition] = sums.get(partition, 0.0) + max(0.0, count - first.get(partition, 0.0)) / seconds
        loops[reading.node_id] = max(0.0, reading.busy_ms - was.busy_ms) / 1000 / seconds
    return Rates(bytes_in, bytes_out, loops)


def decide_complaint(before: Sequence[Reading], now: Sequence[Reading], limit_ms: float | None) -> str | None:
    usual = {reading.node_id: reading.p99_ms for reading in before}
    for reading in now:
        bound = limit_ms or max(_SHORT_MS, _SLOWER * usual.get(reading.node_id, 0.0))
        if reading.p99_ms > bound:
            return (
                f"producers wait {reading.p99_ms:.0f} ms for broker {reading.node_id} (99th percentile; bound "
                f"{bound:.0f} ms)"
            )
    return None


class Metrics:
    def __init__(self, ask: Ask, clock: Clock, *, sample_s: float, p99_max_ms: float | None) -> None:
        self._ask = ask
        self._clock = clock
        self._sample_s = sample_s
        self._p99_max_ms = p99_max_ms
        self._usual: list[Reading] | None = None

    async def measure(self) -> Rates:
        before, began_ms = await self._read(), self._clock.monotonic_ms()
        if not before:
            return Rates()
        if self._usual is None:
            self._usual = before
        await asyncio.sleep(self._sample_s)
        seconds = (self._clock.monotonic_ms() - began_ms) / 1000
        return decide_rates(before, await self._read(), max(seconds, 1e-3))

    async def watch(self) -> str | None:
        return decide_complaint(self._usual or (), await self._read(), self._p99_max_ms)

    async def _read(self) -> list[Reading]:
        readings = (parse_reading(text) for text in await self._ask())
        return [reading for reading in readings if reading is not None]
