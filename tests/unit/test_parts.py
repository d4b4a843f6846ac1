"""What becomes of a test whose part is missing: skipped and counted, or failed where all parts have to be there."""

from pathlib import Path

import pytest

from tests import parts

NOT_THERE = "no-such-program"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "missing-parts"
    monkeypatch.setenv(parts.RECORD_VARIABLE, str(path))
    return path


def skipped(reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        "test", ("test.py", 1, "test"), {}, "skipped", ("test.py", 1, f"Skipped: {reason}"), "setup"
    )


def test_a_missing_program_skips_and_is_counted(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv(parts.MODE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception) as raised:
        parts.need_program(NOT_THERE)
    for _ in range(2):
        parts.record_skip(skipped(str(raised.value)))
    parts.report()
    told = capsys.readouterr().out
    assert told.startswith("2 tests were skipped for a missing part. `make tools` brings")
    assert "2 tests: no-such-program is not installed" in told


def test_other_skips_are_not_counted(record: Path, capsys: pytest.CaptureFixture[str]):
    parts.record_skip(skipped("only root may mount"))
    parts.report()
    assert capsys.readouterr().out == "No test was skipped for a missing part.\n"


def test_a_missing_program_fails_where_parts_are_required(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(parts.MODE_VARIABLE, "required")
    with pytest.raises(pytest.fail.Exception, match=NOT_THERE):
        parts.need_program(NOT_THERE)


def test_what_is_there_is_found():
    assert Path(parts.need_program("sh")).exists()
    assert parts.find_program(NOT_THERE) is None
