"""Helper threads of the simulated loop: work is done later, out of order, and a dead process's never."""

import asyncio

import pytest

from tailrace.sim.background import SlowBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom


@pytest.fixture
def loop():
    loop = SimLoop(SimRandom(1))
    yield loop
    loop.close()


def test_work_takes_time_and_overtakes(loop):
    background = SlowBackground(SimRandom(3))
    done = []

    async def run():
        await asyncio.gather(*(background.run(lambda number=number: done.append(number)) for number in range(50)))
        return loop.now

    assert 0 < loop.run_until_complete(run()) < 0.1
    assert sorted(done) == list(range(50))
    assert done != sorted(done)


def test_a_slow_device_and_a_failure(loop):
    background = SlowBackground(SimRandom(3))
    background.extra_ms = 500.0

    def fail():
        raise OSError(5, "EIO")

    async def run():
        with pytest.raises(OSError, match="EIO"):
            await background.run(fail)
        return loop.now

    assert loop.run_until_complete(run()) >= 0.5


def test_what_a_dead_process_began_is_never_done(loop):
    background = SlowBackground(SimRandom(3))
    background.extra_ms = 100.0
    done = []

    async def work():
        await background.run(lambda: done.append("sync"))

    async def run():
        process = loop.process("victim")
        process.spawn(work(), name="work")
        await asyncio.sleep(0.05)
        process.kill()
        await asyncio.sleep(1)

    loop.run_until_complete(run())
    assert done == []


def test_clocks_differ_and_the_wall_may_jump(loop):
    fast, slow = ProcessClock(loop.process("fast", rate=1.01)), ProcessClock(loop.process("slow", rate=0.99))

    async def run():
        await asyncio.sleep(100)

    before = fast.wall_ms()
    loop.run_until_complete(run())
    assert fast.monotonic_ms() == pytest.approx(101_000, rel=1e-3)
    assert slow.monotonic_ms() == pytest.approx(99_000, rel=1e-3)
    assert fast.wall_ms() - before == pytest.approx(101_000, rel=1e-3)
    slow.wall_skew_ms = -200_000
    assert slow.wall_ms() < before
