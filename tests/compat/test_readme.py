"""README.md: its client runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

from tailrace.testing import Broker

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


def test_the_client_runs(fresh_tailrace_broker: Broker):
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert program.count("127.0.0.1:9092") == 2
    program = program.replace("127.0.0.1:9092", fresh_tailrace_broker.bootstrap)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "b'hello'\n"), done.stderr
