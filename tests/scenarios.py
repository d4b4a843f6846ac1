"""Stories as text files: a command, `----`, and what came of it, up to an empty line; lines that begin with # are told
to the reader alone. In the manner of CockroachDB's and etcd's datadriven tests.

`REWRITE=1 pytest …` writes what comes of each command into the file in place of what stands there: look at the
difference before it is committed."""

import os
from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path


def check_story(path: Path, do: Callable[[str], list[str]]) -> None:
    """`do` plays one command, and gives the lines of what came of it."""
    expected = path.read_text()
    told = "\n\n".join(_tell(block, do) for block in expected.strip().split("\n\n")) + "\n"
    if os.environ.get("REWRITE"):
        path.write_text(told)
        return
    difference = unified_diff(expected.splitlines(), told.splitlines(), path.name, "what came of it", lineterm="", n=2)
    assert told == expected, "another story (REWRITE=1 writes it anew):\n" + "\n".join(difference)


def _tell(block: str, do: Callable[[str], list[str]]) -> str:
    head = block.partition("\n----")[0]
    commands = [line for line in head.splitlines() if not line.startswith("#")]
    if not commands:
        return block
    lines = [line for command in commands for line in do(command)]
    return "\n".join([head, "----", *(lines or ["nothing happens"])])
