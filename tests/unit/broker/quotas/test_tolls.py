"""Tolls: the time of a request is that of all its steps, and of nothing in between."""

import asyncio

import pytest

from tailrace.broker.context import BoundListener, RequestContext
from tailrace.broker.quotas.tolls import RunToll, Toll
from tailrace.columns import Throttled
from tailrace.model.security import ANONYMOUS, Principal
from tests.unit.broker.quotas.test_meters import Clock, meters_with

LISTENER = BoundListener("PLAINTEXT", "", 0)
QUOTAS = {(("user", "ANONYMOUS"),): {"request_percentage": 1.0, "producer_byte_rate": 100.0}}


def toll_with(throttled: Throttled = Throttled.BY_TIME, received_bytes: int = 0) -> tuple[Toll, Clock]:
    meters, clock = meters_with(QUOTAS)
    context = RequestContext(
        api_key=3, api_version=9, correlation_id=1, client_id="c", peer="127.0.0.1:1", listener=LISTENER
    )
    return Toll(meters, context, throttled, received_bytes), clock


async def test_a_task_is_timed_step_by_step() -> None:
    toll, clock = toll_with()
    toll.end_work()

    async def handle() -> str:
        clock.now_ms += 50
        await asyncio.sleep(0)
        clock.now_ms += 70
        try:
            await failing()
        except ValueError:
            clock.now_ms += 30
        return "done"

    async def failing() -> None:
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waited.set_exception, ValueError())
        await waited

    async def pass_time() -> None:
        """What others do meanwhile does not count."""
        clock.now_ms += 1000

    others = asyncio.ensure_future(pass_time())
    assert await toll.time(handle()) == "done"
    await others
    # 150 ms are 15 percent of a second; over 10 s that is 1.5 percent, of which half as much again is too much.
    assert toll.settle() == 1000, "at most one window"
    assert toll._work_ms == 150


async def test_a_task_that_is_cancelled_sees_it() -> None:
    toll, _clock = toll_with()
    seen: list[str] = []

    async def handle() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def run() -> None:
        await toll.time(handle())

    task = asyncio.ensure_future(run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


def test_produced_bytes_count_even_if_nobody_is_answered() -> None:
    toll, _clock = toll_with(Throttled.BY_PRODUCED, 5000)
    assert toll._of.produced is not None
    assert toll._of.produced.rate.used(0.0) == 5000


class Client:
    peer = "127.0.0.1:1"
    principal: Principal = ANONYMOUS
    is_muted = False

    def __init__(self, listener: BoundListener) -> None:
        self.listener = listener
        self.muted_ms = 0

    def mute(self, throttle_ms: int) -> None:
        self.muted_ms = throttle_ms


def test_a_listener_among_brokers_has_no_quota() -> None:
    meters, _clock = meters_with(
        QUOTAS,
        listeners="PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        inter_broker_listener_name="INTERNAL",
    )
    for name, is_exempt in (("INTERNAL", True), ("PLAINTEXT", False)):
        client = Client(LISTENER._replace(name=name))
        run = RunToll(meters, client, "c")
        run.received_bytes = 10_000
        assert (run.settle() == 0) == is_exempt
        assert (client.muted_ms == 0) == is_exempt
        assert run.takes_several == is_exempt
