"""Draws docs/pictures/demo.svg from a recording of the demo, as a terminal shows it; of each step in STEPS, all lines.

    script -qec 'make demo' recording && python docs/demo_picture.py recording

The picture needs no font and no other file from elsewhere, and tells no speed: those are measured, not shown.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent / "pictures" / "demo.svg"
# The steps that are shown, by how their titles begin.
STEPS = ("kill -9 of the leader", "kill -9 of a loop")
_BOLD = "\x1b[1m"
# Titles begin at the left edge.
_TITLE = re.compile(rf"^{re.escape(_BOLD)}(?=\S)", re.MULTILINE)
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def main(recording: Path) -> None:
    told = recording.read_text().replace("\r", "")
    parts = [_BOLD + part for part in _TITLE.split(told)[1:]]
    chosen = [next(part for part in parts if part.startswith(_BOLD + step)) for step in STEPS]
    shown = "\n".join(["$ make demo", "...", *(line for part in chosen for line in _own_lines(part))])
    lines = Text.from_ansi(shown).split()
    for line in lines:
        line.rstrip()
    console = Console(record=True, width=max(map(len, lines)) + 1, file=io.StringIO())
    for line in lines:
        console.print(line, soft_wrap=True)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(_FONTS.sub("", console.export_svg(title="make demo", unique_id="demo")))


def _own_lines(step: str) -> list[str]:
    """The title and what is shown below it, which is indented; what Spark says of itself is not."""
    title, *lines = step.splitlines()
    return [title, *(line for line in lines if line.startswith("  ") and line.strip()), ""]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
