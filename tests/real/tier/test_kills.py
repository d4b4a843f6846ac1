"""kill -9 of leaders during uploads, again and again: no gap, nothing twice, nothing left in the store."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tailrace.model.ids import Uuid
from tailrace.real.objects.bucket import open_bucket
from tailrace.testing import Cluster
from tailrace.tier.format.names import SegmentName, parse_name
from tests.real.tier.topics import DEADLINE_S, QUICK, create, read, value_of, wait
from tests.stores import Way, moto, options, settings

pytestmark = pytest.mark.long

# A hundred in all; a machine that is starved takes minutes for each round.
ROUNDS, KILLS = 4, 25
URL = "s3://tier/cluster"
SOON = QUICK | {
    "remote.log.storage.timeout.ms": "2000",
    "remote.log.storage.upload.timeout.ms": "3000",
    "remote.log.deletion.delay.ms": "8000",
    "remote.log.sweep.interval.ms": "5000",
    "broker.session.timeout.ms": "3000",
}


class Filler(threading.Thread):
    """One idempotent producer, that goes on until it is told to end."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.failed: list[str] = []
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "batch.size": 20_000,
            }
        )

    def run(self) -> None:
        while not self._is_over.is_set():
            self._producer.produce("t", value_of(self.count), partition=0, on_delivery=self._note)
            self.count += 1
            self._producer.poll(0.002)

    def end(self) -> None:
        self._is_over.set()
        self.join(DEADLINE_S)
        assert self._producer.flush(DEADLINE_S) == 0
        assert not self.failed, self.failed[:3]

    def _note(self, error, _message) -> None:
        if error is not None:
            self.failed.append(str(error))


def leader_of(bootstrap: str) -> int:
    partition = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=30).topics["t"].partitions[0]
    return partition.leader


@pytest.mark.parametrize("number", range(ROUNDS))
def test_leaders_killed_during_uploads(number: int) -> None:
    chance = random.Random(number)
    with moto() as address, Way(address) as way, Cluster(SOON | settings(way.address, URL)) as cluster:
        create(cluster.bootstrap)
        filler = Filler(cluster.bootstrap)
        filler.start()
        amid = 0
        for _ in range(KILLS):
            way.delay_s = chance.choice((0.0, 0.05, 0.3))
            way.error_share = chance.choice((0.0, 0.0, 0.3))
            way.cut_share = chance.choice((0.0, 0.2))
            wait(lambda: leader_of(cluster.bootstrap) >= 0, "somebody leads")
            leader = leader_of(cluster.bootstrap)
            deadline = time.monotonic() + 5
            while not way.uploads and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(chance.random() * chance.choice((0.01, 0.4)))
            amid += way.uploads > 0
            cluster.kill(leader)
            cluster.start(leader)
        way.heal()
        filler.end()
        assert amid > KILLS // 10, "some of them were amid an upload"
        assert read(cluster.bootstrap, filler.count) == list(range(filler.count))
        wait(lambda: asyncio.run(unnamed(address)) == (set(), set()), "what is named is there, and nothing else")
        verify(address)


async def unnamed(address: str) -> tuple[set[Uuid], set[Uuid]]:
    """Segments in the store that no manifest names, and those that one names and that are not there."""
    opened = await open_bucket(URL, options(address))
    try:
        bucket = opened.bucket
        named = {each.segment_id for manifest in await bucket.manifests() for each in manifest.segments}
        cluster_id = bucket.marker.cluster_id
        names = [parse_name(cluster_id, each.name) for each in await bucket.store.list(cluster_id)]
        there = {name.segment_id for name in names if isinstance(name, SegmentName)}
        return there - named, named - there
    finally:
        opened.close()


def verify(address: str) -> None:
    words = [word for name, value in options(address).items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "tier", "verify", "--json", *words, URL],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["segments"] > 0
    assert told["problems"] == 0
