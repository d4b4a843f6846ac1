"""Tiered storage under faults (`tier_world`): what must hold does, and bugs that are planted are found."""

import asyncio
from collections.abc import Callable

import pytest

from tailrace.model.ports import StoreError
from tailrace.tier.format import layout
from tailrace.tier.keeping import decisions
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.removal import Remover
from tailrace.tier.metadata import coverage
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.records import SegmentState
from tests.sim.tier_world import Broken, World

SECONDS = 40  # of disturbance; then all is healed


def run(seed: int) -> World:
    world = World(seed)
    world.run(SECONDS)
    return world


def run_all(seeds: list[int]) -> None:
    for seed in seeds:
        run(seed)


@pytest.mark.parametrize("seed", [5, 7])
def test_nothing_is_lost_mixed_or_left_behind(seed: int) -> None:
    world = run(seed)
    assert len(world.leaders) > 3, "leaders were replaced"
    assert world.replayed().next_offset > 100, "there was something to do"
    assert sum(leader.reads for leader in world.leaders) > 100, "the tier was read"
    assert world.leader.broker.log_start > 0, "retention was at work"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_over_many_seeds(seed: int) -> None:
    run(seed)


# Bugs: each a way to break one rule, and how it is noticed.


def finished_before_the_put(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Copier.copy

    async def hasty(self, log, topic, owner, *rest, leader_epoch):
        class Hasty:
            async def append(_, record):
                await log.append(record)
                if record.remote_log_segment_state == SegmentState.COPY_STARTED:
                    segment = log.tier.copying[record.remote_log_segment_id.id].segment
                    update = self._update(topic, owner, segment, SegmentState.COPY_FINISHED, leader_epoch)
                    await log.append(update)

        return await copy(self, Hasty(), topic, owner, *rest, leader_epoch=leader_epoch)

    monkeypatch.setattr(Copier, "copy", hasty)


def deleted_before_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Remover.begin

    async def hasty(self, log, owner, tier, segments, *, leader_epoch, log_start_offset=0):
        if segments:
            await self.store.delete([self._name(owner, segment) for segment in segments])
            await asyncio.sleep(2)
        await begin(self, log, owner, tier, segments, leader_epoch=leader_epoch, log_start_offset=log_start_offset)

    monkeypatch.setattr(Remover, "begin", hasty)


def lineage_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "usable_end", lambda segment, lineage, log_start_offset: segment.end_offset)
    monkeypatch.setattr(decisions, "usable_end", lambda segment, lineage, log_start_offset: segment.end_offset)


def local_segments_go_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions.LogView, "copied_end_offset", property(lambda self: self.segments[-1].base_offset))


def the_log_start_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Remover.begin

    async def silent(self, log, owner, tier, segments, *, leader_epoch, log_start_offset=0):
        await begin(self, log, owner, tier, segments, leader_epoch=leader_epoch)
        tier.log_start_offset = max(tier.log_start_offset, log_start_offset)  # It alone knows.

    monkeypatch.setattr(Remover, "begin", silent)


def orphans_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TierMachine, "orphans", lambda *args, **options: iter(()))


def nothing_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def idle(*args, **options):
        return []

    monkeypatch.setattr(Remover, "sweep", idle)


def the_sweep_does_not_wait_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the listing's word, and its own old knowledge."""
    sweep = Remover.sweep

    async def hasty(self, owner, machine, catch_up):
        async def never() -> None:
            machine.partitions.pop(owner, None)

        partition = machine.partitions.get(owner)
        try:
            return await sweep(self, owner, machine, never)
        finally:
            if partition is not None:
                machine.partitions[owner] = partition

    monkeypatch.setattr(Remover, "sweep", hasty)


def retention_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = decisions.decide_remote_expired

    class Half:
        def __init__(self, config) -> None:
            self.retention_ms = config.retention_ms
            self.retention_bytes = config.retention_bytes // 2

    monkeypatch.setattr(decisions, "decide_remote_expired", lambda log, config, **now: decide(log, Half(config), **now))


def batches_are_cut_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    position_for = layout.SegmentFooter.position_for
    monkeypatch.setattr(layout.SegmentFooter, "position_for", lambda self, offset: position_for(self, offset + 3))


# What is found, and seeds of which one finds it.
BUGS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, list[int]]] = {
    finished_before_the_put: ("is missing", [1, 2]),
    deleted_before_it_is_told: ("is missing", [1, 2]),
    lineage_is_not_looked_at: ("other bytes", [14, 15, 5, 6]),
    local_segments_go_before_they_are_copied: ("only in the tier", [1, 2]),
    the_log_start_is_not_told: ("and started at|only in the tier|before its end", [1, 2]),
    orphans_are_left: ("nobody refers to|never finished", [1, 2]),
    nothing_is_swept: ("nobody refers to", [33]),
    the_sweep_does_not_wait_for_records: ("is missing", [1, 2]),
    retention_takes_too_much: ("bytes before its end", [1, 2]),
    batches_are_cut_wrong: ("begins with", [1, 2]),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    text, seeds = BUGS[bug]
    with pytest.raises((Broken, StoreError), match=text):
        run_all(seeds)
