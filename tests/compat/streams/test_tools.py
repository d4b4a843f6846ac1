"""Kafka's own command for streams groups, and ours."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.streams.application import DEADLINE_S, Application, Topics

pytestmark = pytest.mark.long

STREAMS_GROUPS = "streams.StreamsGroupCommand"


def test_a_group_is_listed_described_reset_and_deleted(
    bootstrap: str, fresh_name: Callable[[], str], word_count: list[str], tmp_path: Path, kafka_tool: Callable[..., str]
) -> None:
    topics = Topics(bootstrap, fresh_name())
    name = topics.application
    topics.write(100)
    at = ("--bootstrap-server", bootstrap)
    with Application(word_count, topics, "streams", tmp_path) as application:
        topics.wait_counted()
        application.wait_tasks(4)
        listed = kafka_tool(STREAMS_GROUPS, *at, "--list", "--state")
        assert [name, "Stable"] in [line.split() for line in listed.splitlines()]
        states = kafka_tool(STREAMS_GROUPS, *at, "--describe", "--group", name, "--state")
        assert "Stable" in states
        members = kafka_tool(STREAMS_GROUPS, *at, "--describe", "--group", name, "--members", "--verbose")
        assert "ACTIVE" in members
        lag = kafka_tool(STREAMS_GROUPS, *at, "--describe", "--group", name)
        assert f"{name}-by-word-repartition" in lag
        refused = kafka_tool(STREAMS_GROUPS, *at, "--delete", "--group", name)
        assert "NON_EMPTY" in refused.upper() or "not empty" in refused.lower(), refused
        application.close(leaves=True)
    reset = ("--reset-offsets", "--group", name, "--to-earliest", "--input-topic", topics.lines)
    planned = kafka_tool(STREAMS_GROUPS, *at, *reset, "--dry-run")
    assert topics.lines in planned
    done = kafka_tool(STREAMS_GROUPS, *at, *reset, "--execute")
    assert topics.lines in done
    described = json.loads(our_command("group", "describe", name, "--json", "--bootstrap", bootstrap))
    offsets = {each["topic"]: each["committed"] for each in described["partitions"]}
    assert (described["type"], described["state"], offsets[topics.lines]) == ("streams", "Empty", 0)
    deleted = kafka_tool(STREAMS_GROUPS, *at, "--delete", "--group", name)
    assert "successful" in deleted, deleted
    assert name not in kafka_tool(STREAMS_GROUPS, *at, "--list").split()


def test_our_own_commands(bootstrap: str, fresh_name: Callable[[], str], word_count: list[str], tmp_path: Path) -> None:
    topics = Topics(bootstrap, fresh_name())
    topics.write(100)
    with Application(word_count, topics, "streams", tmp_path) as application:
        topics.wait_counted()
        application.wait_tasks(4)
        described = json.loads(our_command("group", "describe", topics.application, "--json", "--bootstrap", bootstrap))
        (member,) = described["members"]
        assert sorted(member["tasks"]["active"]) == ["0_0", "0_1", "1_0", "1_1"]
        assert (described["type"], described["state"], described["lag"]) == ("streams", "Stable", 0)
        listed = our_command("group", "list", "--type", "streams", "--bootstrap", bootstrap)
        assert topics.application in listed


def our_command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
