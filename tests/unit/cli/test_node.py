"""`tailrace format` and `tailrace broker`: a node from a settings file."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.cli import main

WAIT_S = 20


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(
        f'node.id = 3\nlisteners = "PLAINTEXT://127.0.0.1:0"\nlog.dirs = ["{tmp_path / "one"}", "{tmp_path / "two"}"]\n'
    )
    return file


def test_format_makes_the_folders_the_nodes_own(config: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["format", "--config", str(config)]) == 0
    assert capsys.readouterr().out.count("formatted") == 2
    one, two = (_properties(config.parent / name) for name in ("one", "two"))
    assert one["node.id"] == two["node.id"] == "3"
    assert one["cluster.id"] == two["cluster.id"]
    assert one["directory.id"] != two["directory.id"]


def test_format_refuses_what_is_formatted(config: Path, capsys: pytest.CaptureFixture[str]):
    main(["format", "--config", str(config)])
    before = _properties(config.parent / "one")
    assert main(["format", "--config", str(config)]) == 1
    assert "formatted already" in capsys.readouterr().err
    assert main(["format", "--config", str(config), "--ignore-formatted"]) == 0
    assert _properties(config.parent / "one") == before


def test_new_disk_joins_the_cluster_of_the_others(config: Path):
    main(["format", "--config", str(config)])
    cluster_id = _properties(config.parent / "two")["cluster.id"]
    (config.parent / "one" / "meta.properties").unlink()
    assert main(["format", "--config", str(config), "--ignore-formatted"]) == 0
    assert _properties(config.parent / "one")["cluster.id"] == cluster_id


def test_broker_starts_from_the_file(config: Path):
    main(["format", "--config", str(config)])
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "broker", "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("ready: 127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, log
    finally:
        process.kill()
        process.communicate()


def test_broker_does_not_take_an_unformatted_folder(config: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["broker", "--config", str(config)]) == 1
    shown = capsys.readouterr().err
    assert str(config.parent / "one") in shown
    assert f"tailrace format --config {config}" in shown
    assert not (config.parent / "one").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("node.id = ", "is not TOML"),
        ("node.id = 1\nno.such.setting = 2", "no.such.setting"),
        ("num.partitions = 2", "node.id"),
        ('node.id = "one"', "node.id"),
    ],
)
def test_file_that_does_not_parse(tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "node.toml"
    file.write_text(text)
    assert main(["format", "--config", str(file)]) == 1
    shown = capsys.readouterr().err
    assert str(file) in shown
    assert told in shown


def test_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["broker", "--config", str(tmp_path / "missing.toml")]) == 1
    assert "No such file" in capsys.readouterr().err


def _properties(folder: Path) -> dict[str, str]:
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)
