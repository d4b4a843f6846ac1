"""`tailrace repair` and the identity of a folder: looked at by the commands, on real files."""

import json
import re
from pathlib import Path

import pytest

from tailrace.cli import main
from tailrace.testing import Broker
from tailrace.wire.records import iterate_headers

NAME = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a broker that was stopped, with topics."""
    with Broker(data=tmp_path / "data") as broker:
        for name in ("orders", "payments"):
            assert main(["topic", "create", name, "--bootstrap", broker.bootstrap]) == 0
    return tmp_path / "data"


def flip(data: Path, *, batch: int = -1, at: int = 30) -> None:
    path = data / "__cluster_metadata-0" / NAME
    content = bytearray(path.read_bytes())
    content[[position for position, _ in iterate_headers(content)][batch] + at] ^= 1
    path.write_bytes(content)


def content_of(data: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_sound_log_is_left_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(data)
    assert main(["repair", "--data", str(data)]) == 0
    assert main(["repair", "--data", str(data), "--apply"]) == 0
    assert "is sound" in capsys.readouterr().out
    assert content_of(data) == before


def test_it_shows_and_changes_nothing_until_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data)
    before = content_of(data)
    assert main(["repair", "--data", str(data)]) == 0
    shown = capsys.readouterr().out
    assert NAME in shown
    assert "topic payments" in shown
    assert "partition 0 of topic payments" in shown
    assert "orders" not in shown
    assert f"tailrace repair --data {data} --apply" in shown
    assert content_of(data) == before
    assert main(["repair", "--data", str(data), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["is_lossy"]
    assert facts["lost_topics"] == ["payments"]
    assert facts["problems"][0]["file"].endswith(NAME)


def test_applied_the_node_starts_without_what_is_lost(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data)
    assert main(["repair", "--data", str(data), "--apply"]) == 0
    shown = capsys.readouterr().out
    kept = re.search(r"kept in (\S+)", shown)
    assert kept is not None
    assert (Path(kept[1]) / NAME).exists()
    assert main(["repair", "--data", str(data)]) == 0
    assert "is sound" in capsys.readouterr().out
    with Broker(data=data) as broker:
        assert main(["topic", "list", "--bootstrap", broker.bootstrap]) == 0
        topics = capsys.readouterr().out
    assert "orders" in topics
    assert "payments" not in topics


def test_a_node_that_runs_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(data=tmp_path / "data"):
        assert main(["repair", "--data", str(tmp_path / "data"), "--apply"]) == 1
    assert "in use by another process" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--data", "nowhere"], ["--data", "data", "--accept-loss"], ["--config", "none"]])
def test_what_cannot_be_is_said(
    data: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    assert main(["repair", *words]) == 1
    assert capsys.readouterr().err.startswith("tailrace: ")
    assert not (data.parent / "nowhere").exists()


def test_where_nothing_tells_of_voters_the_loss_must_be_accepted(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (data / "__cluster_metadata-0").iterdir():
        path.unlink()
    assert main(["repair", "--data", str(data), "--apply"]) == 1
    assert "--accept-loss" in capsys.readouterr().err
    assert main(["repair", "--data", str(data), "--apply", "--accept-loss"]) == 0
    with Broker(data=data) as broker:
        capsys.readouterr()
        assert main(["topic", "list", "--bootstrap", broker.bootstrap]) == 0
    assert "orders" not in capsys.readouterr().out


# ---- meta.properties


@pytest.fixture
def config(data: Path) -> Path:
    file = data.parent / "node.toml"
    file.write_text(f'node.id = 1\nlisteners = "PLAINTEXT://127.0.0.1:0"\nlog.dirs = ["{data}"]\n')
    return file


@pytest.mark.parametrize("command", ["format", "broker"])
def test_no_command_gives_data_a_new_identity(
    data: Path, config: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "meta.properties").unlink()
    before = content_of(data)
    assert main([command, "--config", str(config)]) == 1
    shown = capsys.readouterr().err
    assert f"{data} holds data" in shown
    assert "--directory-id" in shown
    assert content_of(data) == before


def test_a_lost_identity_can_be_restored_by_who_knows_it(
    data: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = dict(line.split("=") for line in (data / "meta.properties").read_text().splitlines() if "=" in line)
    (data / "meta.properties").unlink()
    words = ["format", "--config", str(config), "--directory-id", known["directory.id"]]
    assert main(words) == 1
    assert main([*words, "--cluster-id", known["cluster.id"]]) == 0
    with Broker(data=data) as broker:
        capsys.readouterr()
        assert main(["topic", "list", "--bootstrap", broker.bootstrap]) == 0
    assert "orders" in capsys.readouterr().out
    assert main([*words, "--cluster-id", known["cluster.id"]]) == 1
    assert "there are 0" in capsys.readouterr().err
