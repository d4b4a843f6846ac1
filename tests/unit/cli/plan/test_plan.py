"""`tailrace plan` as a user runs it."""

import json

import pytest

from tailrace.cli import main
from tailrace.cli.plan import calibration
from tailrace.testing import BrokerFailedError

WORKLOAD = ("--rate", "1M/s", "--size", "1KB", "--retention", "7d", "--replication", "3", "--fanout", "3")


def test_a_plan_in_lines(capsys):
    assert main(["plan", *WORKLOAD]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "brokers\t142\tdecided by disk space"
    assert "disk\t1.81 PB\t12.8 TB" in lines
    assert "disk, a day\t259 TB\t1.83 TB" in lines
    assert lines.index("Assumed:") < len(lines) - 10


def test_a_plan_as_json_has_what_was_asked_and_assumed(capsys):
    assert main(["plan", *WORKLOAD, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["stored_bytes_per_day"] == pytest.approx(259.2e12)
    assert plan["workload"]["fanout"] == 3
    assert {need["resource"] for need in plan["needs"]} >= {"processor", "network", "disk space", "disk speed"}
    assert plan["figures"]["produce_s_per_gb"]["source"]
    assert plan["assumptions"]


def test_a_trillion_a_day(capsys):
    assert main(["plan", "--rate", "1T/day", "--size", "1KB", "--retention", "1d", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["workload"]["messages_per_s"] == pytest.approx(11.574e6, rel=1e-4)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--rate", "1M/s"), "the workload needs --size, --retention as well"),
        ((*WORKLOAD[2:], "--rate", "fast"), "'fast' is not a rate: write 1M/s"),
        ((*WORKLOAD, "--replication", "0"), "'0' is not a number of 1 or more"),
        ((*WORKLOAD, "--busy", "2"), "'2' is not a number from 0.01 to 1"),
        ((*WORKLOAD, "--save", "here.json"), "--save keeps what --calibrate measures"),
    ],
)
def test_a_wrong_command_line_is_told(words, problem, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["plan", *words])
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


def test_what_was_measured_is_kept_and_counted_with(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calibration, "calibrate", lambda _note: {"disk_mb_per_s": 123.0})
    file = tmp_path / "here.json"
    assert main(["plan", "--calibrate", "--save", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["disk_mb_per_s"]["value"] == 123
    assert main(["plan", *WORKLOAD, "--figures", str(file)]) == 0
    assert f"123 MB/s (measured, {file})" in capsys.readouterr().out


def test_a_machine_that_cannot_be_measured_is_told(monkeypatch, capsys):
    def fail(_note):
        raise BrokerFailedError("the broker was not ready within 15 s")

    monkeypatch.setattr(calibration, "calibrate", fail)
    assert main(["plan", "--calibrate"]) == 1
    assert "this machine could not be measured: the broker was not ready within 15 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "problem"),
    [("[]", "it is no JSON object"), ("{", "does not hold what --save keeps"), ('{"speed": 1}', "speed is no figure")],
)
def test_a_file_that_holds_no_figures_is_told(tmp_path, capsys, content, problem):
    file = tmp_path / "here.json"
    file.write_text(content)
    assert main(["plan", *WORKLOAD, "--figures", str(file)]) == 1
    assert problem in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(capsys):
    assert main(["plan", *WORKLOAD, "--figures", "/nowhere/here.json"]) == 1
    assert "cannot read /nowhere/here.json: No such file" in capsys.readouterr().err


@pytest.mark.long
def test_this_machine_is_measured_within_a_minute(capsys):
    assert main(["plan", "--calibrate", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert all(figure["source"] == "measured here now" and figure["value"] > 0 for figure in figures.values())
    # A byte costs more to take than to give, and most of all to copy.
    cost = {name: figures[f"{name}_s_per_gb"]["value"] for name in ("fetch", "produce", "replicate")}
    assert 0.01 < cost["fetch"] < cost["produce"] < 10
    assert 0.1 < cost["replicate"] < 100
