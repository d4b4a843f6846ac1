"""Quotas of clients in a run: a reader that takes all it can get, and somebody who changes what it may.

reader     asks again as soon as it is answered. Told of a throttle, it must not be answered on that connection before
           the time is over, whatever happens to the quotas meanwhile
operator   sets and removes the reader's quota, by any broker. What was confirmed is in the metadata at the end
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.client.metadata import Cluster
from tailrace.client.security.quotas import QuotaAdmin
from tailrace.controller.image import MetadataImage
from tailrace.model.errors import KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.quotas import CLIENT_ID, CONSUMER_BYTE_RATE, quota_entity
from tailrace.sim.checks.history import demand
from tailrace.sim.clients.workload import Clients
from tailrace.sim.cluster import World
from tailrace.wire.apis.data import FetchRequest, FetchResponse

_READER = "greedy"
# So that a throttle is over before the reader's patience is.
QUOTA_SETTINGS = {"quota.window.num": "3"}
_ENTITY = quota_entity([(CLIENT_ID, _READER)])
_PAUSE_SECONDS = 2.0
_RETRY_SECONDS = 0.2
# A broker's clock may be as much faster.
_CLOCK_ERROR = 0.05


class Quotas:
    def __init__(self, world: World, clients: Clients, *, is_there: bool) -> None:
        """Where there are none nothing happens, and nothing is drawn from the world's chance."""
        self._clients = clients
        self._is_there = is_there
        self._random = world.random.fork() if is_there else world.random
        self._confirmed: float | None = None
        self._is_known = True  # Nothing is under way, and nothing failed since the last confirmation.
        self.throttled_count = 0
        self.kept_count = 0  # Throttles of which the end was seen.

    def start(self, partitions: Sequence[TopicPartition]) -> None:
        if self._is_there:
            self._clients.start(_READER, lambda cluster: self._read(cluster, partitions))
            self._clients.start("quotas", self._operate)

    async def _operate(self, cluster: Cluster) -> None:
        admin = QuotaAdmin(cluster)
        while not self._clients.is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _PAUSE_SECONDS))
            rate = None if self._random.random() < 0.2 else float(500 + self._random.randrange(4000))
            self._is_known = False
            try:
                await admin.alter(_ENTITY, {CONSUMER_BYTE_RATE: rate})
            except KafkaError:
                continue
            self._confirmed, self._is_known = rate, True
        cluster.close()

    async def _read(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        """Always from the start: what it reads is of no interest."""
        loop = asyncio.get_running_loop()
        muted: object = None  # The connection that is, and until when.
        until = 0.0
        while not self._clients.is_stopping:
            began = loop.time()
            try:
                leader = await cluster.leader_of(self._random.choice(partitions))
                connection = await cluster.connection_to(leader.leader_id)
                answer = await connection.call(_fetch(partitions), FetchResponse, version_max=12)
            except KafkaError:
                await asyncio.sleep(_RETRY_SECONDS)
                await self._refresh(cluster, partitions)
                continue
            if connection is muted:
                demand(loop.time() >= until, "a throttled connection is not read", until=until, now=loop.time())
                self.kept_count += 1
            muted = None
            if answer.throttle_time_ms:
                muted, until = connection, began + answer.throttle_time_ms / 1000 * (1 - _CLOCK_ERROR)
                self.throttled_count += 1
            await asyncio.sleep(0.01)
        cluster.close()

    async def _refresh(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        try:
            await cluster.refresh(sorted({each.topic for each in partitions}))
        except KafkaError:
            return

    def check(self, image: MetadataImage | None) -> None:
        """What was confirmed is there."""
        if self._is_known and self._is_there and image is not None:
            found = image.client_quotas.get(_ENTITY, {}).get(CONSUMER_BYTE_RATE)
            demand(found == self._confirmed, "a confirmed quota is there", found=found, confirmed=self._confirmed)

    def story(self) -> str:
        return f", {self.throttled_count} throttles, {self.kept_count} kept" if self._is_there else ""


def _fetch(partitions: Sequence[TopicPartition]) -> FetchRequest:
    """From whichever of them the broker leads."""
    topics: dict[str, list[FetchRequest.FetchPartition]] = {}
    for each in partitions:
        asked = FetchRequest.FetchPartition(partition=each.partition, fetch_offset=0, partition_max_bytes=1500)
        topics.setdefault(each.topic, []).append(asked)
    return FetchRequest(
        max_wait_ms=50,
        min_bytes=1,
        max_bytes=3000,
        topics=[FetchRequest.FetchTopic(topic=name, partitions=asked) for name, asked in topics.items()],
    )
