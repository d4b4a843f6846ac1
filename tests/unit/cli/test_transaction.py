"""`tailrace transaction`, and `produce` and `consume` with transactions, against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.transactions.producer import TransactionalProducer, TransactionOptions
from tailrace.real.ports import real_ports
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """The name of a topic, and of a transactional id."""
    return f"cli-transaction-{next(_numbers)}"


@pytest.fixture
def produce(run: Run, name: str, tmp_path: Path) -> Run:
    def produce_lines(content: str, *words: str) -> tuple[int, str, str]:
        path = tmp_path / "input"
        path.write_text(content)
        return run("produce", name, "--file", str(path), "--transactional-id", name, *words)

    return produce_lines


@pytest.fixture
def hanging(tailrace_broker: Broker, name: str) -> str:
    """A transaction is open in partition 0 of the topic, from offset 0 on: its producer is gone."""

    async def leave_open() -> None:
        cluster = Cluster(real_ports(), parse_bootstrap(tailrace_broker.bootstrap))
        await Admin(cluster).create_topic(name)
        producer = TransactionalProducer(cluster, TransactionOptions(name, timeout_ms=600_000))
        await producer.init()
        producer.begin()
        await (await producer.send(name, b"x"))
        producer.close()
        cluster.close()

    asyncio.run(leave_open())
    return name


def values(run: Run, name: str, *words: str) -> list[str]:
    code, out, _ = run("consume", name, "--until-end", *words)
    assert code == 0
    return out.split()


def test_all_lines_go_into_one_transaction(run: Run, produce: Run, name: str):
    assert produce("a\nb\nc\n") == (0, "", "")
    described = json.loads(run("transaction", "describe", name, "--json")[1])
    assert (described["state"], described["producer_epoch"]) == ("CompleteCommit", 1)
    assert values(run, name, "--isolation", "read_committed") == ["a", "b", "c"]


def test_a_line_that_is_no_record_aborts_what_was_not_committed(run: Run, produce: Run, name: str):
    code, _, err = produce("k:a\nk:b\nk:c\nbad\n", "--key-separator", ":", "--transaction-records", "2")
    assert (code, "line 4 has no key separator" in err) == (1, True)
    assert values(run, name, "--isolation", "read_committed") == ["a", "b"]


def test_a_transaction_that_fails_says_why(run: Run, produce: Run, name: str):
    run("topic", "create", name, "--set", "max.message.bytes=1000")
    code, _, err = produce(f"a\n{'b' * 2000}\n")
    assert (code, "has to be aborted: MESSAGE_TOO_LARGE" in err) == (1, True)
    assert values(run, name, "--isolation", "read_committed") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--acks", "1"], "a transaction needs --acks all"),
        (["--transaction-records", "0"], "expected a number above 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(produce: Run, words: list[str], said: str):
    code, _, err = produce("a\n", *words)
    assert (code, said in err) == (2, True)


def test_only_committed_records_are_printed_and_the_end_is_found(run: Run, hanging: str):
    assert values(run, hanging) == ["x"]
    assert values(run, hanging, "--isolation", "read_committed") == []
    assert values(run, hanging, "--isolation", "read_committed", "--group", hanging) == []
    run("transaction", "abort", "--topic", hanging, "--partition", "0", "--start-offset", "0", "--force", "--execute")
    # All that there is was aborted, or is a marker.
    assert values(run, hanging, "--isolation", "read-committed") == []
    code, _, err = run("consume", hanging, "--isolation", "serializable")
    assert (code, "is not read_uncommitted or read_committed" in err) == (2, True)


def test_transactions_are_listed_and_described(run: Run, hanging: str):
    code, out, _ = run("transaction", "list", "--state", "Ongoing", "--pattern", hanging)
    assert (code, out.split("\t")[0], out.split("\t")[2]) == (0, hanging, "Ongoing")
    assert run("transaction", "list", "--pattern", hanging, "--longer-than", "1000")[1] == ""
    code, out, _ = run("transaction", "describe", hanging)
    assert code == 0
    assert f"{hanging}\tOngoing\t" in out
    assert f"{hanging}-0" in out
    code, _, err = run("transaction", "describe", "nobody")
    assert (code, "transactional id nobody does not exist" in err) == (1, True)


def test_a_transaction_of_a_coordinator_hangs_only_once_it_is_old(run: Run, hanging: str):
    assert run("transaction", "find-hanging", "--topic", hanging) == (0, "", "no transaction hangs\n")
    code, out, _ = run("transaction", "find-hanging", "--topic", hanging, "--max-age", "0.001", "--json")
    found = json.loads(out)
    assert (code, found["topic"], found["partition"], found["start_offset"]) == (0, hanging, 0, 0)
    assert (found["transactional_id"], "gives it 600 s" in found["reason"]) == (hanging, True)
    code, out, _ = run("transaction", "find-hanging", "--topic", hanging, "--max-age", "0.001")
    assert out.startswith(f"{hanging}\t0\t0\t")


def test_an_abort_is_shown_first_and_refused_for_what_a_coordinator_knows(run: Run, hanging: str):
    where = ("--topic", hanging, "--partition", "0", "--start-offset")
    code, _, err = run("transaction", "abort", *where, "5")
    assert (code, "those that are open there begin at 0" in err) == (1, True)
    code, _, err = run("transaction", "abort", *where, "0", "--execute")
    assert (code, f"it is that of {hanging}" in err) == (1, True)
    code, out, err = run("transaction", "abort", *where, "0", "--force")
    assert (code, out.startswith("would abort"), "add --execute" in err) == (0, True, True)
    code, out, _ = run("transaction", "abort", *where, "0", "--force", "--execute", "--json")
    assert (code, json.loads(out)["aborted"]) == (0, True)
    code, _, err = run("transaction", "abort", *where, "0", "--force", "--execute")
    assert (code, "none is open there" in err) == (1, True)
