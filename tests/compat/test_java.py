"""The Java client, the one that the protocol is made for."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CHECK = Path(__file__).parent / "java" / "ClientCheck.java"
CHECK_DEADLINE_S = 180.0

pytestmark = pytest.mark.long


def test_the_java_client_writes_reads_and_administers(
    bootstrap: str, kafka_class_path: str, fresh_name: Callable[[], str], tmp_path: Path
):
    compiled = subprocess.run(
        ["javac", "-cp", kafka_class_path, "-d", tmp_path, CHECK], capture_output=True, text=True, check=False
    )
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        ["java", "-cp", f"{kafka_class_path}:{tmp_path}", "ClientCheck", bootstrap, fresh_name()],
        capture_output=True,
        text=True,
        timeout=CHECK_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all checks passed\n")
