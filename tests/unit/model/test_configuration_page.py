"""docs/configuration.md is generated, so that it cannot tell another story than the tables."""

import runpy
from pathlib import Path

GENERATOR = Path(__file__).parents[3] / "docs" / "configuration_page.py"


def test_the_page_of_settings_is_current() -> None:
    page = runpy.run_path(str(GENERATOR))
    assert page["PAGE"].read_text() == page["render"](), f"run: python {GENERATOR.name}, in docs/"
