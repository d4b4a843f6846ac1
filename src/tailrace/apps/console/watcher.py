"""Takes a picture of the cluster every few seconds, feeds the history, and wakes whoever looks.

While the cluster does not answer, the last picture stays and `failure` says why. Pictures are taken by the console's
own credential; what a visitor may see of them is decided by `visitors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tailrace.apps.console.history import History
from tailrace.apps.console.picture import Picture, take_picture
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError

# The name of the whole in the history: no topic is called so.
CLUSTER = ""
# Of a large cluster a picture takes long: then they are made for a fifth of the time.
_PAUSE = 4
# The kinds of series.
RATE = "rate"  # records a second that a topic gets
LAG = "lag"  # records that a group is behind
SIZE = "size"  # bytes of a topic, on all replicas


class Watcher:
    """Its cluster is its own: its questions are large, and a broker answers in order."""

    def __init__(self, cluster: Cluster, *, interval_s: float, groups_max: int, series_max: int) -> None:
        self._cluster = cluster
        self._interval_s = interval_s
        self._groups_max = groups_max
        self.history = History(series_max=series_max)
        self.picture: Picture | None = None
        self.failure: str | None = None
        self._round = 0
        self._is_stopping = False
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Until it is cancelled."""
        clock = self._cluster.ports.clock
        while True:
            began_ms = clock.monotonic_ms()
            await self.look()
            took_s = (clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(self._interval_s, took_s * _PAUSE))

    async def look(self) -> None:
        before = self.picture
        try:
            self.picture = await take_picture(self._cluster, groups_max=self._groups_max)
            self.failure = None
        except KafkaError as error:
            self.failure = error.message or error.code.name
        else:
            self._remember(before, self.picture)
        async with self._changed:
            self._round += 1
            self._changed.notify_all()

    async def rounds(self) -> AsyncIterator[int]:
        """A number each time there is something new, until the console stops."""
        while True:
            async with self._changed:
                seen = self._round
                await self._changed.wait_for(lambda seen=seen: self._round > seen or self._is_stopping)  # type: ignore[misc]
            if self._is_stopping:
                return
            yield self._round

    def close(self) -> None:
        self._cluster.close()

    async def stop(self) -> None:
        self._is_stopping = True
        async with self._changed:
            self._changed.notify_all()

    async def seen(self) -> Picture:
        """The last picture; whoever comes first waits for it. Raises KafkaError if the cluster has not answered."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._round > 0)
        if self.picture is None:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, self.failure or "the cluster does not answer")
        return self.picture

    def now_s(self) -> int:
        return int(self._cluster.ports.clock.wall_ms()) // 1000

    def _remember(self, before: Picture | None, now: Picture) -> None:
        at_s = now.taken_ms // 1000
        add = self.history.add
        elapsed_s = 0.0 if before is None else (now.taken_ms - before.taken_ms) / 1000
        total = 0.0
        for topic, found in now.topics.items():
            add(SIZE, topic, at_s=at_s, value=now.bytes_of(topic))
            # Another id under the same name is another topic: its offsets began anew.
            if before is None or elapsed_s <= 0 or topic not in before.topics or before.topics[topic].id != found.id:
                continue
            grown = sum(
                max(0, now.ends[each] - before.ends[each])
                for each in now.partitions_of(topic)
                if each in now.ends and each in before.ends
            )
            add(RATE, topic, at_s=at_s, value=grown / elapsed_s)
            total += 0 if found.is_internal else grown / elapsed_s
        if elapsed_s > 0:
            add(RATE, CLUSTER, at_s=at_s, value=total)
        add(SIZE, CLUSTER, at_s=at_s, value=sum(map(now.bytes_of, now.topics)))
        for group_id in now.committed:
            lag = now.lag_of(group_id)
            if lag is not None:
                add(LAG, group_id, at_s=at_s, value=lag)
