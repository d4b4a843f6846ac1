"""Where a key belongs: as Java's String.hashCode tells, for Kafka's own brokers must find the same place."""

import pytest

from tailrace.coordinator.placement import _remembered_hash, coordinator_partition

MANY = 1 << 31


@pytest.mark.parametrize(
    ("key", "number"),
    [("", 0), ("g", 103), ("hello", 99_162_322), ("polygenelubricants", 0), ("\N{GRINNING FACE}", 1_772_899)],
)
def test_keys_are_hashed_as_by_java(key: str, number: int) -> None:
    assert coordinator_partition(key, MANY) == number
    assert coordinator_partition(key, 50) == number % 50


def test_long_names_are_not_remembered():
    coordinator_partition("short", 50)
    before = _remembered_hash.cache_info().currsize
    assert coordinator_partition("x" * 32_767, 50) == coordinator_partition("x" * 32_767, 50)
    assert _remembered_hash.cache_info().currsize == before
