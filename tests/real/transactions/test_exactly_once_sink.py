"""Brokers are killed, one after the other, while batches are written exactly once."""

import asyncio
import contextlib

import pytest

from tailrace import testing
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.model.errors import KafkaError
from tailrace.real.ports import real_ports
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError
from tests.real.cluster.observe import wait_in_sync
from tests.unit.spark.sink.exactly_once.actors import PARTITION_COUNT, SETTINGS, Query, Rows, read_committed

DEATHS = 4
BATCHES_BETWEEN = 4
ATTEMPTS_MAX = 20
DEADLINE_S = 100


def rows_of(batch: int) -> Rows:
    return [[b"%d-%d" % (batch, number)] for number in range(4)]


@pytest.mark.long
def test_brokers_die_while_batches_are_written():
    with testing.Cluster(testing.LOW_LATENCY) as nodes:
        asyncio.run(asyncio.wait_for(_write_while_brokers_die(nodes), DEADLINE_S * 3))


async def _write_while_brokers_die(nodes: testing.Cluster) -> None:
    cluster = Cluster(real_ports(), parse_bootstrap(nodes.bootstrap))
    await Admin(cluster).create_topic("t", partition_count=PARTITION_COUNT, replication_factor=3)
    query = Query("t", "query", "run", SETTINGS._replace(retry_timeout_ms=60_000, decision_timeout_ms=10_000))
    batch = 0
    for death in range(DEATHS):
        victim = nodes.broker_ids[death % len(nodes.broker_ids)]
        dying = asyncio.create_task(_die_and_come_back(nodes, victim))
        last = batch + BATCHES_BETWEEN
        while batch < last or not dying.done():
            await _run_batch(cluster, query, batch)
            batch += 1
        await dying
    values = await read_committed(cluster, "t")
    assert values == sorted(value for each in range(batch) for rows in rows_of(each) for value in rows)
    cluster.close()


async def _die_and_come_back(nodes: testing.Cluster, broker_id: int) -> None:
    await asyncio.to_thread(nodes.kill, broker_id)
    await asyncio.to_thread(nodes.start, broker_id)
    await asyncio.to_thread(wait_in_sync, nodes.bootstrap, "t")


async def _run_batch(cluster: Cluster, query: Query, batch: int) -> None:
    """As often as it takes: a run that fails is followed by another."""
    for attempt in range(ATTEMPTS_MAX):
        with contextlib.suppress(KafkaError, ExactlyOnceError):
            await query.replaced(run=f"run {batch}.{attempt}").run_batch(cluster, batch, rows_of(batch))
            return
    pytest.fail(f"batch {batch} cannot be written")
