"""docs/handlers.md, word for word: what it tells a newcomer to type is what runs here."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tailrace.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "handlers.md"
BLOCK = re.compile(r"^```(sh|python|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 60.0


def test_the_page_can_be_followed(tmp_path: Path):
    text = PAGE.read_text().partition("## An application in ten minutes")[2].partition("\n## ")[0]
    start, *blocks = BLOCK.findall(text)
    assert start[1] == "tailrace up\n"
    with Broker(
        {"group.consumer.min.heartbeat.interval.ms": 100, "group.consumer.heartbeat.interval.ms": 200}
    ) as broker:
        script = "set -em\n"
        for language, block in blocks:
            if language == "python":
                (tmp_path / "billing.py").write_text(block.replace("127.0.0.1:9092", broker.bootstrap))
            else:
                script += re.sub(
                    r"^(.*tailrace \w+(?: \w+)?)", rf"\1 --bootstrap {broker.bootstrap}", block, flags=re.M
                )
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.splitlines()
    assert printed.count("billed 3 to ann") == 1
    assert printed.count("billed 1 to eve") == 1
    assert sum(line.count("an order of nothing") for line in printed) == 1
    assert "1 letter replayed" in printed
    assert sorted(line for line in printed if "thanks" in line) == ['{"thanks":"ann"}', '{"thanks":"eve"}']
