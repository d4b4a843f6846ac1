"""How a batch is divided among tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.splits import decide_splits, share_tasks
from tailrace.spark.tier.planning import Split, TierSplit
from tailrace.tier.format.names import TieredPartition

HOT = OffsetRange(TopicPartition("t", 0), 100, 1100)
COLD = OffsetRange(TopicPartition("t", 1), 5, 15)
EMPTY = OffsetRange(TopicPartition("t", 2), 7, 7)


def sizes(**options: int | None) -> list[int]:
    return [
        split.size
        for split in decide_splits([HOT, COLD, EMPTY], **{"min_partitions": None, "records_max": None} | options)
    ]


def test_a_partition_is_a_task_unless_told_otherwise():
    assert sizes() == [1000, 10]


def test_a_hot_partition_does_not_hold_the_job():
    assert sizes(min_partitions=2) == [500, 500, 10]
    assert sizes(min_partitions=4) == [250, 250, 250, 250, 10]


def test_a_task_has_a_bound():
    assert sizes(records_max=400) == [333, 333, 334, 10]
    assert sizes(records_max=400, min_partitions=2) == [333, 333, 334, 10]
    assert sizes(records_max=5) == [5] * 202


ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=6).map(
    lambda drawn: [OffsetRange(TopicPartition("t", i), start, start + size) for i, (start, size) in enumerate(drawn)]
)
limit = st.none() | st.integers(1, 40)


@given(ranges, limit, limit)
def test_all_is_read_once_in_equal_shares(wanted: list[OffsetRange], shares: int | None, most: int | None):
    splits = decide_splits(wanted, min_partitions=shares, records_max=most)
    for whole in wanted:
        parts = [split for split in splits if split.partition == whole.partition]
        assert [offset for part in parts for offset in range(part.start, part.end)] == list(
            range(whole.start, whole.end)
        )
        assert not parts or max(part.size for part in parts) - min(part.size for part in parts) <= 1
    assert all(split.size > 0 for split in splits)
    assert most is None or all(split.size <= most for split in splits)
    if shares is not None:
        share = -(-sum(whole.size for whole in wanted) // shares)
        assert all(split.size <= share for split in splits)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", PartitionIndex(index)), 7, 7 + size) for index, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("records", "tasks"),
    [
        (0, [[4], [3], [9], [1], [2]]),
        (7, [[4, 3], [9], [1, 2]]),
        (8, [[4, 3], [9], [1, 2]]),
        (100, [[4, 3, 9, 1, 2]]),
    ],
)
def test_small_ranges_share_a_task(records: int, tasks: list[list[int]]):
    shared = share_tasks(ranges(4, 3, 9, 1, 2), records)
    assert [[each.size for each in task if isinstance(each, OffsetRange)] for task in shared] == tasks


@given(st.lists(st.integers(1, 30)), st.integers(0, 40))
def test_all_is_read_once_in_the_same_order(sizes: list[int], records: int):
    shared = share_tasks(ranges(*sizes), records)
    assert [each for task in shared for each in task] == ranges(*sizes)
    assert all(len(task) == 1 or sum(size_of(each) for each in task) <= records for task in shared)


def size_of(split: Split) -> int:
    assert isinstance(split, OffsetRange)
    return split.size


def test_what_lies_in_a_bucket_has_a_task_of_its_own():
    wanted = OffsetRange(TopicPartition("t", PartitionIndex(9)), 0, 1)
    stored = TierSplit(wanted, TieredPartition(Uuid(bytes(16)), PartitionIndex(9)), (), ())
    first, second = ranges(1, 1)
    for records in (0, 100):
        assert share_tasks([first, stored, stored, second], records) == [(first,), (stored,), (stored,), (second,)]
        assert share_tasks([stored, first], records) == [(stored,), (first,)]
