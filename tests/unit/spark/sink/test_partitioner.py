"""Rows go where Kafka's producer would send them."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tailrace.client.metadata import PartitionMetadata, TopicMetadata
from tailrace.client.partitioner import partition_for_key
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, Uuid
from tailrace.sim.random import SimRandom
from tailrace.spark.arrow.encode import Records
from tailrace.spark.sink.partitioner import Partitioner


def topic(name: str, count: int, *, leaderless: frozenset[int] = frozenset()) -> TopicMetadata:
    partitions = {
        index: PartitionMetadata(
            PartitionIndex(index),
            NodeId(-1 if index in leaderless else 1),
            0,
            (1,),
            (1,),
            (),
            ErrorCode.NONE,
        )
        for index in range(count)
    }
    return TopicMetadata(name, Uuid(bytes(16)), False, partitions)


def choose(
    keys: list[bytes | None],
    topics: list[TopicMetadata],
    *,
    topic_of_row: list[int] | None = None,
    partition: list[int | None] | None = None,
    run_bytes: int = 1000,
) -> list[tuple[str, int]]:
    records = Records.of(
        key=pa.array(keys, pa.binary()), value=pa.array([b"v" * 90] * len(keys), pa.binary()), headers=None
    )
    partitions, destinations = Partitioner(run_bytes, SimRandom(1)).choose(
        records,
        None if partition is None else pa.array(partition, pa.int32()),
        topics,
        np.array(topic_of_row or [0] * len(keys)),
    )
    return [tuple(partitions[each]) for each in destinations]


def test_a_key_decides_by_its_hash_among_the_partitions_of_its_topic() -> None:
    keys = [b"user-%d" % number for number in range(100)]
    topics = [topic("a", 3), topic("b", 12)]
    topic_of_row = [number % 2 for number in range(100)]

    chosen = choose(keys, topics, topic_of_row=topic_of_row)

    expected = [
        (topics[which].name, partition_for_key(key, len(topics[which].partitions)))
        for key, which in zip(keys, topic_of_row, strict=True)
    ]
    assert chosen == expected


def test_a_named_partition_wins_over_the_key_and_null_leaves_it_to_the_key() -> None:
    chosen = choose([b"k", b"k", None], [topic("a", 5)], partition=[4, None, 0])

    assert chosen == [("a", 4), ("a", partition_for_key(b"k", 5)), ("a", 0)]


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_partition_that_is_not_there_is_refused(wrong: int) -> None:
    with pytest.raises(KafkaError, match=f"column partition names {wrong}, and topic a has partitions 0 to 4"):
        choose([b"k"], [topic("a", 5)], partition=[wrong])


def test_rows_without_a_key_fill_one_batch_after_the_other_for_all_partitions_in_turn() -> None:
    # A row takes 99 bytes, so ten of them fit into a run.
    chosen = [partition for _, partition in choose([None] * 300, [topic("a", 3)])]

    runs = [(partition, len(list(run))) for partition, run in itertools.groupby(chosen)]
    assert {length for _, length in runs} == {10}
    assert {partition for partition, _ in runs[:3]} == {0, 1, 2}


def test_rows_without_a_key_avoid_partitions_without_a_leader() -> None:
    keys = [None, b"k"] * 100

    chosen = choose(keys, [topic("a", 3, leaderless=frozenset({0, 2}))])

    assert {partition for key, (_, partition) in zip(keys, chosen, strict=True) if key is None} == {1}
    assert chosen[1] == ("a", partition_for_key(b"k", 3))
