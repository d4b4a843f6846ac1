"""What is told of transactions by their coordinator, from the first to the last marker."""

from __future__ import annotations

import asyncio

from tailrace.model.errors import ErrorCode
from tailrace.testing.metrics import Metrics
from tests.unit.broker.metrics import web
from tests.unit.broker.transactions.scene import NEW, SETTINGS, Producer, prepare
from tests.unit.broker.transactions.test_markers import give_away, take_back, until_state
from tests.unit.broker.world import World, running

OPEN, ENDING = "tailrace_transaction_open_max_seconds", "tailrace_transaction_ending_max_seconds"


def by_state(found: Metrics) -> dict[str, float]:
    states = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    return {state: count for state in states if (count := found.value("tailrace_transactional_ids", state=state))}


async def until_older(world: World, name: str, seconds: float) -> Metrics:
    async with asyncio.timeout(30):
        while (found := await web.scrape(world.broker)).value(name) < seconds:
            await asyncio.sleep(0.02)
    return found


async def test_each_state_is_told_and_how_long_it_lasts() -> None:
    async with running({**SETTINGS, **web.SETTINGS}) as world:
        peer = await prepare(world, "t")
        first, second = Producer(peer, NEW), Producer(peer, NEW, "second")
        await first.init()
        found = await web.scrape(world.broker)
        assert found.value("tailrace_transaction_coordinator_partitions", state="active") == 1
        assert by_state(found) == {"Empty": 1}
        assert (found.value(OPEN), found.value(ENDING)) == (0, 0)
        for producer in (first, second):
            await producer.init()
            assert await producer.write("t", producer.records("t", b"a")) is ErrorCode.NONE
        found = await until_older(world, OPEN, 0.1)
        assert by_state(found) == {"Ongoing": 2}
        assert found.value(ENDING) == 0
        give_away(world, "t", epoch=1)
        assert await first.end(is_commit=True) is ErrorCode.NONE
        assert await second.end(is_commit=False) is ErrorCode.NONE
        found = await until_older(world, ENDING, 0.1)
        assert by_state(found) == {"PrepareCommit": 1, "PrepareAbort": 1}
        assert found.value(OPEN) == 0
        assert found.sum("tailrace_transactions_ended_total") == 0
        take_back(world, "t", epoch=2)
        await until_state(first, "CompleteCommit")
        await until_state(second, "CompleteAbort")
        found = await web.scrape(world.broker)
        assert by_state(found) == {"CompleteCommit": 1, "CompleteAbort": 1}
        assert found.value(ENDING) == 0
        for result in ("commit", "abort"):
            assert found.value("tailrace_transactions_ended_total", result=result) == 1


async def test_a_broker_that_coordinates_none_tells_nothing_of_them() -> None:
    async with running(web.SETTINGS) as world:
        assert not {name for name in (await web.scrape(world.broker)).names if "transactional_ids" in name}
