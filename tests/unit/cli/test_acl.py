"""`tailrace acl`, against a real broker with an authorizer: whoever does not log in may do everything there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tailrace.cli import main
from tailrace.model.config import STANDARD_AUTHORIZER
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def guarded_broker() -> Iterator[Broker]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:root"}
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def acl(guarded_broker: Broker, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(["acl", *words, "--bootstrap", guarded_broker.bootstrap])
        except SystemExit as exit_:
            code = exit_.code
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    yield run
    run("remove", "--all")


def rows(out: str) -> set[tuple[str, ...]]:
    return {tuple(line.split("\t")) for line in out.splitlines()}


def test_bundles(acl: Run) -> None:
    assert acl("add", "alice", "--producer", "--topic", "orders", "--transactional-id", "loader")[0] == 0
    assert acl("add", "User:bob", "--consumer", "--topic", "o", "--group", "billing", "--prefixed")[0] == 0
    code, out, _ = acl("list")
    assert code == 0
    assert rows(out) == {
        ("User:alice", "ALLOW", "WRITE", "TOPIC", "LITERAL", "orders", "*"),
        ("User:alice", "ALLOW", "DESCRIBE", "TOPIC", "LITERAL", "orders", "*"),
        ("User:alice", "ALLOW", "CREATE", "TOPIC", "LITERAL", "orders", "*"),
        ("User:alice", "ALLOW", "WRITE", "TRANSACTIONAL_ID", "LITERAL", "loader", "*"),
        ("User:alice", "ALLOW", "DESCRIBE", "TRANSACTIONAL_ID", "LITERAL", "loader", "*"),
        ("User:bob", "ALLOW", "READ", "TOPIC", "PREFIXED", "o", "*"),
        ("User:bob", "ALLOW", "DESCRIBE", "TOPIC", "PREFIXED", "o", "*"),
        ("User:bob", "ALLOW", "READ", "GROUP", "PREFIXED", "billing", "*"),
    }


def test_what_fits_a_name_is_found_and_removed(acl: Run) -> None:
    acl("add", "alice", "--operation", "read", "--topic", "orders")
    acl("add", "*", "--operation", "all", "--topic", "ord", "--prefixed", "--deny", "--host", "10.0.0.1")
    acl("add", "alice", "--operation", "alter-configs", "--cluster")
    assert len(rows(acl("list", "--topic", "orders")[1])) == 1
    _, out, _ = acl("list", "--topic", "orders", "--match", "--json")
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["ord", "orders"]
    code, out, err = acl("remove", "--topic", "orders", "--match")
    assert (code, len(rows(out)), err) == (0, 2, "removed 2 ACLs\n")
    assert rows(acl("list")[1]) == {
        ("User:alice", "ALLOW", "ALTER_CONFIGS", "CLUSTER", "LITERAL", "kafka-cluster", "*")
    }


def test_explain_names_the_rule(acl: Run) -> None:
    question = ("explain", "alice", "describe", "topic:orders")
    assert acl(*question) == (1, "denied: no ACL allows it\n", "")
    acl("add", "alice", "--operation", "write", "--topic", "orders")
    assert acl(*question)[:2] == (0, "allowed: ALLOW User:alice WRITE TOPIC:LITERAL:orders from *\n")
    acl("add", "*", "--operation", "describe", "--topic", "ord", "--prefixed", "--deny", "--host", "10.0.0.1")
    assert acl(*question)[0] == 0
    code, out, _ = acl(*question, "--host", "10.0.0.1", "--json")
    answer = json.loads(out)
    assert (code, answer["allowed"], answer["rule"]["name"], answer["rule"]["permission"]) == (1, False, "ord", "DENY")
    code, out, _ = acl("explain", "root", "alter", "cluster")
    assert (code, out) == (0, "allowed: the principal is one of super.users\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "alice", "--consumer", "--topic", "t"), "--consumer needs --group NAME"),
        (("add", "alice", "--transactional", "--topic", "t"), "--transactional needs --transactional-id NAME"),
        (("add", "alice", "--producer", "--topic", "t", "--cluster"), "use --operation for the rest"),
        (("add", "alice", "--operation", "read"), "name a resource"),
        (("add", "alice", "--operation", "fly", "--topic", "t"), "'fly' is no operation: all, read"),
        (("add", "User:", "--operation", "read", "--topic", "t"), "is nobody"),
        (("remove",), "say which ACLs"),
        (("explain", "alice", "read", "orders"), "'orders' is no resource"),
    ],
    ids=str,
)
def test_what_cannot_be_meant(acl: Run, words: tuple[str, ...], told: str) -> None:
    code, _, err = acl(*words)
    assert code == 2
    assert told in err


def test_a_broker_without_an_authorizer_says_so(run: Run) -> None:
    code, _, err = run("acl", "list")
    assert code == 1
    assert "set authorizer.class.name (SECURITY_DISABLED)" in err
