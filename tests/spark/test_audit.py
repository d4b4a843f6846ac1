"""Audits from the declaration to the report, of topics on a real broker, tables and a recorded history."""

import json
import subprocess
import sys

import pytest
from pyspark.sql import functions as sf

from tailrace.spark.audit import Audit, HistorySide, TableSide, TopicSide, run_audit
from tailrace.verify import Recorder

RECORDS = 300


@pytest.fixture(scope="module")
def orders(create_topic, produce):
    """A topic of three partitions whose records have a key each, and values that are JSON."""
    topic = create_topic(partitions=3)
    produce(topic, [{"key": f"k{n}", "value": json.dumps({"id": n}), "partition": n % 3} for n in range(RECORDS)])
    return topic


def found(report):
    return {check.kind: check.records for check in report.checks if check.records}


@pytest.fixture(scope="module")
def copy(create_topic, produce):
    """Has other partitions, which no key minds: k7 is missing, k8 stands twice, and one is a stranger."""
    topic = create_topic(partitions=2)
    rows = [{"key": f"k{n}", "value": json.dumps({"id": n}), "partition": n % 2} for n in range(RECORDS) if n != 7]
    rows += [rows[7], {"key": "<stranger>", "value": "&", "partition": 0}]
    produce(topic, rows)
    return topic


def test_two_topics(spark, tailrace_broker, orders, copy, tmp_path):
    bootstrap = tailrace_broker.bootstrap
    audit = Audit(
        TopicSide(orders, bootstrap),
        TopicSide(copy, bootstrap),
        html=str(tmp_path / "report.html"),
        json=str(tmp_path / "report.json"),
    )
    report = run_audit(audit, spark)
    assert found(report) == {"lost": 1, "unexpected": 1, "duplicate": 1}
    assert not report.is_clean
    assert report.verdict == "differences: 1 lost, 1 unexpected, 1 duplicate"
    assert [each[:4] for each in report.expected.partitions] == [
        (f"{orders}-{index}", 100, 0, 99) for index in range(3)
    ]
    lost = next(check for check in report.checks if check.kind == "lost")
    assert lost.samples == (f'"k7 {{"id": 7}}" is missing (expected: offset 2 of {orders}-1)',)
    saved = json.loads((tmp_path / "report.json").read_text())
    assert (saved["clean"], saved["expected"]["records"], saved["actual"]["records"]) == (False, RECORDS, RECORDS + 1)
    page = (tmp_path / "report.html").read_text()
    assert "&lt;stranger&gt; &amp;" in page
    assert "<stranger>" not in page
    assert page.count("<svg") == 3


def test_a_topic_and_a_table(spark, tailrace_broker, orders, tmp_path):
    topic = TopicSide(
        orders, tailrace_broker.bootstrap, by=("key",), compare=("get_json_object(CAST(value AS STRING), '$.id')",)
    )
    records = spark.read.format("tailrace").options(**topic.source_options).load()
    landed = records.select(
        sf.col("key").cast("string").alias("customer"),
        sf.get_json_object(sf.col("value").cast("string"), "$.id").cast("int").alias("id"),
        "partition",
        "offset",
    )
    landed.withColumn("id", sf.when(sf.col("id") == 5, 500).otherwise(sf.col("id"))).where("id <> 9").write.parquet(
        str(tmp_path / "orders")
    )
    places = {"partition": "partition", "offset": "offset"}
    table = TableSide(str(tmp_path / "orders"), by=("customer",), compare=("id",), **places)
    report = run_audit(Audit(topic, table, allow=()), spark)
    assert found(report) == {"lost": 1, "changed": 1, "gap": 1}
    gap = next(check for check in report.checks if check.kind == "gap")
    assert gap.samples == ("0 has no record at offset 3",)
    assert "withdrawn" in report.unchecked


def test_a_topic_and_a_history(spark, tailrace_broker, create_topic, produce, tmp_path):
    topic = create_topic(partitions=1)
    with (tmp_path / "history.jsonl").open("w") as lines:
        process = Recorder(lines.write).process("p")
        for number in range(50):
            send = process.send(f"{topic}-0", f"v{number}")
            if number % 10:
                send.ok(number)
            else:
                send.info()
        process.send(f"{topic}-0", "gone").ok(50)
    produce(topic, [{"value": f"v{number}"} for number in range(50)])
    report = run_audit(
        Audit(HistorySide(str(tmp_path / "history.jsonl")), TopicSide(topic, tailrace_broker.bootstrap)), spark
    )
    assert found(report) == {"lost": 1}
    assert report.expected.outcomes == {"acknowledged": 46, "unknown": 5, "withdrawn": 0}
    assert '"gone" is missing' in report.text()


@pytest.mark.long
def test_the_command(tailrace_broker, orders, copy, tmp_path):
    page = tmp_path / "report.html"
    words = ["audit", orders, copy, "--bootstrap", tailrace_broker.bootstrap, "--master", "local[2]"]
    found = run_tailrace(*words, "--json", "--html", str(page))
    assert found.returncode == 1, found.stderr
    assert json.loads(found.stdout)["verdict"] == "differences: 1 lost, 1 unexpected, 1 duplicate"
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.long
def test_the_command_with_differences_that_are_allowed_and_with_mistakes(tailrace_broker, orders, copy):
    words = ["audit", orders, copy, "--bootstrap", tailrace_broker.bootstrap, "--master", "local[2]"]
    clean = run_tailrace(*words, "--allow", "lost", "--allow", "unexpected", "--allow", "duplicate")
    assert (clean.returncode, clean.stdout.splitlines()[0]) == (
        0,
        "audit: clean: 301 records, no difference (reordered)",
    )
    unknown = run_tailrace("audit", orders, "no-such-topic", *words[3:])
    assert unknown.returncode == 1
    assert "no-such-topic" in unknown.stderr
    wrong = run_tailrace(*words, "--by", "keys", "--actual-by", "key")
    assert wrong.returncode == 1
    assert "`keys` cannot be resolved" in wrong.stderr
    assert len(wrong.stderr.splitlines()) < 10


def run_tailrace(*words):
    command = [sys.executable, "-m", "tailrace", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_headers_are_compared(spark, tailrace_broker, create_topic, produce):
    topics = [create_topic(), create_topic()]
    for topic, header in zip(topics, (b"1", b"2"), strict=True):
        rows = [{"key": f"k{n}", "value": "v", "headers": [("same", b"0"), ("one", b"1")]} for n in range(3)]
        produce(topic, [*rows, {"key": "last", "value": "v", "headers": [("other", header)]}])
    sides = [TopicSide(topic, tailrace_broker.bootstrap, compare=("headers",)) for topic in topics]
    report = run_audit(Audit(*sides), spark)
    assert found(report) == {"changed": 1}
    assert ("compare", "headers", "headers") in report.compared
