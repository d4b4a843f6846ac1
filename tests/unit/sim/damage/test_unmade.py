"""Which partitions may be without a leader after a disk was lost: no more than those that were being made."""

from types import SimpleNamespace

import pytest

from tailrace.model.ids import TopicPartition
from tailrace.sim.cluster import FOLDERS
from tailrace.sim.scenario import Scenario

PARTITION = TopicPartition("spare-1", 0)
TOPIC_ID = b"spare".ljust(16, b"-")


@pytest.fixture
def world():
    scenario = Scenario(1, has_damage=True)
    scenario.cluster.format()
    yield scenario
    scenario.loop.close()


def lose_disk(scenario, *, leader=-1, isr=()):
    """Of the first node; what the metadata say of the partition afterwards."""
    lost = scenario.cluster.nodes[0]
    scenario.damage.unmade.note_loss(lost)
    state = SimpleNamespace(leader=leader, isr=isr)
    topic = SimpleNamespace(id=TOPIC_ID, name=PARTITION.topic, partitions={PARTITION.partition: state})
    scenario.replicas.image = SimpleNamespace(topics={PARTITION.topic: topic})


def make_log(node):
    node.disk.make_folder(f"{FOLDERS[0]}/{PARTITION}")


def lead(scenario, node):
    scenario.replicas._leaders[TOPIC_ID, PARTITION.partition, 0] = node.name


def test_one_that_nobody_had_made(world):
    lose_disk(world)
    assert world.damage.unmade.find() == [PARTITION]


def test_one_that_only_the_lost_disk_had(world):
    lost = world.cluster.nodes[0]
    make_log(lost)
    lead(world, lost)
    lose_disk(world)
    assert world.damage.unmade.find() == [PARTITION]


def test_not_without_a_loss(world):
    lose_disk(world)
    world.damage.unmade._losses.clear()
    assert world.damage.unmade.find() == []


def test_not_if_another_disk_had_it(world):
    make_log(world.cluster.nodes[1])
    lose_disk(world)
    assert world.damage.unmade.find() == []


def test_not_if_another_node_has_led_it(world):
    lead(world, world.cluster.nodes[1])
    lose_disk(world)
    assert world.damage.unmade.find() == []


def test_not_if_anything_was_confirmed(world):
    world.replicas.committed_ends[TOPIC_ID, PARTITION.partition] = 1
    lose_disk(world)
    assert world.damage.unmade.find() == []


@pytest.mark.parametrize("state", [{"isr": (2,)}, {"leader": 2, "isr": (2,)}])
def test_not_while_somebody_may_lead_it(world, state):
    lose_disk(world, **state)
    assert world.damage.unmade.find() == []
