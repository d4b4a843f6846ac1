"""A share group of a mirrored cluster, under faults (`mirror_world`): it starts here where it starts at the source, and
never beyond what is here."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tailrace.broker.mirrors.groups.shares import ShareStarts
from tailrace.broker.mirrors.groups.sync import GroupSync
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.client.shares.queue import Queue
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tests.sim.mirror_plan import CALM, MirrorPlan
from tests.sim.mirror_world import MirrorWorld

QUEUE = "workers"
FAILOVER = MirrorPlan(faults=CALM, seconds=3, ends_by="failover")
PROMOTE = MirrorPlan(faults=CALM, seconds=3, ends_by="promote")


class QueueWorld(MirrorWorld):
    """With a share group in place of the group of consumers, whose start offsets an administrator sets."""

    async def _commit_offsets(self, cluster: Cluster) -> None:
        while not self.clients.is_stopping:
            self.committed = {each: self.source_ends.get(tuple(each), 0) for each in self.partitions}
            with suppress(KafkaError):
                await Queue(cluster, QUEUE).purge(self.committed)
            await asyncio.sleep(0.2)

    async def _judge_groups(self, cluster: Cluster) -> None:
        starts = await self._starts(cluster)
        for where, start in starts.items():
            demand(
                start <= min(self.mirrored.get(tuple(where), 0), self.committed[where]),
                "a queue never starts beyond what is mirrored",
                partition=where,
                start=start,
                mirrored=self.mirrored.get(tuple(where)),
            )
        if self.plan.ends_by == "promote":
            process, source = self.clients.connect("auditor")
            there = await process.spawn(self._starts(source), name="auditor")
            source.close()
            demand(starts == there, "after a promote a queue starts where it did", here=starts, there=there)

    async def _starts(self, cluster: Cluster) -> dict[TopicPartition, int]:
        while True:
            with suppress(KafkaError):
                found = await GroupAdmin(cluster).share_offsets(QUEUE)
                if all(each.error is ErrorCode.NONE for each in found):
                    return {each.partition: each.start_offset for each in found if each.start_offset is not None}
            await asyncio.sleep(0.2)


def found(plan: MirrorPlan, seeds: range = range(1, 8)) -> str:
    """What the first seed that fails has found."""
    return next((failure for seed in seeds if (failure := QueueWorld(seed, plan).run()) is not None), "nothing")


@pytest.mark.parametrize("plan", [FAILOVER, PROMOTE], ids=["failover", "promote"])
def test_without_a_bug_nothing_is_found(plan: MirrorPlan) -> None:
    assert found(plan, range(1, 2)) == "nothing"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 20))
def test_over_many_seeds(seed: int) -> None:
    assert QueueWorld(seed).run() is None


@pytest.mark.long
def test_starts_that_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GroupSync._wanted

    def as_they_are(self, committed, progress):
        return {where: committed[where] for where in original(self, committed, progress)}

    monkeypatch.setattr(GroupSync, "_wanted", as_they_are)
    slow = MirrorPlan(faults=CALM, seconds=6, bytes_per_second=2000)
    assert found(slow).startswith("a queue never starts beyond what is mirrored")


@pytest.mark.long
def test_a_start_that_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(_starts, _group_id, _offsets):
        return ErrorCode.NONE

    monkeypatch.setattr(ShareStarts, "write", forget)
    assert found(PROMOTE).startswith("after a promote a queue starts where it did")
