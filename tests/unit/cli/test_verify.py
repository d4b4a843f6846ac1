"""`tailrace verify`: the report for a person and as JSON, exit codes, and files that are no history."""

import gc
import io
import json

import pytest

from tailrace.cli import main
from tests.unit.verify.scribe import P, Scribe


@pytest.fixture
def scribe():
    scribe = Scribe()
    scribe.write("commit ok", (P, 0, "a"), (P, 1, "b"))
    scribe.write("abort ok", (P, 3, "c"))
    return scribe


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.jsonl"


def test_a_clean_history(scribe, path, capsys):
    scribe.reader.polled([(P, 0, "a"), (P, 1, "b")])
    scribe.reader.drained()
    path.write_text("".join(scribe.lines))
    assert main(["verify", str(path)]) == 0
    assert capsys.readouterr().out == (
        "14 events of 2 processes over 1 partition: 3 sent, 3 acknowledged, 0 unknown, 2 read; 2 transactions: "
        "1 committed, 1 aborted, 0 unknown\n\nno anomaly found\n"
    )
    assert gc.isenabled()


def test_without_a_drain_it_says_what_is_not_known(scribe, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(scribe.lines)))
    assert main(["verify", "-"]) == 0
    assert "no anomaly found; nothing was drained, so what nobody read is not known" in capsys.readouterr().out


def test_anomalies_are_told_by_kind_with_their_evidence(scribe, path, capsys):
    scribe.reader.polled([(P, 1, "b"), (P, 3, "c")])
    scribe.loose.polled([(P, 0, "a"), (P, 1, "b")])
    scribe.loose.sought([P])
    scribe.loose.polled([(P, 0, "a")])
    path.write_text("".join(scribe.lines))
    assert main(["verify", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("aborted-read: 1 (a reader at read_committed was given")
    assert lines[3].startswith('  process c at read_committed read "c" at offset 3 of orders-0 (line 13), of the')
    assert lines[5] == "allowed:"
    assert lines[6].startswith("  rewound-poll: 1, such as: process u had read orders-0 up to offset 1, and begins")
    assert lines[-1] == "1 anomaly"
    assert main(["verify", str(path), "--allow", "aborted-read"]) == 0


def test_json_gives_each_finding_and_the_figures(scribe, path, capsys):
    scribe.reader.polled([(P, 3, "c"), (P, 4, "x"), (P, 5, "y")])
    path.write_text("".join(scribe.lines))
    assert main(["verify", str(path), "--json", "--limit", "1"]) == 1
    *findings, last = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(finding["kind"], finding["line"], finding["allowed"]) for finding in findings] == [
        ("aborted-read", 13, False),
        ("unsent-read", 13, False),
    ]
    assert last["anomalies"] == {"aborted-read": 1, "unsent-read": 2}
    assert last["figures"]["transactions"] == 2


def test_what_is_no_history_is_refused(path, capsys):
    path.write_text("{}\n{}\n")
    assert main(["verify", str(path)]) == 1
    assert capsys.readouterr().err == f"tailrace: {path}, line 1: has no `process`\n"
    assert main(["verify", str(path.with_name("missing"))]) == 1
    assert "cannot read" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(path), "--allow", "nonsense"])
