"""`tailrace pipeline run` of several files, and what others see of it: true at every moment, however it ends.

What is shown is compared with what the table and the topics hold, read by deltalake and librdkafka.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from tailrace.cli.pipeline.together import Together
from tailrace.real.runs.folder import read_runs
from tailrace.real.runs.status import State
from tailrace.spark.pipelines import load
from tailrace.testing import Broker
from tests.spark.test_pipeline_command import QUICK, command, kill_group

DEADLINE_S = 120.0
SCHEMA = 'format = "json"\nschema = "n INT"\nbatch_records_max = 50'
KILLS = 6


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of one test, with the runs of pipelines in `runs`."""
    monkeypatch.setenv("TAILRACE_PIPELINES", str(tmp_path / "runs"))
    return tmp_path


def declare(folder, name, bootstrap, topic, *, more=""):
    file = folder / f"{name}.toml"
    file.write_text(f"""
        name = "{name}"
        bootstrap = "{bootstrap}"
        checkpoint = "{folder}/{name}-checkpoint"
        {more}
        [sources.rows]
        topic = "{topic}"
        {SCHEMA}
        [transform]
        sql = "SELECT value.n, partition, offset FROM rows"
        [sink]
        table = "{folder}/{name}"
        format = "delta"
    """)
    return file


def numbers(count, first=0):
    return [{"value": json.dumps({"n": n}), "partition": n % 2} for n in range(first, first + count)]


def table(folder, name):
    return DeltaTable(str(folder / name)).to_pyarrow_table()


def tailrace(*words, code=0):
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == code, done.stderr
    return done


def listed():
    return {run["name"]: run for run in json.loads(tailrace("list", "--json").stdout)}


def wait_for(question, what):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := question():
            return found
        time.sleep(0.1)
    raise AssertionError(f"never seen: {what}; {listed()}")


@contextmanager
def running(*words):
    process = subprocess.Popen(
        command("run", *words, "--master=local[2]", *QUICK), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate(timeout=DEADLINE_S)


def test_two_pipelines_share_a_session(spark, folder, tailrace_broker, create_topic, produce):
    topics = create_topic(2), create_topic(2)
    for topic in topics:
        produce(topic, numbers(120))
    jobs = {
        str(file): load(file)
        for file in (declare(folder, f"p{n}", tailrace_broker.bootstrap, topics[n]) for n in range(2))
    }
    options = argparse.Namespace(port=0, host="127.0.0.1", once=True, retries=0, remote=None)
    together = Together(jobs, options, None)
    with together.told():
        assert {run.state for run in read_runs(folder / "runs")} == {State.STARTING}
        (targets,) = json.loads((folder / "runs" / "metrics-targets.json").read_text())
        assert together.run(spark) == 0
        with urllib.request.urlopen(f"http://{targets['targets'][0]}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    for name in ("p0", "p1"):
        assert f'tailrace_pipeline_rows_total{{pipeline="{name}"}} 120' in text
        assert sorted(table(folder, name)["n"].to_pylist()) == list(range(120))
    assert {(run.state, run.rows, run.batches, run.last_batch) for run in read_runs(folder / "runs")} == {
        (State.DONE, 120, 3, 2)
    }
    assert json.loads((folder / "runs" / "metrics-targets.json").read_text()) == []


def ends_of(bootstrap, topic, partitions=2):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return {n: consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30)[1] for n in range(partitions)}
    finally:
        consumer.close()


def check_lag(file, folder, name, bootstrap, topic):
    """What is said to be done is in the table, and the rest to the end of the topic is the lag."""
    lag = json.loads(tailrace("lag", file, "--json").stdout)
    rows = table(folder, name) if (folder / name / "_delta_log").exists() else None
    ends = ends_of(bootstrap, topic)
    for each in lag["partitions"]:
        number = each["partition"]
        there = [] if rows is None else sorted(row["offset"] for row in rows.to_pylist() if row["partition"] == number)
        assert there[: each["done"]] == list(range(each["done"])), "done, and not in the table"
        # A batch may have landed, and not be noted in the checkpoint: one batch, and no more.
        assert len(there) - each["done"] <= 50
        assert each["end"] == ends[number]
        assert each["lag"] == ends[number] - each["done"]
    assert lag["lag"] == sum(each["lag"] for each in lag["partitions"])
    return lag


@pytest.mark.long
def test_a_driver_that_is_killed_at_any_moment(folder, tailrace_broker, create_topic, produce):
    topic = create_topic(2)
    produce(topic, numbers(1000))
    file = declare(folder, "mortal", tailrace_broker.bootstrap, topic)
    chance = random.Random(22)
    shown = []
    for _ in range(KILLS):
        with running(file) as process:
            wait_for(lambda: listed().get("mortal", {}).get("process_id") == process.pid, "the run")
            wait_for((folder / "mortal-checkpoint" / "metadata").exists, "the checkpoint")
            time.sleep(chance.uniform(0, 15))
            os.kill(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)
            run = listed()["mortal"]
            assert (run["state"], run["process_id"]) == ("died", process.pid)
            # What Spark's JVM still does when its driver is gone is over soon.
            kill_group(process)
            time.sleep(0.5)
            lag = check_lag(file, folder, "mortal", tailrace_broker.bootstrap, topic)
            assert run["last_batch"] is None or run["last_batch"] <= lag["batch"]
            shown.append(lag["lag"])
    assert shown == sorted(shown, reverse=True)
    ended = tailrace("run", file, "--once", "--master=local[2]", *QUICK)
    assert "rows in" in ended.stderr
    assert check_lag(file, folder, "mortal", tailrace_broker.bootstrap, topic)["lag"] == 0
    assert listed()["mortal"]["state"] == "done"
    assert sorted(table(folder, "mortal")["n"].to_pylist()) == list(range(1000))


@pytest.mark.long
def test_one_fails_the_other_goes_on_and_is_stopped(folder, tailrace_broker, create_topic, produce):
    good, bad = create_topic(2), create_topic(2)
    produce(good, numbers(10))
    produce(bad, [*numbers(10), {"value": "no json"}])
    files = [declare(folder, name, tailrace_broker.bootstrap, topic) for name, topic in (("good", good), ("bad", bad))]
    with running(*files, "--port=0") as process:
        wait_for(lambda: listed().get("bad", {}).get("state") == "failed", "the failure")
        assert "not JSON" in listed()["bad"]["problem"] or "no json" in listed()["bad"]["problem"]
        wait_for(lambda: listed()["good"]["rows"] == 10 and listed()["good"]["lag"] == 0, "the rows")
        produce(good, numbers(5, first=10))
        wait_for(lambda: listed()["good"]["rows"] == 15, "more rows")
        again = tailrace("run", files[0], "--once", *QUICK, code=1)
        assert f"good runs already, as process {process.pid} on " in again.stderr
        url = listed()["good"]["url"]
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(f"{url}/health/ready", timeout=10)
        with refused.value as answer:
            assert answer.read().decode().startswith("good: running\nbad: failed (")
        assert "good has stopped" in tailrace("stop", "good").stderr
        assert process.wait(DEADLINE_S) == 1
    assert listed()["good"]["state"] == "stopped"
    assert sorted(table(folder, "good")["n"].to_pylist()) == list(range(15))


@pytest.mark.long
def test_a_broker_that_is_away_and_comes_back(folder):
    with Broker(start_timeout_s=DEADLINE_S) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic("t", 1, 1)]).values():
            created.result(DEADLINE_S)
        file = declare(folder, "patient", broker.bootstrap, "t", more='trigger = "1 second"')
        file.write_text(file.read_text() + '\n[kafka]\n"request.timeout.ms" = 1000\n"default.api.timeout.ms" = 1000\n')
        with running(file) as process:
            wait_for(lambda: listed().get("patient", {}).get("lag") == 0, "its lag")
            broker.stop()
            away = wait_for(lambda: (run := listed()["patient"])["state"] == "retrying" and run, "that it is away")
            assert away["problem"]
            wait_for(lambda: listed()["patient"]["lag"] is None, "that nobody knows the lag")
            status = tailrace("status", file).stdout
            assert "state: retrying: " in status
            assert "\nproblem: " in status
            broker.start()
            wait_for(lambda: (run := listed()["patient"])["state"] == "running" and run["lag"] == 0, "its return")
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
    assert listed()["patient"]["state"] == "stopped"


@pytest.mark.long
def test_a_driver_that_is_held_up_is_not_said_to_run(folder, tailrace_broker, create_topic):
    file = declare(folder, "held", tailrace_broker.bootstrap, create_topic(2))
    with running(file) as process:
        wait_for(lambda: listed().get("held", {}).get("state") == "running", "the run")
        os.kill(process.pid, signal.SIGSTOP)
        wait_for(lambda: listed()["held"]["state"] == "silent", "its silence")
        assert "it lives, and has written nothing for long" in tailrace("status", "held").stdout
        os.kill(process.pid, signal.SIGCONT)
        wait_for(lambda: listed()["held"]["state"] == "running", "its voice")


def test_what_cannot_be_run_together(folder, capsys):
    from tailrace.cli import main

    one = declare(folder, "one", "127.0.0.1:1", "a")
    same = declare(folder, "same", "127.0.0.1:1", "a")
    same.write_text(same.read_text().replace("same-checkpoint", "one-checkpoint"))
    audit = folder / "audit.toml"
    audit.write_text(
        'name = "x"\nbootstrap = "127.0.0.1:1"\n[audit]\n[audit.expected]\ntopic = "a"\n[audit.actual]\ntopic = "b"\n'
    )
    for files, message in (([one, same], "have the same checkpoint"), ([one, audit], "run its file alone")):
        assert main(["pipeline", "run", *map(str, files)]) == 1
        assert message in capsys.readouterr().err
    assert main(["pipeline", "stop", "nobody"]) == 1
    assert "no pipeline nobody has run on this machine" in capsys.readouterr().err
