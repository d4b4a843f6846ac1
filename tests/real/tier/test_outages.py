"""The store fails, and the leader dies in the same moment, while consumers of two kinds read what lies in it alone."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from tailrace.testing import Cluster
from tests.real.tier.test_kills import SOON, URL, Filler, leader_of, unnamed, verify
from tests.real.tier.topics import DEADLINE_S, create, local_start, read, wait
from tests.stores import Way, moto, settings

pytestmark = pytest.mark.long

COUNT = 4000
AWAY_S = 4.0
# Readers are slow, so that what happens happens to them.
PAUSE_S = 0.1


class Reader(threading.Thread):
    """aiokafka, from the first record on; it never jumps."""

    def __init__(self, bootstrap: str, count: int) -> None:
        super().__init__(daemon=True)
        self.numbers: list[int] = []
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._count = count

    def run(self) -> None:
        try:
            asyncio.run(self._read())
        except BaseException as error:
            self.failure = error

    async def _read(self) -> None:
        place = TopicPartition("t", 0)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="none", max_partition_fetch_bytes=100_000
        )
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, 0)
            deadline = time.monotonic() + DEADLINE_S
            while len(self.numbers) < self._count:
                assert time.monotonic() < deadline, f"{len(self.numbers)} of {self._count} records were read"
                for message in (await consumer.getmany(timeout_ms=200, max_records=100)).get(place, []):
                    assert message.offset == len(self.numbers), "no gap, and nothing twice"
                    self.numbers.append(int((message.value or b"")[:8]))
                await asyncio.sleep(PAUSE_S)
        finally:
            await consumer.stop()


@pytest.mark.parametrize("kind", ["away", "failing"])
def test_the_store_fails_as_the_leader_dies(kind: str) -> None:
    with moto() as address, Way(address) as way, Cluster(SOON | settings(way.address, URL)) as cluster:
        create(cluster.bootstrap)
        filler = Filler(cluster.bootstrap)
        filler.start()
        wait(lambda: filler.count > COUNT, "there is enough")
        leader = leader_of(cluster.bootstrap)
        log = Path(cluster.data) / f"broker-{leader}" / "t-0"
        wait(lambda: local_start(log) > COUNT * 3 // 4, "most of it lies in the store alone")
        reader = Reader(cluster.bootstrap, COUNT)
        reader.start()
        wait(lambda: bool(reader.numbers), "it reads")
        if kind == "away":
            way.is_away = True
        else:
            way.error_share, way.cut_share, way.delay_s = 0.6, 0.3, 0.2
        cluster.kill(leader)
        time.sleep(AWAY_S)
        written = filler.count
        cluster.start(leader)
        way.heal()
        assert read(cluster.bootstrap, COUNT) == list(range(COUNT))
        reader.join(DEADLINE_S)
        assert reader.failure is None, repr(reader.failure)
        assert reader.numbers == list(range(COUNT))
        wait(lambda: filler.count > written, "who writes goes on")
        filler.end()
        assert read(cluster.bootstrap, filler.count) == list(range(filler.count))
        wait(lambda: asyncio.run(unnamed(address)) == (set(), set()), "what is named is there, and nothing else")
        verify(address)
