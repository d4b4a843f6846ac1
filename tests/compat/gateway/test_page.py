"""docs/gateway.md: its commands work as they stand there, and its table of settings is whole."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields

from tailrace.apps.gateway.settings import GatewaySettings
from tests.parts import ROOT, need_program

from .conftest import Gateway

PAGE = (ROOT / "docs" / "gateway.md").read_text()


def test_the_commands_of_the_page_work(gateway: Gateway):
    need_program("curl")
    commands = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    assert len(commands) >= 3
    script = "set -euo pipefail\n" + "\n".join(commands).replace("http://127.0.0.1:8082", gateway.url)
    script = script.replace("curl ", "curl -sS ").replace("--max-time 5", "--max-time 3")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert '"value":{"item":"tea","count":2}' in done.stdout
    assert '"value_base64":"AP8="' in done.stdout
    assert done.stdout.count('"error_code":200') == 2
    assert '"failures":[]' in done.stdout


def test_the_table_of_settings_is_whole():
    for each in fields(GatewaySettings):
        name, default, doc = each.metadata["name"], each.default, each.metadata["doc"]
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        cell = f"`{shown}`" if shown else ""
        assert f"| `{name}` | {cell} | {doc} |" in PAGE
