"""`tailrace quota` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Run = Callable[..., tuple[int, str, str]]


def listed(run: Run, *words: str) -> list[dict[str, object]]:
    code, out, _ = run("quota", "list", "--json", *words)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(autouse=True)
def clean(run: Run) -> None:
    """One broker serves all tests."""
    for each in listed(run):
        entity = each["entity"]
        assert isinstance(entity, dict)
        words = [word for kind, name in entity.items() for word in _option(kind, name)]
        assert run("quota", "remove", *words)[0] == 0


def _option(kind: str, name: str | None) -> tuple[str, ...]:
    return (f"--{kind}-default",) if name is None else (f"--{kind}", name)


def test_quotas_are_set_listed_and_removed(run: Run) -> None:
    code, out, err = run(
        "quota", "set", "--user", "alice", "--set", "producer_byte_rate=1048576", "--set", "request_percentage=0.5"
    )
    assert (code, out) == (0, "")
    assert err == "user alice: set producer_byte_rate=1048576, request_percentage=0.5\n"
    assert run("quota", "set", "--user-default", "--client-id", "app", "--set", "consumer_byte_rate=7")[0] == 0
    code, out, err = run("quota", "set", "--ip", "10.0.0.7", "--set", "connection_creation_rate=20", "--json")
    assert json.loads(out) == {"entity": {"ip": "10.0.0.7"}, "quotas": {"connection_creation_rate": 20.0}}
    assert listed(run) == [
        {"entity": {"client-id": "app", "user": None}, "quotas": {"consumer_byte_rate": 7.0}},
        {"entity": {"ip": "10.0.0.7"}, "quotas": {"connection_creation_rate": 20.0}},
        {"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1048576.0, "request_percentage": 0.5}},
    ]
    assert run("quota", "list", "--user", "alice")[1].splitlines() == [
        "alice\t-\t-\tproducer_byte_rate\t1048576",
        "alice\t-\t-\trequest_percentage\t0.5",
    ]
    assert run("quota", "list", "--user-default")[1] == "<default>\tapp\t-\tconsumer_byte_rate\t7\n"
    assert run("quota", "remove", "--user", "alice", "--key", "producer_byte_rate")[0] == 0
    assert listed(run, "--user", "alice") == [{"entity": {"user": "alice"}, "quotas": {"request_percentage": 0.5}}]
    assert run("quota", "remove", "--user", "alice")[0] == 0
    assert listed(run, "--user", "alice") == []


def test_what_is_wrong_is_told(run: Run) -> None:
    code, _, err = run("quota", "set", "--user", "alice", "--set", "producer_byte_rate=0")
    assert (code, "must be greater than 0 (INVALID_REQUEST)" in err) == (1, True)
    code, _, err = run("quota", "set", "--user", "alice", "--set", "producer_byte_rate=fast")
    assert (code, "is not a number" in err) == (1, True)
    code, _, err = run("quota", "set", "--set", "producer_byte_rate=1")
    assert (code, "say for whom" in err) == (2, True)
    code, _, err = run("quota", "remove", "--user", "nobody")
    assert (code, "There is no quota for user nobody" in err) == (1, True)
    assert run("quota", "set", "--user", "alice", "--set", "producer_byte_rate=5")[0] == 0
    code, _, err = run("quota", "remove", "--user", "alice", "--key", "consumer_byte_rate")
    assert (code, "There is no consumer_byte_rate for user alice" in err) == (1, True)
