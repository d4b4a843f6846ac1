"""What is done now and then, as long as a broker runs."""

import asyncio

import pytest

from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import StoreAwayError
from tests.unit.broker.tier.tiered_world import running_tiered, tiered_topic
from tests.unit.simulated import simulated


class Worker:
    failure = "it cannot be done"
    pause_seconds = 0.5

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes = list(outcomes)
        self.rounds = 0

    async def round(self) -> None:
        self.rounds += 1
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is not None:
            raise outcome


@simulated
async def test_a_round_that_fails_does_not_end_those_to_come():
    failures = [
        StoreAwayError("away"),
        KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads"),
        StorageError("damaged"),
        OSError("the disk"),
        ValueError("a bug"),
    ]
    async with running_tiered() as world:
        await tiered_topic(world)
        worker = Worker(*failures)
        work = asyncio.create_task(world.part(1).tier.work(worker))
        await world.wait(lambda: worker.rounds > len(failures), "it goes on")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
