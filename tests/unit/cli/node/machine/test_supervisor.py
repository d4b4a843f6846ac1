"""The supervisor of a cluster: requests over its socket, restarts of the dead, an end in which nothing is left."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.real.supervisor import SupervisorError, ask_supervisor

WAIT_S = 30


class Up:
    """`tailrace up --brokers 3` in a folder."""

    def __init__(self, data: Path, *words: str) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "up", "--brokers", "3", "--port", "0", "--data", str(data), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_ready(self) -> list[str]:
        # A cluster that never gets ready is killed, which ends the line.
        timer = threading.Timer(WAIT_S, os.killpg, (self.process.pid, signal.SIGKILL))
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        assert line.startswith("ready: "), self.process.stderr.read()
        return line.removeprefix("ready: ").strip().split(",")

    def ask(self, action: str, **facts: str) -> dict[str, Any]:
        cluster_id = json.loads((self.data / "cluster.json").read_text())["cluster_id"]
        return ask_supervisor(cluster_id, {"do": action, **facts}, timeout_s=WAIT_S)

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in self.ask("nodes")["nodes"]}

    def end(self) -> tuple[int, str]:
        """As a service manager does it: everybody gets the signal."""
        os.killpg(self.process.pid, signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def begin(*words: str) -> Up:
        started.append(Up(tmp_path / "data", *words))
        return started[-1]

    yield begin
    for up in started:
        try:
            os.killpg(up.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        up.process.communicate()


def test_a_cluster_from_start_to_end(start: Callable[..., Up]):
    up = start()
    bootstrap = up.wait_ready()
    nodes = up.nodes()
    assert list(nodes) == [*(f"controller-{n}" for n in (1, 2, 3)), *(f"broker-{n}" for n in (1, 2, 3))]
    assert [nodes[f"broker-{n}"]["bootstrap"] for n in (1, 2, 3)] == bootstrap
    ports = [int(address.rpartition(":")[2]) for address in bootstrap]
    assert ports == list(range(ports[0], ports[0] + 3))
    assert sorted(path.name for path in up.data.iterdir()) == sorted(["cluster.json", "metrics-targets.json", *nodes])
    exit_code, log = up.end()
    assert exit_code == 0, log
    assert "Traceback" not in log
    stopped = [line.split()[3] for line in log.splitlines() if " stopped " in line]
    assert {name.rpartition("-")[0] for name in stopped[:3]} == {"broker"}, "brokers stop before controllers"
    _assert_gone(nodes)


def test_a_dead_node_is_restarted_and_its_death_logged(start: Callable[..., Up]):
    up = start()
    up.wait_ready()
    before = up.nodes()["broker-2"]["process_id"]
    os.kill(before, signal.SIGKILL)
    _wait_until(lambda: up.nodes()["broker-2"]["state"] == "ready" and up.nodes()["broker-2"]["process_id"] != before)
    exit_code, log = up.end()
    assert exit_code == 0
    assert "a node was killed by SIGKILL node=broker-2" in log


def test_nodes_are_killed_stopped_and_started_on_request(start: Callable[..., Up]):
    up = start()
    up.wait_ready()
    assert up.ask("kill", node="broker-1")["exit_code"] == -signal.SIGKILL
    assert up.ask("stop", node="controller-3")["exit_code"] == 0
    assert [name for name, node in up.nodes().items() if node["state"] == "dead"] == ["controller-3", "broker-1"]
    assert up.ask("start", node="controller-3")["node"]["state"] == "ready"
    assert up.ask("start", node="broker-1")["node"]["state"] == "ready"
    with pytest.raises(SupervisorError, match="there is no broker-9"):
        up.ask("start", node="broker-9")
    with pytest.raises(SupervisorError, match="cannot dance"):
        up.ask("dance")


def test_an_added_broker_is_there_after_a_restart_and_a_removed_one_is_not(start: Callable[..., Up]):
    up = start()
    first = up.wait_ready()
    controllers = [node["bootstrap"] for name, node in up.nodes().items() if name.startswith("controller")]
    assert up.ask("add")["node"]["name"] == "broker-4"
    up.ask("remove", node="broker-1")
    assert up.end()[0] == 0
    up = start()
    again = up.wait_ready()
    assert again[:2] == first[1:], "the same ports"
    assert list(up.nodes())[3:] == ["broker-2", "broker-3", "broker-4"]
    assert controllers == [node["bootstrap"] for name, node in up.nodes().items() if name.startswith("controller")]


def test_a_killed_supervisor_takes_its_nodes_along(start: Callable[..., Up]):
    up = start()
    up.wait_ready()
    nodes = up.nodes()
    up.process.kill()
    up.process.communicate()
    _wait_until(lambda: not any(_is_alive(node["process_id"]) for node in nodes.values()))


def test_a_cluster_runs_once(start: Callable[..., Up]):
    start().wait_ready()
    second = start()
    _, log = second.process.communicate(timeout=WAIT_S)
    assert second.process.returncode == 1
    assert "another `tailrace up` runs the cluster" in log


def test_a_node_that_cannot_start_ends_the_whole(start: Callable[..., Up], tmp_path: Path):
    up = start()
    up.wait_ready()
    assert up.end()[0] == 0
    meta = up.data / "broker-2" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=2", "node.id=7"))
    up = start()
    ready, log = up.process.communicate(timeout=60)
    assert up.process.returncode == 1
    assert ready == ""
    assert "tailrace: broker-2: " in log
    assert "broker-2 ended with exit code 1 before it was ready" in log


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "node.id=4"], "each node of a cluster has its own"),
        (["--set", "no.such.setting=4"], "no.such.setting"),
    ],
)
def test_settings_that_cannot_be(start: Callable[..., Up], words: list[str], told: str):
    up = start(*words)
    _, log = up.process.communicate(timeout=WAIT_S)
    assert up.process.returncode == 1
    assert told in log


def _assert_gone(nodes: dict[str, dict[str, Any]]) -> None:
    assert not [name for name, node in nodes.items() if _is_alive(node["process_id"])]


def _is_alive(process_id: int) -> bool:
    """A zombie that nobody reaps is as dead as can be."""
    try:
        with open(f"/proc/{process_id}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
