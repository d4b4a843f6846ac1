"""docs/applications.md and the README: their programs run as they stand, and the table of options is the code's.

TAILRACE_WRITE_DOCS=1 python -m pytest tests/compat/kit/test_kit_page.py -k options    writes the table
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.kit.options import KitConfig
from tailrace.model.settings import format_value
from tailrace.testing import Broker

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "applications.md"
DEADLINE_S = 60.0
_TABLE = re.compile(r"(<!-- tests/compat/kit/test_kit_page.py: begin -->\n).*?(<!-- end -->)", re.DOTALL)


def program_of(path: Path, first_line: str) -> str:
    (found,) = (text for text in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL) if first_line in text)
    return found


def run(program: str, broker: Broker) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:9092", broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_application_in_ten_minutes_runs(fresh_tailrace_broker: Broker) -> None:
    page = PAGE.read_text()
    (expected,) = re.findall(r"```\n(written at .*?)```", page, re.DOTALL)
    assert run(program_of(PAGE, "class Order"), fresh_tailrace_broker) == expected


def test_the_ten_lines_of_the_readme_run(fresh_tailrace_broker: Broker) -> None:
    program = program_of(ROOT / "README.md", "from tailrace.kit import")
    assert len([line for line in program.splitlines() if line.startswith("    ")]) <= 10
    assert run(program, fresh_tailrace_broker) == "ann {'id': 1, 'item': 'mill wheel'}\n"


@pytest.mark.long
def test_the_examples_pass_mypy_strict(tmp_path: Path) -> None:
    programs = (
        program_of(PAGE, "class Order"),
        program_of(ROOT / "README.md", "from tailrace.kit import"),
        program_of(ROOT / "docs" / "handlers.md", "class Order"),
        (Path(__file__).parent / "first_day.py").read_text(),
    )
    for number, program in enumerate(programs):
        (tmp_path / f"example_{number}.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", *tmp_path.glob("*.py")]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "--config-file", ROOT / "pyproject.toml"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_of_options_is_the_codes() -> None:
    rows = ["| option | default | what it says |", "|---|---|---|"]
    for row in KitConfig.SETTINGS.values():
        default = format_value(row, row.default)
        rows.append(f"| `{row.name}` | {'' if default is None else f'`{default}`'} | {row.doc} |")
    table = "\n".join(rows) + "\n"
    page = PAGE.read_text()
    expected = _TABLE.sub(lambda found: found[1] + table + found[2], page)
    if os.environ.get("TAILRACE_WRITE_DOCS"):
        PAGE.write_text(expected)
    else:
        assert page == expected, "write it again with TAILRACE_WRITE_DOCS=1"
