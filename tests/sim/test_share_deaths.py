"""The leader of a share-partition and the coordinator of its state die together, at each step of what they do: before a
state is read or written, while it is, and before anybody hears of it; the same for dead letters, whose topic then takes
none either.

What members are told is compared with the same promises as in `test_shares`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple

import pytest

from tailrace.broker.shares.dead_letters import DeadLetters
from tailrace.broker.shares.share_partition import SharePartition
from tailrace.model.ids import SHARE_GROUP_STATE_TOPIC
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom
from tests.sim.share_ledger import BACKOFF, KEY_ORDER, LETTERS
from tests.sim.test_shares import SETTINGS, Run
from tests.unit.broker.cluster_world import running_cluster


class Step(NamedTuple):
    owner: type
    name: str
    moment: str
    every: int  # So many times that it is taken.


RECORDS = 40
STEPS = [
    Step(owner, name, moment, every)
    for owner, name, every in (
        (SharePartition, "_read_state", 1),
        (SharePartition, "_write_state", 3),
        (DeadLetters, "write", 3),
    )
    for moment in ("before", "during", "after")
]
# Longer than a message is under way.
WHILE_SECONDS = 0.002
CALM_SECONDS = 2.0


class Deaths:
    """One after the other: everybody lives again before the next."""

    def __init__(self, run: Run) -> None:
        self.number = 0
        self._run = run
        self._struck = asyncio.Event()
        self._leader = 0
        self._delay_seconds = 0.0

    @property
    def may_strike(self) -> bool:
        return not self._struck.is_set() and all(node.is_up for node in self._run.world.nodes.values())

    def strike(self, leader: int, delay_seconds: float) -> None:
        self._leader, self._delay_seconds = leader, delay_seconds
        self._struck.set()

    async def reap(self, *, has_letters: bool) -> None:
        run = self._run
        while True:
            await self._struck.wait()
            await asyncio.sleep(self._delay_seconds)
            dying = {self._leader, *self._coordinators()}
            for node_id in dying:
                await run.world.kill(node_id)
            self.number += 1
            await asyncio.sleep(run.random.between(0.1, 2.0))
            for node_id in sorted(dying):
                await run.world.start(node_id)
            if has_letters:
                await run._take_letters(False)
            await asyncio.sleep(CALM_SECONDS)
            if has_letters:
                await run._take_letters(True)
            self._struck.clear()

    def _coordinators(self) -> set[int]:
        """Of the states, one at most, so that a majority is left to hear of it."""
        for broker in self._run.world.running:
            for (topic, _), partition in broker.replicas.partitions.items():
                if topic == SHARE_GROUP_STATE_TOPIC and partition.is_leader and broker.config.node_id != self._leader:
                    return {broker.config.node_id}
        return set()


def plant(patch: pytest.MonkeyPatch, at: Step, find_deaths: Callable[[], Deaths | None]) -> None:
    step = getattr(at.owner, at.name)
    calls = count(1)

    async def dying(self: Any, *arguments: Any) -> Any:
        deaths = find_deaths()
        is_last = deaths is not None and next(calls) % at.every == 0 and deaths.may_strike
        if deaths is None or not is_last:
            return await step(self, *arguments)
        if at.moment == "after":
            result = await step(self, *arguments)
            if not deaths.may_strike:  # Another leader was struck meanwhile.
                return result
        deaths.strike(self._node.node_id, WHILE_SECONDS if at.moment == "during" else 0.0)
        if at.moment == "during":
            return await step(self, *arguments)
        return await asyncio.Event().wait()  # Nobody goes on from here.

    patch.setattr(at.owner, at.name, dying)


async def story(patch: pytest.MonkeyPatch, seed: int, step: Step, settings: Mapping[str, str]) -> int:
    found: list[Deaths] = []
    plant(patch, step, lambda: found[0] if found else None)
    async with running_cluster(settings=SETTINGS) as world:
        run = Run(world, seed, settings)
        await run.prepare()
        for _ in range(3):
            run.join()
        deaths = Deaths(run)
        found.append(deaths)
        watching = asyncio.ensure_future(run.watch())
        reaping = asyncio.ensure_future(deaths.reap(has_letters=LETTERS.items() <= settings.items()))
        await run.produce(RECORDS)
        await asyncio.sleep(2 * CALM_SECONDS)
        found.clear()
        while not deaths.may_strike and not reaping.done():  # Who was struck has to die.
            await asyncio.sleep(0.1)
        reaping.cancel()
        await asyncio.wait((reaping,))
        if not reaping.cancelled():
            reaping.result()
        for node_id, node in world.nodes.items():
            if not node.is_up:
                await world.start(node_id)
        await run.drain()
        await run.check_described()
        if watching.done():
            watching.result()
        watching.cancel()
        run.read_letters()
        run.check()
        run.ledger.check_history()
        run._admin.close()
        return deaths.number


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.owner.__name__}.{step.name} {step.moment}")
@pytest.mark.parametrize("settings", [LETTERS | BACKOFF, KEY_ORDER | LETTERS], ids=["back-off", "key order"])
def test_both_die_at_a_step(
    monkeypatch: pytest.MonkeyPatch, seed: int, step: Step, settings: Mapping[str, str]
) -> None:
    loop = SimLoop(SimRandom(seed))
    try:
        deaths = loop.run_until_complete(story(monkeypatch, seed, step, settings))
    finally:
        loop.close()
    assert deaths
