"""Executors in processes of their own: the same tests once more, and executors that are killed in mid-query."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.testing import Broker
from tests.spark.conftest import MASTER_VARIABLE
from tests.spark.mortal import Copy
from tests.spark.test_exactly_once import committed

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("java_for_spark")]

ROOT = Path(__file__).parents[2]
MASTER = "local-cluster[2,1,1024]"
DEADLINE_S = 600
ROW_COUNT = 4000
FILES = ("test_source.py", "test_sink.py", "test_exactly_once.py", "test_pipelines.py")


def test_the_same_tests_pass(tmp_path: Path):
    command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={tmp_path / 'inner'}"]
    done = subprocess.run(
        [*command, *(f"tests/spark/{name}" for name in FILES)],
        cwd=ROOT,
        env={**os.environ, MASTER_VARIABLE: MASTER},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20


@pytest.mark.parametrize("exactly_once", [True, False])
def test_killed_executors(
    tailrace_broker: Broker,
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
    *,
    exactly_once: bool,
):
    """A copy of a topic while two executors die by SIGKILL: see tests/spark/killing.py."""
    source, sink = create_topic(2), create_topic(2)
    # With so many spaces that a task has much to send.
    produce(source, ({"value": b"%-2000d" % number, "partition": number % 2} for number in range(ROW_COUNT)))
    copy = Copy(tailrace_broker.bootstrap, source, sink, str(tmp_path / "checkpoint"))
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tests.spark.killing", *copy, str(exactly_once).lower()]
        done = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, log.read_text()[-3000:]
    assert log.read_text().count("killed executor") == 2
    found = committed(copy)
    assert set(found) == set(range(ROW_COUNT))
    # What a killed task had written is there, and does not count with exactlyOnce.
    assert (found == Counter(range(ROW_COUNT))) == exactly_once
