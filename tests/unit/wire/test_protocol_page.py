"""docs/protocol.md is what the declarations say."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_current() -> None:
    written = runpy.run_path(str(DOCS / "protocol_page.py"))["page"]()
    assert (DOCS / "protocol.md").read_text() == written, "run: python docs/protocol_page.py"
