"""What `make demo` shows of operations: a broker is killed; `tailrace top`, /metrics, an alert and the runbook tell it.

The alert comes by a command that writes it to a file, as a pager would be called. Its rule waits for a shorter time
than the shipped one: a demo is short.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tailrace.testing import Cluster

Show = Callable[[str], None]
Expect = Callable[[bool, str], None]

WAIT_S = 60.0
VICTIM = 3
RUNBOOK = Path(__file__).parents[1] / "docs" / "runbook.md"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
RULES = """\
[send]
commands = ["{python} -c 'import sys; open(\\"{told}\\", \\"a\\").write(sys.stdin.read() + chr(10))'"]
interval_seconds = 1
resolve_seconds = 2
[[rule]]
name = "NodeDown"
for_seconds = 3
"""


def kill_and_be_told(cluster: Cluster, show: Show, expect: Expect) -> None:
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as name:
        folder = Path(name)
        told, rules = folder / "told", folder / "alerts.toml"
        rules.write_text(RULES.format(python=sys.executable, told=told))
        command = [sys.executable, "-m", "tailrace", "alerts", "run", "--data", cluster.data, "--rules", str(rules)]
        watcher = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            cluster.kill(VICTIM)
            show(f"broker {VICTIM} is killed, and stays dead for now")
            seen = look(cluster)
            down = [node["instance"] for node in seen["nodes"] if not node["is_up"]]
            expect(len(down) == 1, f"`tailrace top` shows these nodes as down: {down}")
            show(f"$ tailrace top --once: 1 node down, {down[0]}")
            wait(lambda: sum(cluster.metrics(each).value(UNDER_REPLICATED) for each in (1, 2)) > 0, expect)
            count = sum(cluster.metrics(each).value(UNDER_REPLICATED) for each in (1, 2))
            show(f"/metrics of the others: {UNDER_REPLICATED} {count:g}")
            wait(lambda: told.exists() and "NodeDown" in told.read_text(), expect)
            alert = alerts(told)[0]
            link = alert["annotations"]["runbook_url"]
            show(f"alert: {alert['labels']['severity']}, {alert['annotations']['summary']}; see {link}")
            entry = RUNBOOK.read_text().partition("## NodeDown\n")[2].strip().partition("\n\n")[0]
            show(f"the runbook: {' '.join(entry.replace('**', '').split())}")
            cluster.start(VICTIM)
            wait(lambda: alerts(told)[-1]["status"] == "resolved", expect)
            show(f"broker {VICTIM} is started again; the alert is over")
        finally:
            watcher.terminate()
            watcher.wait(WAIT_S)


def look(cluster: Cluster) -> dict[str, list[dict[str, object]]]:
    command = [sys.executable, "-m", "tailrace", "top", "--data", cluster.data, "--once", "--json", "--every", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    seen: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return seen


def alerts(told: Path) -> list[dict[str, Any]]:
    return [alert for line in told.read_text().splitlines() for alert in json.loads(line)["alerts"]]


def wait(is_so: Callable[[], bool], expect: Expect) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        expect(time.monotonic() < deadline, "nobody was told of a broker that is dead")
        time.sleep(0.1)
