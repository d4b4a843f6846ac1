"""Keys go where Kafka's own producer puts them."""

import itertools

import pytest

from tailrace.client.partitioner import StickyChoice, partition_for_key
from tailrace.sim.random import SimRandom
from tailrace.wire.murmur2 import murmur2


# Key, murmur2 as Java's int, and the partition of 12 that kafka-clients 4.3.0 produced to.
@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        (b"", 275646681, 9),
        (b"a", -1563381124, 4),
        (b"b", -1853091852, 8),
        (b"ab", 316155434, 2),
        (b"abc", 479470107, 3),
        (b"abcd", -1323649548, 8),
        (b"hello", 2132663229, 9),
        (b"kafka", -798503068, 4),
        (b"user-1234", -1663159204, 4),
        (b"The quick brown fox", -340512587, 9),
        ("é中😀".encode(), 1824111047, 11),
        (b"21", -973932308, 0),
    ],
)
def test_murmur2_as_java_has_it(key: bytes, hashed: int, partition: int):
    assert murmur2(key) == hashed % 2**32
    assert partition_for_key(key, 12) == partition


def test_records_without_a_key_stick_for_a_batch_and_then_move_on():
    choice = StickyChoice(SimRandom(1), batch_bytes=1000)
    chosen = [choice.choose([0, 1, 2], 100) for _ in range(300)]
    runs = [chosen[start : start + 10] for start in range(0, 300, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(first[0] != second[0] for first, second in itertools.pairwise(runs))
    assert {run[0] for run in runs} == {0, 1, 2}


def test_a_partition_that_lost_its_leader_is_left():
    choice = StickyChoice(SimRandom(1), batch_bytes=10**9)
    first = choice.choose([0, 1], 1)
    assert choice.choose([0, 1], 1) == first
    assert choice.choose([1 - first], 1) == 1 - first


def test_a_single_partition_is_always_chosen():
    choice = StickyChoice(SimRandom(1), batch_bytes=1)
    assert {choice.choose([4], 100) for _ in range(5)} == {4}
