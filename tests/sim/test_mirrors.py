"""A mirror of another cluster under faults (`mirror_world`): what must hold does, and planted bugs are found."""

import pytest

from tailrace.broker.mirrors import cutting, tender
from tailrace.broker.mirrors.groups.sync import GroupSync
from tailrace.broker.mirrors.handover import Handover
from tailrace.broker.mirrors.pulled import Pulled
from tailrace.controller.mirrors import following
from tailrace.log.validation import Origin
from tailrace.replica.leading import mirrors
from tailrace.replica.partition import Partition
from tailrace.wire.markers import build_marker
from tailrace.wire.records import set_log_append_time
from tests.sim.mirror_plan import CALM, MirrorPlan
from tests.sim.mirror_world import MirrorWorld

FAILOVER = MirrorPlan(faults=CALM, seconds=3, ends_by="failover")
PROMOTE = MirrorPlan(faults=CALM, seconds=3, ends_by="promote")
SWITCH = MirrorPlan(faults=CALM, seconds=3, ends_by="promote", stops_producers=False, reverses=True)
HASTY = MirrorPlan(faults=CALM, seconds=3, ends_by="promote", stops_producers=False, quiet_ms=0)
RETURN = MirrorPlan(faults=CALM, seconds=3, ends_by="failover", reverses=True)


def found(plan: MirrorPlan, seeds: range = range(1, 4)) -> str:
    """What the first seed that fails has found."""
    for seed in seeds:
        failure = MirrorWorld(seed, plan).run()
        if failure is not None:
            return failure
    return "nothing"


@pytest.mark.parametrize("plan", [FAILOVER, PROMOTE, SWITCH, RETURN], ids=["failover", "promote", "switch", "return"])
def test_without_a_bug_nothing_is_found(plan):
    world = MirrorWorld(1, plan)
    assert world.run() is None
    assert world.own_count == 2, "a producer with an id of the source's has written"
    assert world.refused_count > 3, "a mirror was written to, in vain"
    assert world.transactions > 2, "there were transactions"
    assert min(world.mirrored.values()) > 20, "something was mirrored"
    assert bool(world.cut) == (plan is RETURN), "only after a failover there was something to cut"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 60))
def test_over_many_seeds(seed):
    assert MirrorWorld(seed).run() is None


# Bugs: each a way to break one rule, and how it is noticed.


def lie(monkeypatch):
    """The source gives consumers what is not committed, as if it were."""
    monkeypatch.setattr(Partition, "readable_end", lambda self, _isolation: self.log.log_end_offset)


@pytest.mark.long
def test_a_source_that_gives_more_than_is_committed_is_not_believed(monkeypatch):
    lie(monkeypatch)
    assert found(FAILOVER, range(1, 2)) == "nothing"


@pytest.mark.long
def test_more_than_is_committed_is_taken(monkeypatch):
    lie(monkeypatch)
    original = Pulled._fitting
    monkeypatch.setattr(Pulled, "_fitting", lambda self, records, _high_watermark: original(self, records, 1 << 60))
    assert found(FAILOVER).startswith("what is mirrored is committed at the source")


@pytest.mark.long
def test_times_that_are_stamped_anew(monkeypatch):
    """As a leader does for its own topics, where they ask for it."""
    original = mirrors.append_mirrored

    def stamp(partition, batches, **options):
        copy = memoryview(bytearray(batches))
        set_log_append_time(copy, 0, 1_767_225_600_000)
        original(partition, copy, **options)

    monkeypatch.setattr(mirrors, "append_mirrored", stamp)
    assert found(FAILOVER).startswith("what is mirrored is committed at the source, with the same bytes")


@pytest.mark.long
def test_no_barrier(monkeypatch):
    def build(*, timestamp_ms):
        marker = mirrors.Marker(is_commit=False, coordinator_epoch=0)
        return build_marker(marker, producer_id=1 << 40, producer_epoch=0, timestamp_ms=timestamp_ms)

    monkeypatch.setattr(mirrors, "build_barrier", build)
    assert found(FAILOVER).startswith(
        ("nobody writes before the barrier", "a producer with an id of the source's writes after the opening")
    )


@pytest.mark.long
def test_a_barrier_that_forgets_nobody(monkeypatch):
    monkeypatch.setattr("tailrace.log.producers.ProducerStates.forget_before_barrier", lambda _self: None)
    assert found(FAILOVER).startswith("a producer with an id of the source's writes after the opening")


@pytest.mark.long
def test_a_mirror_that_takes_records(monkeypatch):
    monkeypatch.setattr(mirrors, "refuse_writes", lambda _partition, _origin=None: None)
    assert found(FAILOVER).startswith(("a mirror takes records of its source alone", "what is mirrored is committed"))


@pytest.mark.long
def test_transactions_that_nobody_ends(monkeypatch):
    """Markers that name somebody else, and a barrier that leaves open what is open."""

    def build(marker, *, producer_id, **rest):
        return build_marker(marker, producer_id=producer_id + (1 << 40), **rest)

    monkeypatch.setattr(mirrors, "build_marker", build)
    forget = "tailrace.log.producers.ProducerStates.forget_before_barrier"
    monkeypatch.setattr(forget, lambda self: self._states.clear())
    assert found(FAILOVER, range(1, 8)).startswith("no transaction of the source is left open")


@pytest.mark.long
def test_offsets_of_groups_that_are_not_held_back(monkeypatch):
    original = GroupSync._wanted

    def wanted(self, committed, progress):
        kept = original(self, committed, progress)
        return {where: committed[where] for where in kept}

    monkeypatch.setattr(GroupSync, "_wanted", wanted)
    plan = MirrorPlan(faults=CALM, seconds=6, bytes_per_second=2000)
    assert found(plan, range(1, 8)).startswith("committed offsets are never ahead of what is mirrored")


@pytest.mark.long
def test_a_promote_that_waits_for_nothing(monkeypatch):
    monkeypatch.setattr(tender, "_why_not_quiet", lambda _name, _ends, _here: None)
    plan = MirrorPlan(faults=CALM, seconds=4, ends_by="promote", bytes_per_second=2000)
    assert found(plan, range(1, 8)).startswith("after a promote all of the source is here")


@pytest.mark.long
def test_a_promote_that_closes_nothing(monkeypatch):
    """The source is quiet for a moment, and then it is written to again."""

    async def close(_self, _promoting):
        return None

    monkeypatch.setattr(Handover, "close", close)
    monkeypatch.setattr(tender, "_why_not_quiet", lambda _name, _ends, _here: None)
    assert found(HASTY).startswith(("after a promote nobody writes to the source", "after a promote all of the source"))


@pytest.mark.long
def test_a_promote_that_does_not_wait_until_the_source_is_closed(monkeypatch):
    monkeypatch.setattr(tender, "_why_not_closed", lambda _name, _ends, _closed: None)
    monkeypatch.setattr(tender, "_why_not_quiet", lambda _name, _ends, _here: None)
    plan = MirrorPlan(faults=CALM, seconds=3, ends_by="promote", stops_producers=False, bytes_per_second=2000)
    assert found(plan).startswith(("after a promote nobody writes to the source", "after a promote all of the source"))


@pytest.mark.long
def test_a_closed_source_that_takes_records(monkeypatch):
    original = mirrors.refuse_writes

    def refuse(partition, origin=Origin.CLIENT):
        original(partition, Origin.COORDINATOR)

    monkeypatch.setattr(mirrors, "refuse_writes", refuse)
    monkeypatch.setattr(mirrors, "is_closed", lambda role: role is not None and role.is_read_only)
    assert found(HASTY).startswith("after a promote nobody writes to the source")


@pytest.mark.long
def test_what_is_cut_and_not_saved(monkeypatch):
    monkeypatch.setattr(cutting, "saved_batches", lambda _data, offset, _aborted: (offset + 1000, []))
    assert found(RETURN).startswith("what was cut is saved")


@pytest.mark.long
def test_a_cut_that_goes_not_far_enough(monkeypatch):
    original = cutting.cut_mirror

    async def cut(room, partition, offset):
        await original(room, partition, min(offset + 5, partition.log.log_end_offset))

    monkeypatch.setattr("tailrace.broker.mirrors.puller.cut_mirror", cut)
    assert found(RETURN, range(1, 2)) != "nothing"


@pytest.mark.long
def test_leader_epochs_that_are_not_raised(monkeypatch):
    monkeypatch.setattr(following, "_raised", lambda topic, _found: topic)
    plan = MirrorPlan(faults=("kill leader", "restart"), target_faults=CALM, ends_by="promote")
    assert found(plan).startswith("a mirror is opened in time")
