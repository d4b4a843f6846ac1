"""Spark Connect: a client without a JVM, and a server that runs the plan."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from tailrace.testing import Broker
from tests.nodes import free_ports

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("java_for_spark")]

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240.0
EVERYTHING = {"batch": 100, "committed": 100, "sum": 4950, "topics": 2}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server that comes with pip's pyspark, as its start-connect-server.sh starts it, in the foreground."""
    folder = tmp_path_factory.mktemp("server")
    (port,) = free_ports(1)
    command = [
        Path(pyspark.__file__).parent / "bin" / "spark-submit",
        "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master=local[2]",
        "--conf=spark.ui.enabled=false",
        "--conf=spark.connect.grpc.binding.address=127.0.0.1",
        f"--conf=spark.connect.grpc.binding.port={port}",
        f"--conf=spark.sql.warehouse.dir={folder}/warehouse",
        "--driver-java-options=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not is_open(port):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the Spark Connect server does not answer"
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def run(*words: str, without_java: bool = False) -> str:
    environment = dict(os.environ)
    if without_java:
        environment = {name: value for name, value in environment.items() if name != "JAVA_HOME"} | {"PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]
    assert done.returncode == 0, "\n".join(told)[-5000:]
    return done.stdout


def test_a_client_without_java(server: str, tailrace_broker: Broker, create_topic: Callable[..., str], tmp_path: Path):
    topics = create_topic(2), create_topic(2)
    words = ("tests.spark.connected", server, tailrace_broker.bootstrap, *topics, str(tmp_path))
    found = json.loads(run(*words, without_java=True))
    assert found.pop("client").startswith("pyspark.sql.connect")
    assert "topic not-there does not exist" in found.pop("error")
    assert found == EVERYTHING


def test_a_server_that_the_client_starts(tailrace_broker: Broker, create_topic: Callable[..., str], tmp_path: Path):
    topics = create_topic(2), create_topic(2)
    found = json.loads(run("tests.spark.connected", "local[2]", tailrace_broker.bootstrap, *topics, str(tmp_path)))
    assert EVERYTHING.items() <= found.items()


def test_a_pipeline(server: str, tailrace_broker: Broker, create_topic, produce, tmp_path: Path):
    source, sink = create_topic(2), create_topic()
    file = tmp_path / "copy.toml"
    file.write_text(f"""
        name = "copy"
        bootstrap = "{tailrace_broker.bootstrap}"
        checkpoint = "{tmp_path}/checkpoint"
        [sources.rows]
        topic = "{source}"
        format = "string"
        [transform]
        sql = "SELECT upper(value) AS value FROM rows"
        [sink]
        topic = "{sink}"
    """)
    from tests.spark.test_pipelines import read_topic

    for number in range(2):
        produce(source, [{"value": f"a{number}"}, {"value": f"b{number}"}])
        run("tailrace", "pipeline", "run", str(file), "--once", f"--remote={server}", without_java=True)
    values = sorted(value for _, value in read_topic(tailrace_broker.bootstrap, sink))
    assert values == [b"A0", b"A1", b"B0", b"B1"]
