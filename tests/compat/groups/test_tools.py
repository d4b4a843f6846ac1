"""Apache Kafka's own commands for groups, and its kafka-dump-log over what our coordinator stores."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat.clients import DEADLINE_S

from .conftest import QUICK
from .crowd import Crowd, Writer, python_member
from .test_admin import KINDS

pytestmark = pytest.mark.long

Tool = Callable[..., str]
GROUPS = "consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PARTITIONS = 4


@pytest.fixture
def topic(bootstrap: str, create_topic: Callable[..., str]) -> str:
    """Ten records in each partition."""
    name = create_topic(PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10 * PARTITIONS):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0
    return name


def _rows(table: str) -> list[dict[str, str]]:
    """The rows of a table by its headings; columns are apart by spaces."""
    lines = [line for line in table.splitlines() if line.strip()]
    heading = next(index for index, line in enumerate(lines) if re.match(r"\s*(GROUP|TOPIC)\s", line))
    names = lines[heading].split()
    return [dict(zip(names, line.split(), strict=False)) for line in lines[heading + 1 :]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_at_work_is_described(bootstrap: str, kafka_tool: Tool, create_topic: Callable[..., str], kind: str):
    topic = create_topic(PARTITIONS)
    with Crowd(bootstrap, f"group-of-{topic}", topic, PARTITIONS) as crowd:
        writer = crowd.write()
        for _ in range(2):
            crowd.add(python_member("confluent"), **KINDS[kind])
        crowd.wait_shared()
        crowd.wait_read(writer.finish())
        time.sleep(0.5)
        options = ("--bootstrap-server", bootstrap, "--group", crowd.group)
        state = _rows(kafka_tool(GROUPS, *options, "--describe", "--state"))
        members = _rows(kafka_tool(GROUPS, *options, "--describe", "--members", "--verbose"))
        offsets = _rows(kafka_tool(GROUPS, *options, "--describe"))
        listed = kafka_tool(GROUPS, "--bootstrap-server", bootstrap, "--list", "--state", "stable", "--type", kind)
        crowd.close()
    assert (state[0]["GROUP"], state[0]["STATE"], state[0]["#MEMBERS"]) == (crowd.group, "Stable", "2")
    assert state[0]["ASSIGNMENT-STRATEGY"] == ("range" if kind == "classic" else "uniform")
    assert [row["#PARTITIONS"] for row in members] == ["2", "2"]
    assert {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LAG"]) for row in offsets} == {
        str(partition): (str(count), "0") for partition, count in enumerate(writer.written)
    }
    assert crowd.group in listed


def test_offsets_are_reset_deleted_and_gone(bootstrap: str, kafka_tool: Tool, topic: str):
    group = f"group-of-{topic}"
    options = ("--bootstrap-server", bootstrap, "--group", group)

    def reset(*how: str) -> dict[str, str]:
        rows = _rows(kafka_tool(GROUPS, *options, "--reset-offsets", *how))
        return {row["PARTITION"]: row["NEW-OFFSET"] for row in rows}

    def committed() -> dict[str, str]:
        rows = _rows(kafka_tool(GROUPS, *options, "--describe"))
        return {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows}

    everywhere = [str(partition) for partition in range(PARTITIONS)]
    assert reset("--topic", topic, "--to-latest", "--execute") == dict.fromkeys(everywhere, "10")
    assert committed() == dict.fromkeys(everywhere, "10")
    assert reset("--all-topics", "--shift-by", "-3", "--dry-run") == dict.fromkeys(everywhere, "7")
    assert committed() == dict.fromkeys(everywhere, "10")
    assert reset("--topic", f"{topic}:1,2", "--to-offset", "4", "--execute") == {"1": "4", "2": "4"}
    assert committed() == {"0": "10", "1": "4", "2": "4", "3": "10"}
    assert reset("--all-topics", "--to-datetime", "2001-01-01T00:00:00.000", "--execute") == dict.fromkeys(
        everywhere, "0"
    )
    kafka_tool(GROUPS, *options, "--delete-offsets", "--topic", f"{topic}:3")
    assert committed()["0"] == "0"
    assert committed().get("3", "-") == "-"
    assert group in kafka_tool("GroupsCommand", "--bootstrap-server", bootstrap, "--list")
    kafka_tool(GROUPS, *options, "--delete")
    assert group not in kafka_tool("GroupsCommand", "--bootstrap-server", bootstrap, "--list")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_reads_in_a_group(bootstrap: str, kafka_tool: Tool, topic: str, protocol: str):
    options = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", f"{protocol}-of-{topic}")
    settings = ("--command-property", f"group.protocol={protocol}", "--timeout-ms", "8000", "--from-beginning")
    first = kafka_tool("consumer.ConsoleConsumer", *options, *settings, "--max-messages", "25").split()
    rest = kafka_tool("consumer.ConsoleConsumer", *options, *settings, "--max-messages", "15").split()
    assert sorted(map(int, first + rest)) == list(range(10 * PARTITIONS))


def test_group_settings_are_changed(bootstrap: str, kafka_tool: Tool, fresh_name: Callable[[], str]):
    options = ("--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", fresh_name())
    kafka_tool(CONFIGS, *options, "--alter", "--add-config", "consumer.session.timeout.ms=20000")
    assert "consumer.session.timeout.ms=20000" in kafka_tool(CONFIGS, *options, "--describe")
    kafka_tool(CONFIGS, *options, "--alter", "--add-config", "consumer.session.timeout.ms=1", fails=True)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_coordinator_stores_is_read(kafka_tool: Tool, tmp_path: Path, kind: str):
    """The broker here is always ours, and stopped when its files are read."""
    from tailrace.testing import Broker

    with Broker({**QUICK, "offsets.topic.num.partitions": 1}, data=tmp_path / "data") as broker:
        with Crowd(broker.bootstrap, "stored", "records", PARTITIONS) as crowd:
            writer = Writer(broker.bootstrap, "records", 1)
            time.sleep(0.5)
            for index in range(2):
                crowd.add(python_member("confluent"), **KINDS[kind], **{"client.id": f"client-{index}"})
            deadline = time.monotonic() + DEADLINE_S
            while {0} not in [member.owned for member in crowd.members] and time.monotonic() < deadline:
                time.sleep(0.05)
            written = writer.finish()
            time.sleep(0.5)
            crowd.close()
        broker.stop()
    segments = sorted((tmp_path / "data" / "__consumer_offsets-0").glob("*.log"))
    output = kafka_tool("DumpLogSegments", "--offsets-decoder", "--files", ",".join(map(os.fspath, segments)))
    found = [
        (json.loads(key), None if value == "<DELETE>" else json.loads(value))
        for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\}|<DELETE>)$", output, re.MULTILINE)
    ]
    assert len(found) == output.count(" keySize: "), "every record is understood"
    kinds = {int(key["type"]) for key, _ in found}
    assert kinds == ({1, 2} if kind == "classic" else {1, 3, 5, 6, 7, 8})
    last = [value["data"] for key, value in found if key["type"] == "1" and value is not None][-1]
    assert int(last["offset"]) == written[0]
    clients = set(re.findall(r'"clientId":"(client-\d)"', output))
    assert clients == {"client-0", "client-1"}
