"""`tailrace topic`, against a real broker."""

import itertools
import json
from collections.abc import Callable

import pytest

from tailrace.cli import main
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]
_numbers = itertools.count()


@pytest.fixture
def run(tailrace_broker: Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*words: str) -> tuple[int, str, str]:
        try:
            code = main(["topic", *words, "--bootstrap", tailrace_broker.bootstrap])
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


@pytest.fixture
def name() -> str:
    return f"cli-topic-{next(_numbers)}"


def described(run: Run, name: str) -> dict:
    code, out, _ = run("describe", name, "--json")
    assert code == 0
    return json.loads(out)


def test_the_life_of_a_topic(run: Run, name: str):
    assert run("create", name, "--partitions", "2", "--set", "retention.ms=1000") == (
        0,
        f"created topic {name} with 2 partitions\n",
        "",
    )
    assert f"{name}\t2\t1\n" in run("list")[1]
    code, out, _ = run("alter", name, "--partitions", "3", "--set", "segment.ms=9000", "--unset", "retention.ms")
    assert code == 0
    assert "3 in all" in out
    facts = described(run, name)
    assert [partition["partition"] for partition in facts["partitions"]] == [0, 1, 2]
    assert facts["settings"] == {"segment.ms": {"value": "9000", "source": "topic"}}
    assert run("delete", name) == (0, f"deleted topic {name}\n", "")
    assert name not in run("list")[1]


def test_plain_lines_of_a_description(run: Run, name: str):
    run("create", name, "--set", "segment.ms=9000")
    _, out, _ = run("describe", name)
    assert out == f"{name}\t0\t1\t1\t1\t0\t0\n{name}\tsegment.ms\t9000\ttopic\n"
    _, out, _ = run("describe", name, "--all-settings")
    assert f"{name}\tcleanup.policy\tdelete\tdefault\n" in out


def test_json_of_creation_and_list(run: Run, name: str):
    created = json.loads(run("create", name, "--json")[1])
    assert created["name"] == name
    listed = [json.loads(line) for line in run("list", "--json")[1].splitlines()]
    assert created["id"] in [topic["id"] for topic in listed]


def test_a_topic_that_is_there_already(run: Run, name: str):
    run("create", name)
    code, out, err = run("create", name)
    assert (code, out) == (1, "")
    assert err.startswith("tailrace: ")
    assert "TOPIC_ALREADY_EXISTS" in err
    assert err.count("\n") == 1
    assert run("create", name, "--if-not-exists")[0] == 0


def test_a_topic_that_is_not_there(run: Run, name: str):
    for words in (("describe", name), ("delete", name), ("alter", name, "--partitions", "4")):
        code, out, err = run(*words)
        assert (code, out) == (1, "")
        assert "UNKNOWN_TOPIC_OR_PARTITION" in err
        assert err.count("\n") == 1
    assert run("delete", name, "--if-exists") == (0, "", f"topic {name} is not there\n")


def test_validate_only_changes_nothing(run: Run, name: str):
    assert "could create" in run("create", name, "--validate-only")[1]
    assert name not in run("list")[1]
    run("create", name)
    assert run("alter", name, "--partitions", "2", "--set", "segment.ms=9000", "--validate-only")[0] == 0
    facts = described(run, name)
    assert (len(facts["partitions"]), facts["settings"]) == (1, {})


@pytest.mark.parametrize(
    "words",
    [
        ("create",),
        ("create", "x", "--set", "novalue"),
        ("create", "x", "--partitions", "many"),
        ("alter", "x"),
        ("rename", "x"),
        ("list", "--timeout", "0"),
    ],
)
def test_usage_errors(run: Run, words: tuple[str, ...]):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "usage: tailrace topic" in err


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_:
        main(["topic", "list", "--bootstrap", "host:port"])
    assert exit_.value.code == 2
    assert "expected host:port, such as 127.0.0.1:9092" in capsys.readouterr().err


def test_no_broker(capsys: pytest.CaptureFixture[str]):
    assert main(["topic", "list", "--bootstrap", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "tailrace: cannot reach 127.0.0.1:1: connection refused; is the broker running? start one with: tailrace up\n"
    )


@pytest.mark.parametrize("action", ["create", "list", "describe", "alter", "delete"])
def test_help_shows_an_example(action: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["topic", action, "--help"])
    assert f"example:\n  tailrace topic {action}" in capsys.readouterr().out
