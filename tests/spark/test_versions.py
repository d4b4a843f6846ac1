"""Other versions of PySpark than the one that is installed, from pip, each in processes of its own; and a cluster of
Spark's own kind, on loopback."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from tests.parts import ROOT, need_pyspark
from tests.spark import versioned
from tests.spark.test_pipeline_command import QUICK, command, kill_group, write_copy_pipeline

DEADLINE_S = 300.0
NUMBERS = list(versioned.NUMBERS)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("java_for_spark")]


@pytest.mark.parametrize("version", ["4.2.1", "4.1.4", "4.0.5"])
def test_what_a_version_can_do(tailrace_broker, create_topic, produce, tmp_path, version):
    folder = need_pyspark(version)
    source, sink = create_topic(2), create_topic(2)
    produce(source, [{"value": json.dumps({"n": n}), "partition": n % 2} for n in NUMBERS])
    words = [sys.executable, "-m", "tests.spark.versioned", tailrace_broker.bootstrap, source, sink, str(tmp_path)]
    path = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["version"] == version
    assert told["numbers"] == NUMBERS
    assert (told["filtered"], told["written"]) == (6, len(NUMBERS))
    if version >= "4.2":
        assert told["streamed"] == len(NUMBERS)
    else:
        assert f"streams from topics need PySpark 4.2 or newer, and this is {version}" in told["refused"]


@contextmanager
def spark_process(*words):
    home = Path(pyspark.__file__).parent
    process = subprocess.Popen(
        [home / "bin" / "spark-class", *words],
        env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_group(process)
        process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def cluster(tmp_path):
    """The URL of a master with one worker."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        words = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(spark_process(*words))
        wait_listening(port)
        words = [f"{deploy}.worker.Worker", url, "--host", "127.0.0.1", "--webui-port", "0"]
        words += ["--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
        worker = stack.enter_context(spark_process(*words))
        told = iter(worker.stderr.readline, "")
        assert any("Successfully registered with master" in line for line in told)
        yield url


def wait_listening(port):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the master does not listen")


def test_a_standalone_cluster(tailrace_broker, create_topic, produce, tmp_path, cluster):
    topic = create_topic()
    file = write_copy_pipeline(tmp_path, tailrace_broker.bootstrap, topic, f'table = "{tmp_path}/t"\nformat = "delta"')
    for first in (0, 30):
        produce(topic, [{"value": str(n)} for n in range(first, first + 30)])
        words = command("run", file, "--once", f"--master={cluster}", "--conf=spark.executor.memory=512m", *QUICK)
        done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        values = DeltaTable(f"{tmp_path}/t").to_pyarrow_table()["value"].to_pylist()
        assert sorted(map(int, values)) == list(range(first + 30))
    assert list((tmp_path / "work").glob("app-*/0/stderr")), "its executors ran in the worker"
