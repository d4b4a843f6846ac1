"""`tailrace group` and `tailrace consume --group`, against a real broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from threading import Event, Thread

import pytest

from tailrace.cli.group import describe
from tailrace.client.admin import Admin
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer
from tailrace.real.ports import real_ports
from tailrace.testing import Broker

Run = Callable[..., tuple[int, str, str]]
_numbers = itertools.count()


@pytest.fixture
def name(tailrace_broker: Broker) -> str:
    """A topic with records 0 to 9 in partition 0 and 10 to 14 in partition 1, a second apart; and a group."""
    name = f"cli-group-{next(_numbers)}"

    async def produce(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partition_count=2)
        async with Producer(cluster) as producer:
            for number in range(15):
                partition = int(number >= 10)
                await producer.send(
                    name, b"%d" % number, partition=partition, timestamp=1_790_000_000_000 + 1000 * number
                )

    do(tailrace_broker, produce)
    return name


def do(broker: Broker, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async def with_cluster() -> None:
        cluster = Cluster(real_ports(), parse_bootstrap(broker.bootstrap))
        try:
            await work(cluster)
        finally:
            cluster.close()

    asyncio.run(with_cluster())


@pytest.fixture
def member(tailrace_broker: Broker, name: str) -> Iterator[None]:
    """The group has a member that has both partitions, until the test is over."""
    is_assigned, is_over = Event(), Event()

    async def consume(cluster: Cluster) -> None:
        options = GroupOptions(name, MemberOptions(topics=(name,)), auto_commit_interval_ms=None)
        consumer = GroupConsumer(cluster, options, on_assigned=lambda _: is_assigned.set())
        while not is_over.is_set():
            await consumer.poll(50)
        await consumer.close()

    thread = Thread(target=do, args=(tailrace_broker, consume))
    thread.start()
    assert is_assigned.wait(15)
    yield
    is_over.set()
    thread.join(15)


def described(run: Run, group: str) -> dict:
    code, out, _ = run("group", "describe", group, "--json")
    assert code == 0
    return json.loads(out)


def committed(run: Run, group: str) -> list[int | None]:
    return [found["committed"] for found in described(run, group)["partitions"]]


def test_a_group_reads_on_where_it_has_stopped(run: Run, name: str):
    code, out, err = run("consume", name, "--group", name, "--count", "4")
    assert (code, len(out.split())) == (0, 4)
    assert "assigned 2 partitions" in err
    facts = described(run, name)
    assert (facts["type"], facts["state"], facts["members"], facts["lag"]) == ("consumer", "Empty", [], 11)
    code, rest, _ = run("consume", name, "--group", name, "--until-end")
    assert code == 0
    assert sorted(map(int, out.split() + rest.split())) == list(range(15))
    assert run("consume", name, "--group", name, "--until-end")[1] == ""
    assert committed(run, name) == [10, 5]


def test_beginning_at_the_end(run: Run, name: str):
    assert run("consume", name, "--group", name, "--from", "end", "--until-end")[:2] == (0, "")
    assert committed(run, name) == [10, 5]


def test_a_topic_that_is_not_there(run: Run):
    code, out, err = run("consume", "no-such-topic", "--group", "g")
    assert (code, out) == (1, "")
    assert "topic no-such-topic does not exist" in err


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_member_that_is_ended_leaves_the_group(tailrace_broker: Broker, run: Run, name: str, end: signal.Signals):
    words = ["consume", name, "--group", name, "--bootstrap", tailrace_broker.bootstrap]
    with subprocess.Popen([sys.executable, "-m", "tailrace", *words], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(15)]
            process.send_signal(end)
            assert process.wait(15) == 130
        finally:
            process.kill()
    assert sorted(int(line) for line in lines) == list(range(15))
    assert described(run, name)["members"] == []
    assert committed(run, name) == [10, 5]


def test_what_nobody_has_read_from_the_pipe_is_not_committed(tailrace_broker: Broker, run: Run, name: str):
    words = ["consume", name, "--group", name, "--bootstrap", tailrace_broker.bootstrap]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-m", "tailrace", *words], stdout=writing, timeout=15, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert described(run, name)["lag"] == 15


@pytest.mark.parametrize("words", [("--partition", "0"), ("--from", "3"), ("--from-time", "-5m")])
def test_a_group_has_its_own_offsets(run: Run, words: tuple[str, ...]):
    code, _, err = run("consume", "t", "--group", "g", *words)
    assert code == 2
    assert "reads on from what the group has committed" in err


def test_who_has_what(run: Run, name: str, member: None):
    facts = described(run, name)
    assert (facts["state"], facts["assignor"], facts["lag"]) == ("Stable", "uniform", 0)
    (found,) = facts["members"]
    assert sorted(found["assignment"]) == sorted(found["target"]) == [f"{name}-0", f"{name}-1"]
    assert {each["member_id"] for each in facts["partitions"]} == {found["member_id"]}
    assert [(each["end"], each["lag"]) for each in facts["partitions"]] == [(10, None), (5, None)]
    code, out, _ = run("group", "describe", name)
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == f"{name}\t{name}\t0\t-\t10\t-\t{found['member_id']}\t127.0.0.1\t-\t-"
    assert lines[2].startswith(f"{name}\t{found['member_id']}\t-\ttailrace\t127.0.0.1\t")
    assert lines[2].endswith("\t2\t2")


def test_lists(run: Run, name: str, member: None):
    assert f"{name}\tconsumer\tStable\tconsumer\t1\t-\t-\t-\n" in run("group", "list")[1]
    assert name not in run("group", "list", "--state", "empty")[1]
    assert name in run("group", "list", "--state", "stable", "--type", "consumer")[1]
    listed = [json.loads(line) for line in run("group", "list", "--json")[1].splitlines()]
    assert {
        "group_id": name,
        "type": "consumer",
        "state": "Stable",
        "protocol_type": "consumer",
        "coordinator_id": 1,
        "lag": None,
        "lag_s": None,
        "verdict": None,
    } in (listed)


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 5]),
        (["--to-offset", "7"], [7, 5]),
        (["--to-datetime", "2026-09-21T14:13:27Z"], [7, 0]),
        (["--to-datetime", "1790000012000"], [10, 2]),
        (["--by-duration", "3650d"], [0, 0]),
    ],
)
def test_offsets_are_shown_and_then_set(run: Run, name: str, words: list[str], offsets: list[int]):
    code, out, err = run("group", "reset", name, "--topic", name, *words)
    assert code == 0
    assert [line.split("\t")[4] for line in out.splitlines()] == list(map(str, offsets))
    assert "nothing was changed: add --execute" in err
    assert run("group", "describe", name)[0] == 1
    code, out, err = run("group", "reset", name, "--topic", name, *words, "--execute")
    assert (code, "nothing was changed" in err) == (0, False)
    assert committed(run, name) == offsets


def test_offsets_are_shifted_within_the_partition(run: Run, name: str):
    run("group", "reset", name, "--topic", f"{name}:0,1", "--to-offset", "4", "--execute")
    run("group", "reset", name, "--all-topics", "--shift-by", "3", "--execute")
    assert committed(run, name) == [7, 5]
    code, out, _ = run("group", "reset", name, "--topic", f"{name}:0", "--shift-by", "-5", "--execute", "--json")
    assert code == 0
    assert json.loads(out) == {
        "group_id": name,
        "topic": name,
        "partition": 0,
        "before": 7,
        "after": 2,
        "lag": 8,
        "executed": True,
    }
    assert committed(run, name) == [2, 5]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--all-topics", "--to-latest"], "has committed no offsets: name the topics, with --topic"),
        (["--topic", "NAME:2", "--to-latest"], "has no partition 2: it has 0 to 1"),
        (["--topic", "NAME:x", "--to-latest"], "is not TOPIC or TOPIC:N,..."),
        (["--topic", "NAME", "--shift-by", "-1"], "has no committed offset to shift"),
        (["--topic", "no-such-topic", "--to-latest"], "topic no-such-topic does not exist"),
    ],
)
def test_resets_that_make_no_sense(run: Run, name: str, words: list[str], problem: str):
    code, out, err = run("group", "reset", name, *(word.replace("NAME", name) for word in words), "--execute")
    assert (code, out) == (1, "")
    assert problem in err


def test_a_group_with_members_is_left_alone(run: Run, name: str, member: None):
    code, out, err = run("group", "reset", name, "--topic", name, "--to-latest", "--execute")
    assert (code, out) == (1, "")
    assert "has 1 member, which would commit over it: stop them first" in err
    code, _, err = run("group", "delete", name)
    assert code == 1
    assert f"group {name} has members: stop them first" in err


def test_deleting(run: Run, name: str):
    run("group", "reset", name, "--topic", name, "--to-latest", "--execute")
    assert run("group", "delete", name) == (0, f"deleted group {name}\n", "")
    assert run("group", "delete", name)[0] == 1
    assert run("group", "delete", name, "--if-exists") == (0, "", f"group {name} is not there\n")
    code, _, err = run("group", "describe", name)
    assert (code, err) == (1, f"tailrace: group {name} does not exist (GROUP_ID_NOT_FOUND)\n")


def test_why_it_rebalanced(run: Run, name: str):
    run("consume", name, "--group", name, "--count", "1")
    code, out, _ = run("group", "history", name)
    assert code == 0
    joined, left = [line.split("\t") for line in out.splitlines()]
    assert (joined[0], joined[3], left[3]) == (name, "member joined", "member left")
    assert joined[1] <= left[1]
    found = [json.loads(line) for line in run("group", "history", name, "--json")[1].splitlines()]
    assert [each["cause"] for each in found] == ["member joined", "member left"]
    assert name in run("group", "history")[1]
    assert "has not rebalanced" in run("group", "history", "nobody")[2]


def test_watching_goes_on_until_it_is_interrupted(run: Run, name: str, monkeypatch: pytest.MonkeyPatch):
    run("group", "reset", name, "--topic", name, "--to-latest", "--execute")
    rounds = 0

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(describe.asyncio, "sleep", sleep)
    code, out, _ = run("group", "describe", name, "--json", "--watch", "0.5")
    assert code == 130
    assert [json.loads(line)["lag"] for line in out.splitlines()] == [0, 0, 0]
