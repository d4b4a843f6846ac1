"""A store behind limits: tries, time, what is under way, and a circuit that tells."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tailrace.model.ports import Bytes, NoObjectError, StoreAwayError, StoreRefusalError
from tailrace.sim.clock import ProcessClock
from tailrace.sim.loop import SimLoop
from tailrace.sim.objects import SimBucket, SimObjects, StoreFaults
from tailrace.sim.random import SimRandom
from tailrace.tier.store.budget import Budget
from tailrace.tier.store.circuit import CircuitLimits
from tailrace.tier.store.guard import GuardedObjects, GuardLimits
from tests.unit.simulated import simulated


class World:
    def __init__(self, limits: GuardLimits | None = None, *, seed: int = 1) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.clock = ProcessClock(loop.world)
        self.bucket = SimBucket(self.clock, SimRandom(seed))
        self.told: list[tuple[bool, str]] = []
        self.store = GuardedObjects(
            SimObjects(self.bucket, "pre/fix"),
            self.clock,
            SimRandom(seed),
            limits or GuardLimits(),
            on_circuit=lambda is_open, cause: self.told.append((is_open, cause)),
        )


@simulated
async def test_what_was_put_is_there() -> None:
    world = World()
    await world.store.put_bytes("a/b", b"0123456789")
    assert await world.store.get("a/b", 2, 5) == b"234"
    assert (await world.store.head("a/b")).size_bytes == 10
    assert await world.store.get_whole("a/b", 10) == b"0123456789"
    with pytest.raises(StoreRefusalError, match="more than the 9"):
        await world.store.get_whole("a/b", 9)
    assert [each.name for each in await world.store.list("a")] == ["a/b"]
    assert list(world.bucket.objects) == ["pre/fix/a/b"]
    await world.store.delete(["a/b", "never"])
    with pytest.raises(NoObjectError):
        await world.store.head("a/b")


@simulated
async def test_failures_that_pass_are_tried_again() -> None:
    world = World(GuardLimits(tries=12, circuit=CircuitLimits(failures_max=99)))
    world.bucket.faults = StoreFaults(delay_ms=(1, 30), error_share=0.3, lie_share=0.2, short_share=0.3)
    for number in range(40):
        await world.store.put_bytes(f"n/{number}", bytes([number]) * 50)
    for number in range(40):
        assert await world.store.get(f"n/{number}", 10, 50) == bytes([number]) * 40
    assert world.bucket.calls["get"] > 50, "some were tried again"


@simulated
async def test_tries_end() -> None:
    world = World(GuardLimits(tries=3, circuit=CircuitLimits(failures_max=99)))
    world.bucket.faults = StoreFaults(error_share=1.0)
    with pytest.raises(StoreAwayError, match="503"):
        await world.store.head("a")
    assert world.bucket.calls["head"] == 3


@simulated
async def test_a_refusal_and_what_is_missing_are_not_tried_again() -> None:
    world = World()
    with pytest.raises(NoObjectError):
        await world.store.get("none", 0, 1)
    world.bucket.faults = StoreFaults(refusal="403: check the key")
    with pytest.raises(StoreRefusalError, match="check the key"):
        await world.store.head("a")
    assert (world.bucket.calls["get"], world.bucket.calls["head"]) == (1, 1)


@simulated
async def test_a_silent_store_has_a_time_limit() -> None:
    world = World(GuardLimits(call_timeout_ms=1000, tries=2, backoff_ms=100))
    world.bucket.faults = StoreFaults(delay_ms=(10_000_000, 10_000_000))
    before = world.clock.monotonic_ms()
    with pytest.raises(StoreAwayError, match="no answer within 1000 ms"):
        await world.store.head("a")
    assert 2050 <= world.clock.monotonic_ms() - before <= 2101


@simulated
async def test_the_circuit_opens_tells_and_closes_again() -> None:
    world = World(GuardLimits(tries=1, circuit=CircuitLimits(failures_max=3, pause_ms=1000)))
    await world.store.put_bytes("a", b"x")
    world.bucket.faults = StoreFaults(error_share=1.0)
    for _ in range(3):
        with pytest.raises(StoreAwayError):
            await world.store.head("a")
    assert world.told == [(True, "503 Slow Down")]
    asked = world.bucket.calls["head"]
    with pytest.raises(StoreAwayError, match="not asked for a while, since it has failed: 503"):
        await world.store.head("a")
    assert world.bucket.calls["head"] == asked, "an open circuit asks nobody"
    world.bucket.faults = StoreFaults()
    await asyncio.sleep(1.0)
    assert (await world.store.head("a")).size_bytes == 1
    assert world.told[1:] == [(False, "")]


@simulated
async def test_a_read_that_is_cancelled_returns_at_once_and_gives_its_place_back() -> None:
    world = World(GuardLimits(reads_in_flight=1))
    await world.store.put_bytes("a", b"xyz")
    world.bucket.faults = StoreFaults(delay_ms=(5000, 5000))
    slow, waiting = (asyncio.ensure_future(world.store.get("a", 0, 3)) for _ in range(2))
    await asyncio.sleep(0.1)
    assert world.store.reads.calls == 1
    before = world.clock.monotonic_ms()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert world.clock.monotonic_ms() == before
    assert await waiting == b"xyz"
    assert (world.store.reads.calls, world.store.reads.bytes) == (0, 0)


@simulated
async def test_what_the_parts_raise_comes_out_and_leaves_no_object() -> None:
    world = World()

    async def parts() -> AsyncIterator[Bytes]:
        yield b"x"
        raise ValueError("the disk")

    with pytest.raises(ValueError, match="the disk"):
        await world.store.put("a", parts, 2)
    assert not world.bucket.objects
    assert world.store.uploads.calls == 0


@simulated
async def test_a_budget_bounds_calls_and_bytes_in_order() -> None:
    budget, order = Budget(calls_max=3, bytes_max=100), []

    async def use(name: str, size: int) -> None:
        await budget.take(size)
        order.append(name)
        assert budget.calls <= 3
        assert budget.bytes <= 100 or budget.calls == 1
        await asyncio.sleep(1)
        budget.give(size)

    sizes = {"a": 60, "b": 60, "c": 10, "large": 1000, "d": 1}
    await asyncio.gather(*(use(name, size) for name, size in sizes.items()))
    assert order == list(sizes)
    assert (budget.calls, budget.bytes) == (0, 0)


@simulated
async def test_who_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    budget = Budget(calls_max=1, bytes_max=100)
    await budget.take(1)
    first, second = (asyncio.ensure_future(budget.take(1)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    budget.give(1)
    await second
    assert budget.calls == 1
