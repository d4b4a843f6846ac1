"""docs/schemas.md, word for word: what it tells a newcomer to type is what runs here."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tailrace.testing import Broker

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
BLOCK = re.compile(r"^```(sh|python|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 120.0


def test_the_page_can_be_followed(registered_broker: Broker, tmp_path: Path):
    text = PAGE.read_text().partition("## Schemas in five minutes")[2].partition("\n## ")[0]
    install, *blocks = BLOCK.findall(text)
    assert "tailrace up --registry-port 8081" in install[1]
    session = "import subprocess\n"
    expected = ""
    for language, block in blocks:
        if language == "sh":
            session += f"subprocess.run(['bash', '-ec', {_with_options(block, registered_broker)!r}], check=True)\n"
        elif language == "python":
            session += block
        else:
            expected += block
    session = session.replace("127.0.0.1:9092", registered_broker.bootstrap)
    session = session.replace("http://127.0.0.1:8081", registered_broker.registry_url)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [sys.executable, "-uc", session],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line for line in printed if line.startswith(("{'id'", "409"))] == expected.splitlines()
    assert "not today" in printed
    assert any("give the field price a default" in line for line in printed)
    assert any(line.startswith("who would break: 1 group reads orders now") for line in printed)


def _with_options(block: str, broker: Broker) -> str:
    """The page's broker and registry have their default ports, ours have not."""
    return block.replace("--subject", f"--bootstrap {broker.bootstrap} --registry {broker.registry_url} --subject")
