"""`tailrace health`: whom it asks, what it prints, and its exit codes."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.testing import Broker


def test_all_is_well_and_then_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with Broker(data=tmp_path) as broker:
        assert main(["health", "--data", str(tmp_path)]) == 0
        assert main(["health", broker.metrics_url, "--check", "live", "--json"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert json.loads(lines[-1])["status"] == "pass"
        broker.kill()
        assert main(["health", "--data", str(tmp_path), "--json"]) == 1
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(each["node"], each["check"], each["status"]) for each in found] == [
            ("broker-1", "ready", "fail"),
            ("broker-1", "cluster", "fail"),
        ]
        assert "no answer" in found[0]["reason"]


def test_something_else_answers(capsys: pytest.CaptureFixture[str]):
    with Broker() as broker:
        assert main(["health", f"http://{broker.bootstrap}"]) == 1  # Kafka's port.
    assert "fail" in capsys.readouterr().out


def test_nobody_listens(capsys: pytest.CaptureFixture[str]):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert main(["health", f"http://127.0.0.1:{free.getsockname()[1]}", "--timeout", "1"]) == 1
    assert "no answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "say whom to ask"),
        (["http://x", "--data", "y"], "say whom to ask"),
        (["--data", "/nowhere"], "no `tailrace up` was started there"),
        (["localhost:9404"], "write http://host:port"),
    ],
)
def test_wrong_words(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]):
    assert main(["health", *words]) == 1
    assert problem in capsys.readouterr().err
