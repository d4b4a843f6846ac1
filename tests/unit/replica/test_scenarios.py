"""The stories of `scenarios/`: what a leader and the controller do about who is in sync, word for word."""

from pathlib import Path

import pytest

from tests.scenarios import check_story
from tests.unit.replica.stage import Stage

STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story(path: Path) -> None:
    stage = Stage()
    try:
        check_story(path, stage.do)
    finally:
        stage.loop.close()
