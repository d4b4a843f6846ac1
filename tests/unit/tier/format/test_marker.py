"""Whose store it is."""

import pytest

from tailrace.model.errors import StorageError
from tailrace.tier.format.marker import Marker, read_marker, write_marker


def test_it_says_what_was_written() -> None:
    assert read_marker(write_marker(Marker("c-1", 3))) == Marker("c-1", 3)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "another program"),
        (b"[]", "another program"),
        (b'{"version": 1}', "another program"),
        (b'{"version": 2, "cluster": "c", "generation": 0}', "version 2"),
        (b'{"version": 1, "cluster": "", "generation": 0}', "names no cluster"),
        (b'{"version": 1, "cluster": "../c", "generation": 0}', "names no cluster"),
        (b'{"version": 1, "cluster": "c", "generation": "x"}', "'x' as its generation"),
    ],
)
def test_what_is_none_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(StorageError, match=problem):
        read_marker(data)
