"""The `tailrace` command as a whole: what it lists, what it imports, how it fails."""

import subprocess
import sys

import pytest

from tailrace import __version__
from tailrace.cli import COMMANDS, main


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"tailrace {__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    first_words = [line.split()[0] for line in shown.splitlines() if line.startswith("    ")]
    assert set(COMMANDS) <= set(first_words)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"tailrace {command}" in shown.partition("example")[2]


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["up", "--no-such-option"], ["up", "--port", "many"]])
def test_wrong_command_line_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "usage: tailrace" in capsys.readouterr().err


def test_a_command_that_fails_says_why_on_stderr(capsys: pytest.CaptureFixture[str]):
    assert main(["up", "--brokers", "0"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "tailrace: --brokers 0: one machine runs 1 to 100 brokers\n"


def test_up_imports_nothing_that_it_does_not_need():
    """The time from `tailrace up` to ready is mostly imports."""
    script = (
        "import sys\nfrom tailrace.cli import main\n"
        "main(['up', '--port', '-1'])\nimport tailrace.cli.node.process\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20)
    loaded = set(done.stdout.split())
    assert "tailrace.broker.broker" in loaded
    assert not loaded & {
        "rich",
        "cramjam",
        "uuid",
        "tailrace.cli.topic",
        "tailrace.client",
        "tailrace.wire.apis.groups",
    }


def test_reader_that_leaves_early_is_no_error():
    """`tailrace --help | head -1`."""
    command = f"{sys.executable} -m tailrace --help | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.startswith("usage: tailrace")
    assert done.stderr == ""
