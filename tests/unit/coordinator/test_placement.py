"""Where a key belongs: as Java's String.hashCode tells, for Kafka's own brokers must find the same place."""

import pytest

from tailrace.coordinator.placement import coordinator_partition

MANY = 1 << 31


@pytest.mark.parametrize(
    ("key", "number"),
    [("", 0), ("g", 103), ("hello", 99_162_322), ("polygenelubricants", 0), ("\N{GRINNING FACE}", 1_772_899)],
)
def test_keys_are_hashed_as_by_java(key: str, number: int) -> None:
    assert coordinator_partition(key, MANY) == number
    assert coordinator_partition(key, 50) == number % 50
