"""The simulated bucket: each fault of it happens, and nothing else does."""

import asyncio

import pytest

from tailrace.model.ports import NoObjectError, StoreAwayError
from tailrace.sim.clock import ProcessClock
from tailrace.sim.loop import SimLoop
from tailrace.sim.objects import SimBucket, SimObjects, StoreFaults
from tailrace.sim.random import SimRandom
from tests.unit.simulated import simulated


def make_bucket(faults: StoreFaults) -> SimBucket:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return SimBucket(ProcessClock(loop.world), SimRandom(1), faults)


async def put(objects: SimObjects, name: str, data: bytes) -> None:
    async def parts():
        yield data

    await objects.put(name, parts(), len(data))


@simulated
async def test_a_put_that_succeeded_and_said_no() -> None:
    bucket = make_bucket(StoreFaults(lie_share=1.0))
    with pytest.raises(StoreAwayError):
        await put(SimObjects(bucket), "a", b"x")
    assert bucket.objects["a"].data == b"x"


@simulated
async def test_a_put_that_comes_late() -> None:
    bucket = make_bucket(StoreFaults(late_share=1.0, late_effect_ms=10_000))
    with pytest.raises(StoreAwayError):
        await put(SimObjects(bucket), "a", b"x")
    assert not bucket.objects
    await asyncio.sleep(10.1)
    assert bucket.objects["a"].data == b"x"


@simulated
async def test_listings_lag() -> None:
    bucket = make_bucket(StoreFaults(listing_lag_ms=1000))
    objects = SimObjects(bucket)
    await put(objects, "f/a", b"x")

    async def listed() -> list[str]:
        return [each.name async for piece in objects.list("f") for each in piece]

    assert await listed() == []
    await asyncio.sleep(1.0)
    assert await listed() == ["f/a"]
    await objects.delete(["f/a"])
    assert await listed() == ["f/a"]
    with pytest.raises(NoObjectError):
        await objects.head("f/a")
    await asyncio.sleep(1.0)
    assert await listed() == []


@simulated
async def test_a_folder_is_no_prefix_of_a_name() -> None:
    bucket = make_bucket(StoreFaults())
    objects = SimObjects(bucket)
    for name in ("a/b", "ab/c", "a/d/e"):
        await put(objects, name, b"x")
    assert sorted([each.name async for piece in objects.list("a") for each in piece]) == ["a/b", "a/d/e"]


@simulated
async def test_a_store_that_is_away_comes_back() -> None:
    bucket = make_bucket(StoreFaults(away_until_ms=5000))
    with pytest.raises(StoreAwayError):
        await put(SimObjects(bucket), "a", b"x")
    await asyncio.sleep(5)
    await put(SimObjects(bucket), "a", b"x")
