"""A command as a user runs it, in this process."""

from collections.abc import Callable

import pytest

from tailrace.cli import main
from tailrace.testing import Broker


@pytest.fixture
def run(tailrace_broker: Broker, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Gives the exit code, and what went to stdout and stderr."""

    def run_command(*words: str) -> tuple[int, str, str]:
        try:
            code = main([*words, "--bootstrap", tailrace_broker.bootstrap])
        except SystemExit as exit_:
            code = exit_.code
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_command
