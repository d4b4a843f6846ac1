"""The simulated loop: virtual time, processes that die, pause and have clocks of their own, and one order per seed."""

import asyncio

import pytest

from tailrace.sim.loop import SimLoop, StuckError
from tailrace.sim.random import SimRandom


@pytest.fixture
def loop():
    loop = SimLoop(SimRandom(1))
    yield loop
    loop.close()


def test_time_jumps_to_the_next_timer(loop):
    async def sleep():
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(sleep()) == pytest.approx(3600)


def test_everything_a_process_schedules_dies_with_it(loop):
    """Tasks, timers and callbacks of futures; nothing of it is told, as nothing is told to a killed process."""
    seen = []

    async def live():
        asyncio.get_running_loop().call_later(0.5, seen.append, "timer")
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: seen.append("callback"))
        asyncio.get_running_loop().call_later(2, future.set_result, None)
        try:
            await asyncio.create_task(asyncio.sleep(2))
        finally:
            seen.append("finally")

    async def run():
        process = loop.process("victim")
        process.spawn(live(), name="life")
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(5)

    loop.run_until_complete(run())
    assert seen == ["timer"]


def test_a_paused_process_does_nothing_and_then_goes_on(loop):
    seen = []

    async def tick(name):
        while True:
            await asyncio.sleep(1)
            seen.append((name, round(loop.now)))

    async def run():
        stopped, other = loop.process("stopped"), loop.process("other")
        for process in (stopped, other):
            process.spawn(tick(process.name), name=process.name)
        await asyncio.sleep(1.5)
        stopped.pause()
        await asyncio.sleep(2)
        stopped.resume()
        await asyncio.sleep(0.9)

    loop.run_until_complete(run())
    assert [when for name, when in seen if name == "other"] == [1, 2, 3, 4]
    assert [when for name, when in seen if name == "stopped"] == [1, 4]


def test_a_process_can_be_paused_with_work_in_its_hands(loop):
    seen = []

    def read():
        seen.append(("read", round(loop.now)))
        loop.call_soon(lambda: seen.append(("done", round(loop.now))))

    async def work():
        for second in (1, 2):
            loop.call_at(second, read)

    async def run():
        process = loop.process("worker")
        process.spawn(work(), name="worker")
        await asyncio.sleep(1.5)
        process.pause(at_work=True)
        await asyncio.sleep(3)
        process.pause(at_work=True)
        assert process.is_paused, "it stays so"
        process.resume()
        await asyncio.sleep(0.4)

    loop.run_until_complete(run())
    assert seen == [("read", 1), ("done", 1), ("read", 2), ("done", 4)]


def test_the_turns_of_a_slow_process_take_their_time(loop):
    seen = {"slow": [], "other": []}

    async def work(times):
        for _ in range(3):
            await asyncio.sleep(0)
            times.append(round(loop.now, 1))

    async def run():
        slow, other = loop.process("slow"), loop.process("other")
        slow.turn_seconds = 0.5
        tasks = [each.spawn(work(seen[each.name]), name=each.name) for each in (slow, other)]
        await asyncio.wait(tasks)

    loop.run_until_complete(run())
    assert seen == {"slow": [0.5, 1.0, 1.5], "other": [0.0, 0.0, 0.0]}


def test_clocks_of_processes_run_at_their_own_rates(loop):
    async def measure():
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        return asyncio.get_running_loop().time() - start, loop.now

    async def run():
        return await loop.process("fast", rate=1.25).spawn(measure(), name="measure")

    own, world = loop.run_until_complete(run())
    assert own == pytest.approx(10)
    assert world == pytest.approx(8)


def test_a_process_keeps_the_order_of_its_callbacks_and_chance_orders_processes():
    def order(seed):
        loop = SimLoop(SimRandom(seed))
        seen = []

        async def run():
            for name in ("a", "b", "c"):
                process = loop.process(name)
                for number in range(3):
                    loop.call_soon(seen.append, f"{name}{number}", context=process.context())
            await asyncio.sleep(1)

        loop.run_until_complete(run())
        loop.close()
        return seen

    runs = [order(seed) for seed in range(20)]
    assert runs == [order(seed) for seed in range(20)]
    assert len({tuple(run) for run in runs}) > 1
    for run in runs:
        for name in ("a", "b", "c"):
            assert [each for each in run if each[0] == name] == [f"{name}{number}" for number in range(3)]


def test_waiting_for_nothing_is_noticed(loop):
    async def wait():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="nothing will ever happen"):
        loop.run_until_complete(wait())


def test_many_cancelled_timers_are_swept_out(loop):
    async def run():
        for _ in range(5000):
            async with asyncio.timeout(1000):
                await asyncio.sleep(0)

    loop.run_until_complete(run())
    assert len(loop._timers) < 1100


def test_what_is_found_after_a_turn_ends_the_run(loop):
    def look(process):
        if loop.now > 1:
            raise AssertionError(process.name)

    loop.after_turn = look
    with pytest.raises(AssertionError, match="world"):
        loop.run_until_complete(_sleep())


async def _sleep():
    await asyncio.sleep(2)
