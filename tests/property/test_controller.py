"""Random lives of a cluster, against a model of what each replica holds.

The model has a log for every replica: leaders append, followers copy, and a record is committed when all in-sync
replicas have it and there are enough of them. Brokers crash (and keep their logs), lose power (and lose a tail), lose a
disk, find one log damaged, stop cleanly, are cut off, come back; they report how far their replicas reach. Whatever the
controller decides must hold with that:

- what is committed is in the log of every leader, unless its election was unclean, and that only if no replica which
  has everything could lead and the topic or the last-known-leader rule allows it;
- a partition has a leader whenever a replica with everything can lead, after a wait for others that may have more;
- the sets of replicas fit each other, and epochs tell every change of leader;
- replaying the records, and those of a snapshot, gives the same image.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.controller import configs
from tailrace.controller.brokers import registration
from tailrace.controller.image import BrokerImage, PartitionImage
from tailrace.controller.partitions import alter_partition, candidates
from tailrace.controller.partitions.candidates import Key
from tailrace.controller.partitions.change import (
    Election,
    PartitionChanges,
)
from tailrace.controller.replay import Replay
from tailrace.controller.view import View
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.quorum import (
    BrokerRegistrationRequest,
)
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tests.property.controller_world import NODES, TOPICS, World

Step = tuple[Callable[[World, int, str], None], int, str]
STEP = st.tuples(st.sampled_from(World.STEPS), st.sampled_from(NODES), st.sampled_from(TOPICS))


def live(steps: list[Step]) -> None:
    world = World()
    for step, node, topic in steps:
        step(world, node, topic)
        world.report()
        world.check()
    world.check_images()


def live_often(times: int) -> None:
    for seed in range(times):
        random = SimRandom(seed)
        live([(random.choice(World.STEPS), random.choice(NODES), random.choice(TOPICS)) for _ in range(60)])


@pytest.mark.long
def test_no_committed_record_is_lost_in_many_lives() -> None:
    live_often(3000)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=60))
def test_no_committed_record_is_lost_by_a_decision(steps: list[Step]) -> None:
    live(steps)


def _keep_lost_eligible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionChanges, "_lost", property(lambda _: frozenset(), lambda *_: None), raising=False)


def _believe_everybody(patch: pytest.MonkeyPatch) -> None:
    def decide(view: View, request: BrokerRegistrationRequest, old: BrokerImage | None) -> list[PartitionChangeRecord]:
        request.previous_broker_epoch = -1 if old is None else old.epoch
        return original(view, request, old)

    original = registration._decide_death
    patch.setattr(registration, "_decide_death", decide)


def _elect_anybody(patch: pytest.MonkeyPatch) -> None:
    original = PartitionChanges._find_leader

    def find(self: PartitionChanges, key: Key, old: PartitionImage, wanted: PartitionImage, *_: object, **__: object):
        return original(self, key, old, wanted, Election.UNCLEAN, is_asked=True)

    patch.setattr(PartitionChanges, "_find_leader", find)


def _trust_whoever_has_restarted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(candidates, "_best", lambda nodes, _: [*nodes][-1])


def _keep_eligible_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(configs, "decide_without_eligible", lambda _: [])


def _trust_any_directory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerImage, "has_online", lambda *_: True)


def _take_in_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(alter_partition, "_is_eligible", lambda *_: True)


def _leave_index_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replay, "_drop_index", lambda *_: None)


@pytest.mark.parametrize(
    "plant",
    [
        _keep_lost_eligible,
        _believe_everybody,
        _elect_anybody,
        _trust_whoever_has_restarted,
        _keep_eligible_for_ever,
        _trust_any_directory,
        _take_in_anybody,
        _leave_index_entries,
    ],
)
def test_a_planted_bug_is_noticed(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        live_often(200)
