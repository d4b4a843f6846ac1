"""Three `tailrace alerts run` of one group watch a cluster: one tells, once; when it is killed another does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tailrace.testing import Cluster
from tests.unit.apps.alerts.listening import Web, listening

pytestmark = pytest.mark.long

NAMES = ("a", "b", "c")
DEADLINE_S = 90.0
# So long nothing more may come.
QUIET_S = 5.0
RULES = """\
[send]
webhooks = ["{webhook}"]
slack = ["{slack}"]
interval_seconds = 0.5
resolve_seconds = 2
[[rule]]
name = "NodeDown"
for_seconds = 2
[[rule]]
name = "UnderReplicated"
for_seconds = 0
"""


class Watchers:
    def __init__(self, folder: Path, cluster: Cluster, web: Web) -> None:
        self._folder = folder
        self._web = web
        self._silences = folder / "silences.json"
        self._words = ["--data", cluster.data, "--group", "watch", "--bootstrap", cluster.bootstrap]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[Watchers]:
        with ExitStack() as stack:
            for name in NAMES:
                rules = self._folder / f"{name}.toml"
                rules.write_text(RULES.format(webhook=self._web.url(f"/{name}"), slack=self._web.url(f"/slack-{name}")))
                log = stack.enter_context((self._folder / f"{name}.log").open("wb"))
                words = [*self._words, "--rules", str(rules), "--silences", str(self._silences)]
                process = subprocess.Popen([sys.executable, "-m", "tailrace", "alerts", "run", *words], stderr=log)
                stack.callback(process.wait, DEADLINE_S)
                stack.callback(process.kill)
                self._processes[name] = process
            yield self

    def silence(self, *words: str) -> None:
        command = [sys.executable, "-m", "tailrace", "alerts", "silence", "--silences", str(self._silences), *words]
        subprocess.run(command, check=True, timeout=DEADLINE_S, capture_output=True)

    def chosen(self) -> str | None:
        """The one among those that live, if there is one and just one."""
        living = [name for name, process in self._processes.items() if process.poll() is None]
        words = {name: self._last_word(name) for name in living}
        chosen = [name for name, word in words.items() if word == "this process tells of alerts"]
        return chosen[0] if len(chosen) == 1 else None

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait(DEADLINE_S)

    def told(self, name: str, alert: str) -> list[str]:
        return [status for each, status in self._web.told(f"/{name}") if each == alert]

    def all_told(self, alert: str) -> dict[str, list[str]]:
        return {name: found for name in NAMES if (found := self.told(name, alert))}

    def _last_word(self, name: str) -> str:
        text = (self._folder / f"{name}.log").read_text()
        at = max(text.rfind("this process tells of alerts"), text.rfind("another process tells of alerts"))
        return text[at:].splitlines()[0].strip() if at >= 0 else ""


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.1)


def test_one_tells_and_when_it_dies_another(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(settings, log_level="warning"))
        web = stack.enter_context(listening())
        watchers = stack.enter_context(Watchers(tmp_path, cluster, web).running())
        watchers.silence("--rule", "UnderReplicated", "--for", "1h")
        wait(watchers.chosen)
        time.sleep(QUIET_S)  # The others have joined by then, or take it from the first.
        first = watchers.chosen()
        assert first is not None
        cluster.kill(3)
        wait(lambda: watchers.told(first, "NodeDown"))
        time.sleep(QUIET_S)
        assert watchers.all_told("NodeDown") == {first: ["firing"]}, "one tells, and once"
        assert any("NodeDown" in each["text"] for each in web.at(f"/slack-{first}"))

        watchers.kill(first)
        wait(watchers.chosen)
        second = watchers.chosen()
        assert second is not None
        assert second != first
        wait(lambda: watchers.told(second, "NodeDown"))
        time.sleep(QUIET_S)
        assert watchers.all_told("NodeDown") == {first: ["firing"], second: ["firing"]}, "what holds, once more"

        cluster.start(3)
        wait(lambda: watchers.told(second, "NodeDown") == ["firing", "resolved"])
        time.sleep(QUIET_S)
        assert watchers.all_told("NodeDown") == {first: ["firing"], second: ["firing", "resolved"]}
        assert watchers.all_told("UnderReplicated") == {}, "it is silenced"
        (last,) = set(NAMES) - {first, second}
        assert os.path.getsize(tmp_path / f"{last}.log") > 0
        assert web.at(f"/{last}") == []
