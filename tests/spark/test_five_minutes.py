"""docs/spark/five-minutes.md, word for word: what it tells a newcomer to type is what runs here."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tailrace.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "five-minutes.md"
DEADLINE_S = 240.0
BLOCK = re.compile(r"^```(sh|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The page's broker has the default port, ours has not; a pipeline's file says it itself.
SHELL = """\
set -euo pipefail
tailrace() {{
  if [ "$1" = pipeline ]; then command tailrace "$@"; else command tailrace "$@" --bootstrap {bootstrap}; fi
}}
"""
# Python as one types it: each line of input is a block, the names stay, and one line of output says that it is done.
TYPED = """\
import json, sys
names = {}
for line in sys.stdin:
    exec(json.loads(line), names)
    print(flush=True)
    print("-- done", flush=True)
"""

pytestmark = pytest.mark.long


def test_the_page_can_be_followed(fresh_tailrace_broker: Broker, tmp_path: Path):
    bootstrap = fresh_tailrace_broker.bootstrap
    text = PAGE.read_text().replace("127.0.0.1:9092", bootstrap)
    blocks = BLOCK.findall(
        text[text.index("tailrace topic create") - len("```sh\n") :]
    )  # Those before install, and start it.
    printed = ""
    with _TypedPython(tmp_path) as python:
        for language, block in blocks:
            match language:
                case "toml":
                    (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
                case "sh":
                    printed += _shell(SHELL.format(bootstrap=bootstrap) + block, tmp_path)
                case "python":
                    printed += python.type(block)
    assert "1000 rows in the table" in printed
    assert "clean: 1,000 records, no difference" in printed
    assert "landing" in printed


class _TypedPython:
    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", TYPED], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._watchdog = threading.Timer(DEADLINE_S, self._process.kill)

    def type(self, block: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(block) + "\n")
        self._process.stdin.flush()
        printed = ""
        while (line := self._process.stdout.readline()) != "-- done\n":
            assert line, f"this failed:\n{block}\n{printed}"
            printed += line
        return printed

    def __enter__(self) -> "_TypedPython":
        self._watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self._process.communicate(timeout=DEADLINE_S)


def _shell(script: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout
