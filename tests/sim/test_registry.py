"""The registry that writes is killed, paused or cut off between any two of its steps: no id twice, no version lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tailrace.apps.registry.service import Registry
from tailrace.apps.registry.state.records import SchemaValue, schema_record
from tailrace.apps.registry.topic import writing
from tailrace.apps.registry.topic.election import Election
from tailrace.apps.registry.topic.reading import Reader
from tests.sim.registry_world import SUBJECT, Broken, Registries, registries, schema
from tests.unit.simulated import simulated

# Whether the fault came before what it is to disturb was done.
Strike = Callable[[Registries, int], Awaitable[bool]]
# Of two writes and their answers; there are some more, as the network has it.
STEPS_MIN = 8


async def kill(world: Registries, turns: int) -> bool:
    return await _another_takes_over(world, f"k{turns}", turns, world.first.kill, world.first.start)


async def pause(world: Registries, turns: int) -> bool:
    process = world.first.process
    assert process is not None
    return await _another_takes_over(world, f"p{turns}", turns, process.pause, process.resume)


async def cut(world: Registries, turns: int) -> bool:
    first = world.first
    return await _another_takes_over(world, f"c{turns}", turns, lambda: world.cut(first), lambda: world.mend(first))


async def _another_takes_over(
    world: Registries, name: str, turns: int, begin: Callable[[], None], end: Callable[[], None]
) -> bool:
    first, second = world.first, world.second
    done = len(world.ledger) + 2
    world.strike(first, turns, begin)
    first.begin_registering(f"{name}a")
    first.begin_registering(f"{name}b")
    await world.wait(lambda: world.has_struck or len(world.ledger) >= done, "it is struck, or done")
    if not world.has_struck:
        return False
    # Another is asked for the same, and for more; only then the first goes on with what it was about.
    await world.register(f"{name}a", second)
    await world.register(f"{name}c", second)
    end()
    first.begin_registering(f"{name}d")
    await world.register(f"{name}e", first, second)
    await world.wait(lambda: first.is_writer, "the first registry writes again")
    return True


async def kill_while_taking_over(world: Registries, turns: int) -> bool:
    first, second = world.first, world.second
    name = f"t{turns}"
    first.begin_registering(f"{name}a")
    await asyncio.sleep(turns % 10 / 1000)
    first.kill()
    world.strike(second, turns, second.kill)
    await world.wait(lambda: second.is_writer or world.has_struck, "the second registry takes over")
    second.begin_registering(f"{name}b")
    text = f"{name}b"
    await world.wait(lambda: world.has_struck or any(text in each.text for each in world.ledger), "struck, or done")
    if not world.has_struck:
        return False
    first.start()
    await world.register(f"{name}c", first)
    second.start()
    await world.register(f"{name}b", first)
    return True


async def stall(world: Registries, turns: int) -> bool:
    """The one that writes is cut off for so long that a write fails, and stays the one that writes."""
    first, name, done = world.first, f"s{turns}", len(world.ledger) + 1
    world.strike(first, turns, lambda: world.cut(first))
    first.begin_registering(f"{name}a")
    await world.wait(lambda: world.has_struck or len(world.ledger) >= done, "it is struck, or done")
    if not world.has_struck:
        return False
    await asyncio.sleep(STORE_TIMEOUT_MS * 1.1 / 1000)
    world.mend(first)
    first.begin_registering(f"{name}b")
    first.begin_registering(f"{name}c")
    await world.register(f"{name}a", first)
    await world.register(f"{name}d", first)
    return True


STORE_TIMEOUT_MS = 300
SESSION_S = 1.0
PATIENT = {"kafkastore.timeout.ms": str(STORE_TIMEOUT_MS), "schema.registry.session.timeout.ms": "20000"}


@simulated
async def strike_everywhere(strike: Strike, settings: dict[str, str] | None = None, *, seed: int = 1) -> None:
    async with registries(seed, settings) as world:
        turns = 0
        while await strike(world, turns):
            turns += 1
    assert turns >= STEPS_MIN


@pytest.mark.parametrize("strike", [kill, pause, cut, kill_while_taking_over])
def test_no_id_twice_and_no_version_lost(strike):
    strike_everywhere(strike)


def test_a_write_whose_outcome_is_not_known_is_no_gap():
    strike_everywhere(stall, PATIENT)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("strike", [kill, pause, cut, kill_while_taking_over, stall])
def test_by_many_seeds(strike, seed):
    strike_everywhere(strike, PATIENT if strike is stall else None, seed=seed)


# --- beside a registry of another kind, whose writes no epoch tells from others


@simulated
async def test_what_another_kind_of_registry_has_overtaken_is_not_answered():
    """It gives the next id away between what this one has read and what it writes."""
    async with registries(is_checked=False) as world:
        await world.register("a", world.first)
        theirs = SchemaValue(world.ledger[0].id + 1, "AVRO", schema("theirs"))
        await world.write_as_another(schema_record("other", 1, theirs))
        await world.register("ours", world.first)
        state = world.first.registry.state
        for told in world.ledger:
            assert state.version_by_id(".", told.id).value.text == told.text


@pytest.mark.parametrize("turns", range(14))
def test_a_writer_that_has_slept_hears_the_group_before_it_writes(turns):
    """Another kind of registry may have been elected meanwhile, and have written."""
    _sleep_beside_another(turns)


@simulated
async def _sleep_beside_another(turns: int) -> None:
    async with registries() as world:
        await world.register("a", world.first)
        world.second.kill()
        process = world.first.process
        world.strike(world.first, turns, process.pause)
        world.first.begin_registering("b")
        await asyncio.sleep(SESSION_S * 2.5)
        assert world.has_struck
        last = max((value.id, key.version) for _, key, value in await world.read_topic() if value is not None)
        theirs = SchemaValue(last[0] + 1, "AVRO", schema("theirs"))
        await world.write_as_another(schema_record(SUBJECT, last[1] + 1, theirs))
        process.resume()
        await world.register("c", world.first)


# --- bugs that are planted, each to be found


@pytest.mark.parametrize("strike", [pause, cut])
def test_a_writer_that_is_not_fenced_is_found(monkeypatch, strike):
    original = writing.build_batch
    monkeypatch.setattr(writing, "build_batch", lambda rows, **_identity: original(rows))
    # Else whoever has slept would ask the group first, and nobody would have to refuse it.
    monkeypatch.setattr(Election, "is_recent", True)
    with pytest.raises(Broken, match="twice"):
        strike_everywhere(strike)


def test_a_writer_that_does_not_read_before_it_decides_is_found(monkeypatch):
    async def wait_read(_self, _offset):
        """What was written before is not awaited."""

    monkeypatch.setattr(Reader, "wait_read", wait_read)
    _without_a_last_look(monkeypatch)
    with pytest.raises(Broken, match="twice"):
        strike_everywhere(kill)


def _without_a_last_look(monkeypatch):
    """Else whoever answers would see that it is not there."""
    monkeypatch.setattr(Registry, "_check_stands", lambda _self, _version: None)


def test_an_answer_before_the_write_is_found(monkeypatch):
    writes = []
    _without_a_last_look(monkeypatch)

    async def append(self, decided):
        writes.append(asyncio.ensure_future(original(self, decided)))

    original = Registry._append
    monkeypatch.setattr(Registry, "_append", append)
    with pytest.raises(Broken):
        strike_everywhere(kill)


def test_a_term_that_goes_on_after_an_unknown_outcome_is_found(monkeypatch):
    async def append(self, written):
        writer = self._writer
        try:
            await original(self, written)
        finally:
            self._writer = writer

    original = Registry._append
    monkeypatch.setattr(Registry, "_append", append)
    with pytest.raises(Broken):
        strike_everywhere(stall, PATIENT)
