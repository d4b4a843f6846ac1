"""Whose store it is."""

import pytest

from tailrace.model.config import parse_broker_config
from tailrace.model.errors import KafkaError, StorageError
from tailrace.tier.format.marker import Claim, Marker, read_claim, read_marker, write_marker


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


@pytest.mark.parametrize("claim", [Claim(), Claim(3, "1700000000000-a-b"), Claim(may_write=False)])
def test_a_claim_is_a_setting(claim: Claim) -> None:
    assert read_claim(str(claim)) == claim
    assert parse_broker_config({"node.id": "1", "remote.log.storage.recovery": str(claim)})


@pytest.mark.parametrize("text", ["3", "-x", "x-y", "readonly"])
def test_what_no_recovery_writes_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match=r"remote\.log\.storage\.recovery"):
        parse_broker_config({"node.id": "1", "remote.log.storage.recovery": text})


def test_the_later_of_two_recoveries_is_the_greater() -> None:
    ranks = [Claim().rank, Claim(1, "1700000000000-z").rank, Claim(1, "1700000000001-a").rank, Claim(2, "1").rank]
    assert ranks == sorted(ranks)
    assert Marker("c", 1, "x").rank == Claim(1, "x").rank
