"""Whole clusters with remote storage in a bucket with faults; and bugs that are planted are found."""

import asyncio
from collections.abc import Callable

import pytest

from tailrace.broker.tier import keeper, parts
from tailrace.sim.faults import PROCESS_AND_LINK_KINDS
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Outcome, Scenario
from tailrace.tier.keeping import decisions
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.metadata.records import SegmentState

PLAN = Plan(producers=1, pipelines=1, consumers=1, fault_seconds=4.0, faults=PROCESS_AND_LINK_KINDS).with_tier()


def run(seed: int, plan: Plan | None = PLAN) -> Outcome:
    return Scenario(seed, plan=plan, has_tier=plan is None).run()


@pytest.mark.parametrize("seed", [1])
def test_nothing_is_lost_and_nothing_left(seed: int) -> None:
    outcome = run(seed)
    assert outcome.failure is None, outcome.failure


@pytest.mark.long
@pytest.mark.parametrize("seed", [*range(300, 320), 114, 126, 128, 135, 137, 145, 148, 20127])
def test_over_many_seeds(seed: int) -> None:
    outcome = run(seed, None)
    assert outcome.failure is None, outcome.failure


# Bugs: each a way to break one rule, and how it is noticed.


def uncopied_segments_leave_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions.LogView, "copied_end_offset", property(lambda self: self.segments[-1].base_offset))


def finished_before_the_put(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Copier.copy

    async def hasty(self, log, topic, owner, *rest, leader_epoch):
        class Hasty:
            async def append(_, record):
                await log.append(record)
                if record.remote_log_segment_state == SegmentState.COPY_STARTED:
                    segment = log._part.state.copying[record.remote_log_segment_id.id].segment
                    await log.append(self._update(topic, owner, segment, SegmentState.COPY_FINISHED, leader_epoch))
                    await asyncio.sleep(1)

        return await copy(self, Hasty(), topic, owner, *rest, leader_epoch=leader_epoch)

    monkeypatch.setattr(Copier, "copy", hasty)


def the_start_of_the_whole_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    init = parts.TieredLog.__init__

    def forgetful(self, tier, partition, log_start_offset):
        init(self, tier, partition, partition.log.log_start_offset)

    monkeypatch.setattr(parts.TieredLog, "__init__", forgetful)


def nobody_collects_what_killed_leaders_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def idle(*args, **options):
        return None

    monkeypatch.setattr(keeper.Keeper, "_sweep", idle)
    monkeypatch.setattr("tailrace.tier.keeping.removal.Remover.begin_orphans", idle)


BUGS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, list[int]]] = {
    uncopied_segments_leave_the_disk: ("no copy holds|copies end at|an acked record can be read", [1]),
    finished_before_the_put: ("every visible copy has its object", [1]),
    the_start_of_the_whole_is_forgotten: ("no log starts later than it began", [1, 2]),
    nobody_collects_what_killed_leaders_left: ("objects that nothing refers to", [1, 2]),
}


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    text, seeds = BUGS[bug]
    failures = []
    for seed in seeds:
        failures.append(run(seed).failure or "")
        if failures[-1]:
            break
    assert any(any(each in failure for each in text.split("|")) for failure in failures), failures
