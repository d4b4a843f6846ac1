"""What is told while the teller is in trouble itself: receivers hang, its clock is set, a node stalls, it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.testing import Cluster
from tests.real.cluster.test_clocks import libfaketime
from tests.unit.apps.alerts.listening import Web, listening

pytestmark = pytest.mark.long

DEADLINE_S = 90.0
QUIET_S = 5.0
NODES = 6
HANGING = 6
RULES = """\
[send]
webhooks = {webhooks}
interval_seconds = 1
resolve_seconds = 3
timeout_seconds = 5
[[rule]]
name = "NodeDown"
for_seconds = 3
"""


class Teller:
    """`tailrace alerts run`, with a wall clock that can be set."""

    def __init__(self, folder: Path, cluster: Cluster, web: Web) -> None:
        self._web = web
        self._clock, rules, self._status = folder / "clock", folder / "alerts.toml", folder / "status.json"
        rules.write_text(RULES.format(webhooks=json.dumps([web.url("/hook"), *[web.url("/slow")] * HANGING])))
        self.set_clock(0)
        self._command = [sys.executable, "-m", "tailrace", "alerts", "run", "--data", cluster.data]
        self._command += ["--rules", str(rules), "--status", str(self._status)]
        faked = {"FAKETIME_TIMESTAMP_FILE": str(self._clock), "FAKETIME_NO_CACHE": "1"}
        self._environment = {
            **os.environ,
            **faked,
            "LD_PRELOAD": str(libfaketime()),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stderr=subprocess.DEVNULL, env=self._environment)

    def set_clock(self, seconds: int) -> None:
        self._clock.write_text(f"{seconds:+d}\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def start_again(self) -> None:
        self._process = self._start()

    def end(self) -> int:
        self._process.terminate()
        return self._process.wait(DEADLINE_S)

    @property
    def watches(self) -> bool:
        return self._status.exists() and len(json.loads(self._status.read_text())["nodes"]) == NODES

    def told(self, instance: str) -> list[str]:
        """Of a node that is down, and up again."""
        labels = {"alertname": "NodeDown", "instance": instance}
        alerts = [each for document in self._web.at("/hook") for each in document["alerts"]]
        return [each["status"] for each in alerts if labels.items() <= each["labels"].items()]


def instance_of(cluster: Cluster, node: int) -> str:
    return cluster.metrics_url(node).removeprefix("http://")


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.2)


def test_everything_is_told_all_the_same(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(brokers=3, log_level="warning"))
        web = stack.enter_context(listening())
        teller = Teller(tmp_path, cluster, web)
        stack.callback(teller.kill)
        wait(lambda: teller.watches)

        first = instance_of(cluster, 3)
        cluster.kill(3)
        wait(lambda: teller.told(first) == ["firing"])
        teller.set_clock(-7200)
        cluster.start(3)
        wait(lambda: teller.told(first) == ["firing", "resolved"])

        second = instance_of(cluster, 2)
        cluster.kill(2)
        wait(lambda: teller.told(second) == ["firing"])
        teller.set_clock(7200)
        time.sleep(QUIET_S)
        assert teller.told(second) == ["firing"], "two hours have not passed"
        cluster.start(2)
        wait(lambda: teller.told(second) == ["firing", "resolved"])

        stalled = instance_of(cluster, 1)
        cluster.pause(1)
        wait(lambda: teller.told(stalled) == ["firing"])
        teller.kill()
        cluster.resume(1)
        teller.set_clock(0)
        teller.start_again()
        wait(lambda: teller.told(stalled) == ["firing", "resolved"])

        last = instance_of(cluster, 3)
        cluster.kill(3)
        wait(lambda: teller.told(last) == ["firing"])
        teller.kill()
        teller.start_again()
        wait(lambda: teller.told(last) == ["firing"] * 2)
        cluster.start(3)
        wait(lambda: teller.told(last) == ["firing", "firing", "resolved"])
        began = time.monotonic()
        assert teller.end() == 0
        assert time.monotonic() - began < DEADLINE_S / 2, "receivers that hang do not keep it"
        web.may_answer.set()
