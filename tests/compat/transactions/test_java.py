"""The Java client as a transactional producer: 4.3, whose epoch rises with every transaction, and 3.9, which adds its
partitions itself; and kafka-transactions.sh, kafka-dump-log."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat.clients import DEADLINE_S
from tests.compat.conftest import maven_jars

from .journal import Writer, check_all_or_nothing
from .reading import read_confluent
from .writer import PARTITIONS

pytestmark = pytest.mark.long

READ_DEADLINE_S = 60.0
TRANSACTIONS = "TransactionsCommand"


@pytest.fixture(params=["4.3", "3.9"], scope="module")
def java(request: pytest.FixtureRequest, compile_java: Callable[..., list[str]]) -> list[str]:
    if request.param == "4.3":
        return compile_java("Transactions")
    return compile_java("Transactions", maven_jars("tests/compat/java/old/pom.xml"))


def test_a_killed_producer_leaves_whole_transactions(bootstrap: str, create_topic: Callable[..., str], java: list[str]):
    topic = create_topic(PARTITIONS)
    begun: list[int] = []
    ended: list[int] = []
    for life in range(4):
        writer = Writer([*java, "write", bootstrap, topic, f"writer-of-{topic}", str(1000 * life)])
        writer.wait_for(50)
        writer.kill()
        begun += writer.begun
        ended += writer.ended
    # Whoever comes next ends what the last one has left open.
    last = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-of-{topic}"})
    last.init_transactions(DEADLINE_S)
    command = [*java, "read", bootstrap, topic, str(PARTITIONS)]
    done = subprocess.run(command, capture_output=True, timeout=READ_DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    for values in (done.stdout.split(), read_confluent(bootstrap, topic, PARTITIONS)):
        assert check_all_or_nothing(begun, ended, values) >= 120


def test_kafkas_command_finds_and_aborts_a_transaction(
    bootstrap: str, create_topic: Callable[..., str], kafka_tool: Callable[..., str]
):
    topic = create_topic(PARTITIONS)
    name = f"left-of-{topic}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    server = ("--bootstrap-server", bootstrap)
    listed = kafka_tool(TRANSACTIONS, *server, "list")
    assert re.search(rf"{name}\s+\d+\s+\d+\s+Ongoing", listed), listed
    described = kafka_tool(TRANSACTIONS, *server, "describe", "--transactional-id", name)
    assert f"{topic}-0" in described
    producers = kafka_tool(TRANSACTIONS, *server, "describe-producers", "--topic", topic, "--partition", "0")
    (row,) = [line.split() for line in producers.splitlines() if re.match(r"\d", line)]
    assert row[-1] == "0", "its transaction begins at offset 0"
    # Not hanging, since its coordinator knows it.
    found = kafka_tool(TRANSACTIONS, *server, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
    assert topic not in found
    assert read_confluent(bootstrap, topic, PARTITIONS) == []
    kafka_tool(TRANSACTIONS, *server, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    producers = kafka_tool(TRANSACTIONS, *server, "describe-producers", "--topic", topic, "--partition", "0")
    (row,) = [line.split() for line in producers.splitlines() if re.match(r"\d", line)]
    assert row[-1] == "None"
    assert read_confluent(bootstrap, topic, PARTITIONS) == []


def test_what_transactions_leave_on_disk_is_read(kafka_tool: Callable[..., str], tmp_path: Path):
    """The broker here is always ours, and stopped when its files are read."""
    from tailrace.testing import Broker

    settings = {"transaction.state.log.num.partitions": 1}
    with Broker(settings, data=tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "stored", "log_level": 2})
        producer.init_transactions(DEADLINE_S)
        for number in range(6):
            producer.begin_transaction()
            producer.produce("records", b"%d" % number)
            assert producer.flush(DEADLINE_S) == 0
            if number % 2:
                producer.abort_transaction(DEADLINE_S)
            else:
                producer.commit_transaction(DEADLINE_S)
        time.sleep(0.2)
        broker.stop()
    states = tmp_path / "data" / "__transaction_state-0"
    segments = ",".join(map(os.fspath, sorted(states.glob("*.log"))))
    output = kafka_tool("DumpLogSegments", "--transaction-log-decoder", "--files", segments)
    found = [
        (json.loads(key)["data"]["transactionalId"], json.loads(value)["data"]["transactionStatus"])
        for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\})$", output, re.MULTILINE)
    ]
    assert len(found) == output.count(" keySize: "), "every record is understood"
    expected = [0] + [state for number in range(6) for state in ((1, 3, 5) if number % 2 else (1, 2, 4))]
    assert found == [("stored", state) for state in expected]
    folder = tmp_path / "data" / "records-0"
    (index,) = folder.glob("*.txnindex")
    aborted = kafka_tool("DumpLogSegments", "--files", os.fspath(index))
    assert len(re.findall(r"firstOffset: \d+ lastOffset: \d+", aborted)) == 3, aborted
    snapshot = max(folder.glob("*.snapshot"))
    producers = kafka_tool("DumpLogSegments", "--files", os.fspath(snapshot))
    assert "currentTxnFirstOffset: OptionalLong.empty" in producers or "currentTxnFirstOffset: None" in producers
    (segment,) = folder.glob("*.log")
    batches = kafka_tool("DumpLogSegments", "--files", os.fspath(segment), "--print-data-log")
    assert batches.count("endTxnMarker: COMMIT") == batches.count("endTxnMarker: ABORT") == 3
