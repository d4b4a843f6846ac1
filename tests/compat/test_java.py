"""The Java client, the one that the protocol is made for."""

import subprocess
from collections.abc import Callable

import pytest

CHECK_DEADLINE_S = 180.0

pytestmark = pytest.mark.long


def test_the_java_client_writes_reads_and_administers(
    bootstrap: str, compile_java: Callable[[str], list[str]], fresh_name: Callable[[], str]
):
    done = subprocess.run(
        [*compile_java("ClientCheck"), bootstrap, fresh_name()],
        capture_output=True,
        text=True,
        timeout=CHECK_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all checks passed\n")
