"""Which replicas move when a broker comes or goes: enough, no more than needed, and never into fewer racks."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.cluster.moves import Replicas, decide_moves_off, decide_moves_to
from tailrace.model.ids import PartitionIndex, TopicPartition

NO_RACKS = dict.fromkeys(range(1, 5))


def partitions_of(*lists: Replicas, topic: str = "t") -> dict[TopicPartition, Replicas]:
    return {TopicPartition(topic, PartitionIndex(index)): replicas for index, replicas in enumerate(lists)}


def rotated(count: int, brokers: int = 3) -> dict[TopicPartition, Replicas]:
    return partitions_of(*(tuple((index + k) % brokers + 1 for k in range(3)) for index in range(count)))


def test_a_new_broker_gets_its_share_of_replicas_and_of_leaders():
    partitions = rotated(12)
    moves = decide_moves_to(4, partitions, NO_RACKS)
    after = partitions | moves
    counts = Counter(replica for replicas in after.values() for replica in replicas)
    assert counts == {1: 9, 2: 9, 3: 9, 4: 9}
    leads = Counter(replicas[0] for replicas in after.values())
    assert leads[4] == 3
    assert all(len(set(replicas)) == 3 for replicas in after.values())


def test_a_new_broker_gets_its_share_of_each_topic():
    large = {TopicPartition("large", partition): replicas for (_, partition), replicas in rotated(50).items()}
    moves = decide_moves_to(4, large | rotated(6), NO_RACKS)
    assert len(moves) == 42
    assert sum(partition.topic == "t" for partition in moves) in (4, 5)


def test_a_move_replaces_one_broker_and_leaves_the_others():
    partitions = rotated(12)
    for partition, replicas in decide_moves_to(4, partitions, NO_RACKS).items():
        assert sum(old != new for old, new in zip(partitions[partition], replicas, strict=True)) == 1


def test_nothing_moves_to_a_broker_that_has_its_share():
    partitions = rotated(12)
    after = partitions | decide_moves_to(4, partitions, NO_RACKS)
    assert decide_moves_to(4, after, NO_RACKS) == {}


def test_nothing_moves_in_an_empty_cluster():
    assert decide_moves_to(4, {}, NO_RACKS) == {}


def test_a_new_broker_does_not_take_a_partition_into_fewer_racks():
    racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    moves = decide_moves_to(4, rotated(12), racks)
    assert moves
    assert all({racks[replica] for replica in replicas} == {"a", "b", "c"} for replicas in moves.values())


def test_a_leaving_broker_is_emptied_and_the_rest_stays_even():
    partitions = rotated(12, brokers=4)
    moves, stuck = decide_moves_off(4, partitions, dict.fromkeys((1, 2, 3)))
    after = partitions | moves
    assert stuck == []
    assert Counter(replica for replicas in after.values() for replica in replicas) == {1: 12, 2: 12, 3: 12}


def test_a_leaving_broker_is_replaced_from_its_rack():
    racks = {1: "a", 2: "b", 3: "c", 5: "a", 6: "c"}
    moves, _ = decide_moves_off(4, partitions_of((4, 2, 1), (3, 2, 4)), racks)
    assert list(moves.values()) == [(6, 2, 1), (3, 2, 5)]


def test_partitions_that_no_other_broker_can_take_are_told():
    moves, stuck = decide_moves_off(3, partitions_of((1, 2, 3), (1, 3)), dict.fromkeys((1, 2)))
    assert stuck == [TopicPartition("t", PartitionIndex(0))]
    assert list(moves.values()) == [(1, 2)]


@given(st.data())
def test_any_cluster(data: st.DataObject):
    brokers = range(1, data.draw(st.integers(2, 6)) + 1)
    racks = {broker: data.draw(st.sampled_from([None, "a", "b"])) for broker in (*brokers, 9)}
    lists = data.draw(st.lists(st.lists(st.sampled_from(brokers), min_size=1, max_size=3, unique=True).map(tuple)))
    partitions = partitions_of(*lists)
    moves = decide_moves_to(9, partitions, racks)
    assert all(9 in replicas and len(set(replicas)) == len(replicas) for replicas in moves.values())
    assert len(moves) <= sum(map(len, lists)) // len(racks)
    staying = {broker: rack for broker, rack in racks.items() if broker != 1}
    off, stuck = decide_moves_off(1, partitions | moves, staying)
    assert all(1 not in replicas and len(set(replicas)) == len(replicas) for replicas in off.values())
    assert {*off, *stuck} == {each for each, replicas in (partitions | moves).items() if 1 in replicas}
