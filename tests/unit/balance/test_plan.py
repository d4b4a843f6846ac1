"""Plans: hard goals hold, brokers are even afterwards, little is copied, and what cannot be done is told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.balance.plan.decide import decide_plan
from tailrace.balance.plan.picture import (
    BrokerState,
    Goals,
    PartitionState,
    Picture,
    Plan,
    Replicas,
    Resource,
    Wish,
)
from tailrace.model.ids import PartitionIndex, TopicPartition

from .skewed import skewed

GB = 1e9


def planned(picture: Picture, **wish) -> Plan:
    return decide_plan(picture, Goals(), Wish(**wish))


def picture_of(*lists: Replicas, brokers: int = 4, racks: str = "", size: float = GB, **options) -> Picture:
    return Picture(
        [BrokerState(1 + each, racks[each] if racks else None, **options) for each in range(brokers)],
        [
            PartitionState(TopicPartition("t", PartitionIndex(index)), held, size_bytes=size)
            for index, held in enumerate(lists)
        ],
    )


def rotated(count: int, brokers: int = 3) -> list[Replicas]:
    return [tuple((index + k) % brokers + 1 for k in range(3)) for index in range(count)]


def after(picture: Picture, plan: Plan) -> dict[TopicPartition, Replicas]:
    return {each.partition: each.replicas for each in picture.partitions} | {
        move.partition: move.new for move in plan.moves
    }


def check_hard_goals(picture: Picture, plan: Plan) -> None:
    racks = {broker.node_id: broker.rack for broker in picture.brokers}
    machines = {broker.node_id: broker.machine for broker in picture.brokers}
    sizes = {each.partition: each.size_bytes for each in picture.partitions}
    disks = dict.fromkeys(racks, 0.0)
    for partition, replicas in after(picture, plan).items():
        assert len(set(replicas)) == len(replicas)
        for domains in (racks, machines):
            bound = -(-len(replicas) // len(set(domains.values())))
            found = [domains[node] for node in replicas]
            assert max(map(found.count, found)) <= bound, (partition, found)
        for node in replicas:
            disks[node] += sizes[partition]
    for broker in picture.brokers:
        assert disks[broker.node_id] <= 0.8 * broker.capacity.get(Resource.DISK, 1e99)


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_skewed_cluster_is_even_after_one_plan(seed: int):
    picture = skewed(seed)
    plan = planned(picture)
    assert plan.problems == ()
    check_hard_goals(picture, plan)
    assert max(spread.worst for spread in plan.before) > 0.3, "it was not skewed"
    assert max(spread.worst for spread in plan.after) <= 0.10, plan.after


@pytest.mark.parametrize("seed", [1, 5])
@pytest.mark.parametrize(("brokers", "on_each_machine"), [(6, 2), (12, 3), (12, 2)])
def test_replicas_leave_machines_that_have_another(seed: int, brokers: int, on_each_machine: int):
    picture = skewed(seed, brokers=brokers, on_each_machine=on_each_machine)
    plan = planned(picture)
    assert plan.problems == ()
    check_hard_goals(picture, plan)
    assert any("had too many of its replicas" in move.reason for move in plan.moves)


def test_a_machine_is_emptied_onto_other_machines():
    """Two replicas of a partition land on one machine only where there is no third."""
    nodes = [BrokerState(each, machine=f"machine-{each // 2}") for each in range(2, 10)]
    held = [
        PartitionState(TopicPartition("t", PartitionIndex(n)), (2 + 2 * (n % 4), 2 + 2 * ((n + 1) % 4)))
        for n in range(24)
    ]
    picture = Picture(nodes, held)
    plan = planned(picture, drained=frozenset({2, 3}))
    assert plan.problems == ()
    for replicas in after(picture, plan).values():
        assert len({node // 2 for node in replicas} - {1}) == 2, replicas


def test_an_even_cluster_stays_as_it_is():
    picture = skewed(5)
    plan = planned(picture)
    held = after(picture, plan)
    even = picture._replace(partitions=[each._replace(replicas=held[each.partition]) for each in picture.partitions])
    assert planned(even).moves == ()


def test_the_same_picture_gives_the_same_plan():
    picture = skewed(7)
    turned = Picture(picture.brokers[::-1], picture.partitions[::-1])
    assert planned(picture).moves == planned(turned).moves


def test_leaders_are_balanced_without_a_byte():
    picture = picture_of(*[(1, 2, 3)] * 30, brokers=3)
    plan = planned(picture)
    assert plan.size_bytes == 0
    leads = [replicas[0] for replicas in after(picture, plan).values()]
    assert all(9 <= leads.count(node) <= 11 for node in (1, 2, 3))


def test_hardly_more_is_copied_than_has_to_be():
    """Broker 4 is empty: a quarter of all has to go there, and nothing between the others."""
    picture = picture_of(*rotated(60))
    plan = planned(picture)
    share = 60 * 3 / 4 * GB
    assert 0.9 * share <= plan.size_bytes <= 1.1 * share
    assert {node for move in plan.moves for node in {*move.new} - {*move.old}} == {4}


def test_a_new_broker_gets_its_share_of_each_topic():
    large = picture_of(*rotated(60), brokers=4, size=1.0)
    small = [each._replace(partition=TopicPartition("a", each.partition.partition)) for each in large.partitions[:8]]
    picture = large._replace(partitions=[*large.partitions, *small])
    held = after(picture, planned(picture, added=frozenset({4})))
    assert sum(4 in replicas for (topic, _), replicas in held.items() if topic == "a") in (4, 5, 6, 7)
    assert sum(4 in replicas for replicas in held.values()) >= 0.85 * 3 * 68 / 4


def test_only_a_new_broker_is_given_anything():
    picture = picture_of(*[(1, 2, 3)] * 20, *[(1, 2)] * 10, brokers=4)
    plan = planned(picture, added=frozenset({4}))
    assert plan.moves
    assert all({*move.new} - {*move.old} <= {4} for move in plan.moves)
    assert all(move.new[0] in (4, move.old[0]) for move in plan.moves)


def test_a_drained_broker_is_empty_and_the_others_hold_its_racks():
    picture = picture_of(*[(1, 2, 3), (4, 2, 6), (1, 5, 3)] * 8, brokers=6, racks="abcabc")
    plan = planned(picture, drained=frozenset({1}))
    assert plan.problems == ()
    assert not any(1 in replicas for replicas in after(picture, plan).values())
    check_hard_goals(picture, plan)


def test_a_dead_broker_can_be_drained_but_not_of_its_only_replicas():
    picture = picture_of((1, 2), (1, 3), (1,), brokers=3)
    brokers = [each._replace(is_live=each.node_id != 1) for each in picture.brokers]
    plan = planned(picture._replace(brokers=brokers), drained=frozenset({1}))
    assert len(plan.problems) == 1
    assert "t-2 has its only replica on broker 1, which is down" in plan.problems[0]


def test_partitions_of_a_dead_broker_wait_for_it():
    picture = picture_of(*[(1, 2)] * 9, brokers=3)
    brokers = [each._replace(is_live=each.node_id != 1) for each in picture.brokers]
    plan = planned(picture._replace(brokers=brokers))
    assert plan.moves == ()
    assert "replicas on brokers that are down (1)" in plan.remarks[0]


def test_what_somebody_else_moves_is_left_alone():
    picture = picture_of(*[(1, 2)] * 30, brokers=3)
    pinned = [each._replace(pinned="another reassignment has it") for each in picture.partitions[:10]]
    plan = planned(picture._replace(partitions=[*pinned, *picture.partitions[10:]]))
    assert plan.moves
    assert not {move.partition for move in plan.moves} & {each.partition for each in pinned}


def test_a_broker_that_cannot_be_emptied():
    plan = planned(picture_of((1, 2, 3), brokers=3), drained=frozenset({3}))
    assert "t-0 cannot leave broker 3: it has 3 replicas, and of the 2 brokers" in plan.problems[0]


def test_a_broker_that_is_not_there():
    plan = planned(picture_of((1, 2), brokers=2), drained=frozenset({9}))
    assert plan.problems == ("there is no broker 9: the cluster has 1, 2",)


def test_disks_that_are_too_small_for_all_of_it():
    plan = planned(picture_of(*[(1, 2)] * 10, brokers=3, capacity={Resource.DISK: 8 * GB}))
    assert "is over its bound of disk" in plan.problems[0]
    assert "all brokers together carry 2e+10, and may carry 1.92e+10" in plan.problems[0]


def test_a_disk_that_is_too_full_is_relieved_first():
    picture = picture_of(*[(1, 2)] * 10, brokers=4, capacity={Resource.DISK: 10 * GB})
    plan = planned(picture)
    assert plan.problems == ()
    check_hard_goals(picture, plan)
    assert any("over its bound of disk" in move.reason for move in plan.moves)


def test_no_room_to_empty_a_broker_names_the_partition_and_the_resource():
    picture = picture_of(*[(1,)] * 7, *[(2,)] * 7, brokers=2, capacity={Resource.DISK: 10 * GB})
    plan = planned(picture, drained=frozenset({2}))
    assert "no broker has the capacity for it (disk; it has 1,000,000,000 bytes)" in plan.problems[0]


def test_replication_factors_rise_and_fall():
    picture = picture_of(*[(1, 3)] * 8, brokers=6, racks="aabbcc")
    plan = planned(picture, factors={"t": 3}, must_only=True)
    assert all(len(move.new) == 3 and move.new[:2] == move.old for move in plan.moves)
    assert {move.new[2] for move in plan.moves} == {5, 6}
    check_hard_goals(picture, plan)
    plan = planned(picture, factors={"t": 1}, must_only=True)
    assert [move.new for move in plan.moves] == [(1,)] * 8
    assert plan.size_bytes == 0
    assert "cannot have 7 replicas" in planned(picture, factors={"t": 7}).problems[0]


def test_a_larger_disk_holds_more():
    picture = picture_of(*[(1 + each % 2,) for each in range(60)], brokers=2)
    brokers = [each._replace(capacity={Resource.DISK: each.node_id * 100 * GB}) for each in picture.brokers]
    held = after(picture, planned(picture._replace(brokers=brokers)))
    assert 36 <= sum(replicas == (2,) for replicas in held.values()) <= 44


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cluster(data: st.DataObject):
    brokers = range(1, data.draw(st.integers(1, 7)) + 1)
    nodes = [
        BrokerState(each, data.draw(st.sampled_from([None, "a", "b", "c"])), data.draw(st.integers(0, 9)) > 0)
        for each in brokers
    ]
    lists = data.draw(st.lists(st.lists(st.sampled_from(brokers), min_size=1, max_size=4, unique=True).map(tuple)))
    states = [
        PartitionState(
            TopicPartition("ab"[index % 2], PartitionIndex(index)),
            replicas,
            size_bytes=data.draw(st.sampled_from([0, 1, GB, 30 * GB])),
            in_rate=data.draw(st.sampled_from([0, 1e6])),
        )
        for index, replicas in enumerate(lists)
    ]
    picture = Picture(nodes, states)
    drained = frozenset(data.draw(st.lists(st.sampled_from(brokers), max_size=2)))
    plan = planned(picture, drained=drained)
    live = {each.node_id for each in nodes if each.is_live}
    for move in plan.moves:
        assert len(set(move.new)) == len(move.new) == len(move.old)
        assert {*move.new} - {*move.old} <= live - drained
        assert {*move.old} - drained <= live, "a partition that waits for a broker was touched"
    if not plan.problems:
        assert not any(drained & {*replicas} for replicas in after(picture, plan).values())
    for before, then in zip(plan.before, plan.after, strict=False):
        if not drained and before.resource is Resource.DISK and len({each.rack for each in nodes}) == 1:
            assert then.worst <= max(before.worst, 0.1) + 1e-9
