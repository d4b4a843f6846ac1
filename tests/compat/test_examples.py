"""examples/clients: each program, as its first lines say to run it, prints the records that it wrote."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.testing import Broker
from tests.parts import NODE_SCRIPTS, ROOT, need_jars, need_node_clients, need_program

from .conftest import JAVA

CLIENTS = ROOT / "examples" / "clients"
# Go fetches its modules and compiles them, the first time.
DEADLINE_S = 300.0
PRINTED = [f"0:{number} ann hello {number}" for number in range(3)]


def run(broker: Broker, *command: str | Path, folder: Path = CLIENTS) -> list[str]:
    done = subprocess.run(
        [*command, broker.bootstrap], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("{")]  # Such as kafkajs logs.


@pytest.mark.parametrize("program", ["confluent.py", "aio.py"])
def test_python(fresh_tailrace_broker: Broker, program: str):
    assert run(fresh_tailrace_broker, sys.executable, program) == PRINTED


def test_node(fresh_tailrace_broker: Broker):
    tested, shown = (json.loads((folder / "package.json").read_text()) for folder in (NODE_SCRIPTS, CLIENTS / "node"))
    assert shown["dependencies"].items() <= tested["dependencies"].items()
    # Node looks for packages beside the script.
    script = shutil.copy(CLIENTS / "node" / "hello.mjs", need_node_clients())
    assert run(fresh_tailrace_broker, "node", script) == PRINTED


@pytest.mark.long
def test_java(fresh_tailrace_broker: Broker):
    need_program("javac")
    jars = need_jars("examples/clients/java/pom.xml")
    printed = run(fresh_tailrace_broker, *JAVA, "-cp", f"{jars}/*", "Hello.java", folder=CLIENTS / "java")
    assert printed == PRINTED


@pytest.mark.long
@pytest.mark.needs("go")
def test_go(fresh_tailrace_broker: Broker):
    assert run(fresh_tailrace_broker, "go", "run", ".", folder=CLIENTS / "go") == PRINTED
