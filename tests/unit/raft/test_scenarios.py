"""The stories of `scenarios/`: what a quorum does in each, word for word, and that they go through the whole table."""

from pathlib import Path

import pytest

from tailrace.raft.roles import _ALLOWED
from tests.scenarios import check_story
from tests.unit.raft.stage import Stage

STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_story(path, Stage(set(), monkeypatch).do)


def test_every_row_of_the_table_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a row could stand there that nothing needs, or that nobody has thought through."""
    rows: set[tuple[str, str]] = set()
    for path in STORIES:
        with monkeypatch.context() as patch:
            check_story(path, Stage(rows, patch).do)
    assert rows == set(_ALLOWED)
