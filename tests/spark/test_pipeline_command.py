"""`tailrace pipeline` and `spark-pipelines` as processes: signals, restarts, Spark Connect, declarative pipelines."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0
QUICK = [
    "--conf=spark.ui.enabled=false",
    "--conf=spark.sql.shuffle.partitions=1",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("java_for_spark")]


def command(*words):
    return [sys.executable, "-m", "tailrace", "pipeline", *map(str, words)]


def write_copy_pipeline(folder, bootstrap, topic, sink):
    file = folder / "copy.toml"
    file.write_text(f"""
        name = "copy"
        bootstrap = "{bootstrap}"
        checkpoint = "{folder}/checkpoint"
        [sources.rows]
        topic = "{topic}"
        format = "string"
        batch_records_max = 20
        watermark = "1 hour"
        deduplicate = ["value"]
        [transform]
        sql = "SELECT value, offset, timestamp FROM rows"
        [sink]
        {sink}
    """)
    return file


def kill_group(process):
    """Spark is several processes, which a failed test must not leave behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def wait_lines(path, count):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if path.exists() and len(lines := path.read_text().splitlines()) >= count:
            return lines
        time.sleep(0.1)
    raise AssertionError(f"{path} has not got {count} lines")


# Ctrl-C reaches the whole group of a terminal, `kill` one process: a SIGTERM to all of them would end Spark's JVM too.
@pytest.mark.parametrize("stop", [lambda pid: os.killpg(pid, signal.SIGINT), lambda pid: os.kill(pid, signal.SIGTERM)])
def test_a_signal_finishes_the_batch_and_the_next_run_goes_on(tailrace_broker, create_topic, produce, tmp_path, stop):
    topic = create_topic()
    produce(topic, [{"value": str(n)} for n in range(100)])
    file = write_copy_pipeline(tmp_path, tailrace_broker.bootstrap, topic, f'table = "{tmp_path}/t"\nformat = "delta"')
    metrics = tmp_path / "metrics.jsonl"
    words = command("run", file, "--master=local[2]", f"--metrics={metrics}", *QUICK)
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_lines(metrics, 1)
        stop(running.pid)
        _, errors = running.communicate(timeout=DEADLINE_S)
    finally:
        kill_group(running)
    assert running.returncode == 0, errors
    assert "finishing the batch" in errors

    ended = subprocess.run(
        command("run", file, "--once", "--master=local[2]", f"--metrics={metrics}", *QUICK),
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    batches = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert sum(batch["rows"] for batch in batches) == 100
    assert batches[-1]["lag"] == 0

    from deltalake import DeltaTable

    assert sorted(map(int, DeltaTable(f"{tmp_path}/t").to_pyarrow_table()["value"].to_pylist())) == list(range(100))
    compacted = subprocess.run(
        command("compact", file), timeout=DEADLINE_S, capture_output=True, text=True, check=False
    )
    assert compacted.stdout.strip().endswith("became 1")


def test_spark_connect_lands_each_batch_once(tailrace_broker, create_topic, produce, tmp_path):
    topic = create_topic()
    produce(topic, [{"value": str(n)} for n in range(50)])
    file = write_copy_pipeline(tmp_path, tailrace_broker.bootstrap, topic, f'table = "{tmp_path}/t"\nformat = "delta"')
    for _ in range(2):
        ended = subprocess.run(
            command("run", file, "--once", "--remote=local[2]", *QUICK),
            timeout=DEADLINE_S,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()

    from deltalake import DeltaTable

    assert sorted(map(int, DeltaTable(f"{tmp_path}/t").to_pyarrow_table()["value"].to_pylist())) == list(range(50))


def test_what_fails_is_told_in_one_line(tailrace_broker, tmp_path):
    file = write_copy_pipeline(tmp_path, tailrace_broker.bootstrap, "not-there", f'table = "{tmp_path}/t"')
    ended = subprocess.run(
        command("run", file, "--once", "--master=local[2]", *QUICK),
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("tailrace: ")]
    assert "not-there" in line
    assert "Traceback" not in ended.stderr


def test_the_declarative_example(tailrace_broker, admin, produce, tmp_path):
    for created in admin.create_topics([NewTopic("orders", 2, 1), NewTopic("revenue", 1, 1)]).values():
        created.result(DEADLINE_S)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    project = tmp_path / "examples" / "declarative"
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/tailrace-declarative", f"file://{tmp_path}/storage"))

    def run(*orders):
        produce("orders", [{"key": str(n), "value": json.dumps(order)} for n, order in enumerate(orders)])
        words = [Path(sys.executable).parent / "spark-pipelines", "run"]
        running = subprocess.Popen(
            [*words, "--conf", "spark.sql.catalogImplementation=hive"],
            cwd=project,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "TAILRACE_BOOTSTRAP": tailrace_broker.bootstrap,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = running.communicate(timeout=DEADLINE_S)
        finally:
            kill_group(running)
        assert running.returncode == 0, output

    def order(number, minute):
        return {"id": str(number), "product": "tea", "amount": 2.5, "at": f"2026-01-31T12:{minute:02}:00Z"}

    run(order(1, 0), order(2, 0), {"id": "free", "product": "tea", "amount": 0}, order(3, 5))
    run(order(4, 10))

    from tests.spark.test_pipelines import read_topic

    minutes = [(key, json.loads(value)) for key, value in read_topic(tailrace_broker.bootstrap, "revenue")]
    first = {"minute": "2026-01-31T12:00:00.000Z", "product": "tea", "revenue": 5.0, "orders": 2}
    assert minutes[0] == (b"tea", first)


def test_a_broker_that_is_away_is_waited_for_and_not_for_ever(tmp_path):
    """The first run gives up with the code for what passes; the second one has it come back, and goes on by itself."""
    with Broker(start_timeout_s=DEADLINE_S) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("t", 1, 1)]).values():
            created.result(DEADLINE_S)
        file = write_copy_pipeline(tmp_path, broker.bootstrap, "t", f'table = "{tmp_path}/t"')
        file.write_text(file.read_text() + '\n[kafka]\n"request.timeout.ms" = 1000\n"default.api.timeout.ms" = 1000\n')
        broker.stop()
        words = command("run", file, "--once", "--master=local[2]", *QUICK)
        ended = subprocess.run([*words, "--retries=1"], timeout=DEADLINE_S, capture_output=True, text=True, check=False)
        assert ended.returncode == 75, ended.stderr
        assert "trying again in 1 s (1 of 1)" in ended.stderr
        assert "the same may succeed later" in ended.stderr
        assert "Traceback" not in ended.stderr
        running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            told = iter(running.stderr.readline, "")
            assert any("trying again" in line for line in told)
            broker.start()
            _, errors = running.communicate(timeout=DEADLINE_S)
        finally:
            kill_group(running)
        assert running.returncode == 0, errors
