"""Runs of one query that are stopped at any request, thought dead, and go on while others write the same batch or later
ones: whoever wakes up when, each row is there once."""

import asyncio
import dataclasses
import random
import uuid

import pytest

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.model.errors import KafkaError
from tailrace.real.ports import real_ports
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError
from tailrace.testing import Broker
from tests.unit.spark.sink.exactly_once.actors import PARTITION_COUNT, SETTINGS, Query, SleepyNetwork, read_committed
from tests.unit.spark.sink.exactly_once.test_protocol import rows_of, values_of

BATCHES = 12
# A run takes about as many requests, from its first task to the end of the commit.
REQUESTS = 110
ATTEMPTS_MAX = 8


class Zombie:
    """A run of a batch that has been stopped, or has ended before it was to be."""

    def __init__(self, bootstrap: str, query: Query, batch: int, sleeps_at: int) -> None:
        self._network = SleepyNetwork(sleeps_at)
        ports = dataclasses.replace(real_ports(), network=self._network)
        self._cluster = Cluster(ports, parse_bootstrap(bootstrap))
        self._run = asyncio.create_task(succeeds(query, self._cluster, batch))

    async def wait_asleep(self) -> None:
        await asyncio.wait({self._run, self._network.fell_asleep}, return_when=asyncio.FIRST_COMPLETED)

    def wake(self) -> None:
        self._network.wake()

    async def wait_end(self) -> None:
        await self._run
        self._cluster.close()


async def succeeds(query: Query, cluster: Cluster, batch: int) -> bool:
    try:
        await query.run_batch(cluster, batch, rows_of(batch))
    except (ExactlyOnceError, KafkaError):
        return False
    return True


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
async def test_whoever_wakes_up_when(seed: int):
    chance = random.Random(seed)
    async with Broker(in_process=True) as broker:
        cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
        topic = f"query-{uuid.uuid4()}"
        await Admin(cluster).create_topic(topic, partition_count=PARTITION_COUNT)
        # Others wait as long for a driver that sleeps in its decision.
        query = Query(topic, topic, "run", SETTINGS._replace(decision_timeout_ms=300))
        zombies: list[Zombie] = []
        asleep: list[Zombie] = []
        for batch in range(BATCHES):
            for number in range(chance.randrange(1, 4)):
                one = query.replaced(run=f"{batch}, zombie {number}")
                zombie = Zombie(broker.bootstrap, one, batch, sleeps_at=chance.randrange(1, REQUESTS))
                zombies.append(zombie)
                asleep.append(zombie)
                await zombie.wait_asleep()
            for attempt in range(ATTEMPTS_MAX):
                run = asyncio.create_task(succeeds(query.replaced(run=f"{batch}, {attempt}"), cluster, batch))
                while asleep and chance.random() < 0.6:
                    await asyncio.sleep(chance.random() * 0.08)
                    asleep.pop(chance.randrange(len(asleep))).wake()
                if await run:
                    break
            else:
                pytest.fail("it never succeeds")
        for zombie in asleep:
            zombie.wake()
        for zombie in zombies:
            await zombie.wait_end()
        # Aborts what they have left open.
        assert await succeeds(query.replaced(run="the last"), cluster, BATCHES)
        assert await read_committed(cluster, topic) == values_of(*range(BATCHES + 1))
        cluster.close()
