"""`Cluster`: several brokers and their controllers for the length of a test, each a process of its own.

It is `tailrace up --brokers N`, whose supervisor starts and stops single nodes on request; so a node that a test kills
stays dead until the test starts it, while one that dies by itself is restarted, and its log says so. A node is a
broker's number, or a name: `kill(2)`, `kill("broker-2")`, `kill("controller-1")`; without a node everything is meant.

It leaves nothing behind: no process and no temporary folder, even if the test process itself is killed.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.real.metrics.targets import read_targets
from tailrace.real.supervisor import SupervisorError, ask_supervisor
from tailrace.testing.broker import setting_text
from tailrace.testing.child import BrokerFailedError, Child, Guard
from tailrace.testing.metrics import Metrics, scrape
from tailrace.testing.scoped import Scoped
from tailrace.testing.users import ClientSettings, admin_settings, create_user

# The low-latency profile: settings with which a dead leader is replaced within a second. The price: a node that is
# stopped for half a second, by a busy machine or a long pause of its disk, is taken for dead. docs/reliability.md tells
# what clients need to notice as fast.
LOW_LATENCY: Mapping[str, str | int | float | bool] = {
    "broker.heartbeat.interval.ms": 100,
    "broker.session.timeout.ms": 500,
    "broker.lease.ms": 500,
    "controller.quorum.election.timeout.ms": 200,
    "controller.quorum.election.backoff.max.ms": 100,
    "controller.quorum.fetch.timeout.ms": 400,
    "controller.quorum.request.timeout.ms": 400,
    "replica.fetch.backoff.ms": 50,
}

_ANSWER_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0


class Cluster(Scoped):
    """`settings` are Kafka's, by their own names, for every node. With three brokers or more topics have three replicas
    and min.insync.replicas 2. `data` is a folder to keep; without it the data lives in a temporary folder for the life
    of this object, across `kill` and `restart`. `secure=True` is as for a `Broker`.
    """

    def __init__(
        self,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        brokers: int = 3,
        host: str = "127.0.0.1",
        port: int = 0,
        data: str | os.PathLike[str] | None = None,
        secure: bool = False,
        log_level: str = "info",
        start_timeout_s: float = 30.0,
    ) -> None:
        self.settings = {name: setting_text(value) for name, value in (settings or {}).items()}
        self.bootstrap = ""
        self._brokers = brokers
        self._host = host
        self._port = port
        self._data = None if data is None else os.fspath(data)
        self._secure = secure
        self._log_level = log_level
        self._start_timeout_s = start_timeout_s
        self._folder: str | None = None
        self._guard: Guard | None = None
        self._child: Child | None = None

    @property
    def data(self) -> str:
        """The folder that holds a folder of each node, by its name."""
        if self._data is not None:
            return self._data
        return os.path.join(self._own_folder(), "data")

    @property
    def client_settings(self) -> ClientSettings:
        """How the admin of a secure cluster comes in."""
        return admin_settings(self.bootstrap, self.data, is_secure=self._secure)

    def user(self, name: str, acls: Sequence[str] = ()) -> ClientSettings:
        """As of a secure `Broker`."""
        return create_user(self.client_settings, name, acls)

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """By name: node_id, state, process_id and bootstrap."""
        return {facts["name"]: facts for facts in self._ask("nodes")["nodes"]}

    def metrics_url(self, node: int | str) -> str:
        """Where /metrics and /health of a node are."""
        return read_targets(self.data)[_name(node)]

    def metrics(self, node: int | str) -> Metrics:
        """What a node counts, as it is now."""
        return scrape(self.metrics_url(node), self.client_settings if self._secure else None)

    @property
    def broker_ids(self) -> list[int]:
        return [facts["node_id"] for name, facts in self.nodes.items() if name.startswith("broker-")]

    def process_id(self, node: int | str) -> int:
        found = self.nodes[_name(node)]["process_id"]
        if found is None:
            raise RuntimeError(f"{_name(node)} does not run now")
        return int(found)

    def name_of(self, node_id: int) -> str:
        """The name of the node with this id: of controllers the two differ."""
        return next(name for name, facts in self.nodes.items() if facts["node_id"] == node_id)

    def log(self, node: int | str | None = None) -> str:
        """What the node, or the supervisor, has logged so far, over all restarts."""
        path = self._log_path() if node is None else os.path.join(self._own_folder(), "logs", f"{_name(node)}.log")
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def start(self, node: int | str | None = None) -> None:
        """Returns when it is ready; without a node, when clients can connect to every broker."""
        if node is not None:
            self._ask("start", node)
            return
        if self._child is not None:
            raise RuntimeError("the cluster was started already")
        if self._guard is None:
            self._folder = tempfile.mkdtemp(prefix="tailrace-test-")
            self._guard = Guard(self._folder)
        self._child = Child(self._arguments(), self._log_path(), self._guard)
        try:
            self.bootstrap = self._child.wait_ready(self._start_timeout_s)
        except BrokerFailedError as error:
            logs = self._log_tails()
            self.close()
            raise BrokerFailedError(f"{error}{logs}") from None
        except BaseException:
            self.close()
            raise
        self._port = int(self.bootstrap.partition(",")[0].rpartition(":")[2])

    def stop(self, node: int | str | None = None) -> None:
        """SIGTERM: a broker hands its leaderships over first. The data stays until `close`."""
        if node is None:
            if self._child is not None:
                child, self._child = self._child, None
                child.stop(_STOP_TIMEOUT_S)
            return
        exit_code = self._ask("stop", node)["exit_code"]
        if exit_code not in (0, None):  # None: it did not run.
            raise BrokerFailedError(
                f"{_name(node)} stopped with exit code {exit_code}; its log:\n{self.log(node)[-4000:]}"
            )

    def kill(self, node: int | str | None = None) -> None:
        """SIGKILL; without a node, of all processes at once."""
        if node is not None:
            self._ask("kill", node)
            return
        if self._child is None:
            raise RuntimeError("the cluster does not run now")
        child, self._child = self._child, None
        child.kill_all()

    def pause(self, node: int | str) -> None:
        """SIGSTOP: the process is there, its connections stay open, and nothing answers."""
        os.kill(self.process_id(node), signal.SIGSTOP)

    def resume(self, node: int | str) -> None:
        os.kill(self.process_id(node), signal.SIGCONT)

    def restart(self, node: int | str | None = None) -> None:
        """Stops it cleanly if it runs, then starts it on the same port and data."""
        self.stop(node)
        self.start(node)

    def add_broker(self) -> int:
        """Starts one more broker, empty, and gives its number."""
        return int(self._ask("add")["node"]["node_id"])

    def close(self) -> None:
        """Ends all processes that still run, and removes the temporary folder."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill_all()
        if self._guard is not None:
            guard, self._guard = self._guard, None
            guard.close()

    def _arguments(self) -> list[str]:
        words = ["--brokers", str(self._brokers), "--host", self._host, "--port", str(self._port), "--data", self.data]
        words += ["--logs", os.path.join(self._own_folder(), "logs"), "--log-level", self._log_level]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return [*words, "--secure"] if self._secure else words

    def _ask(self, action: str, node: int | str | None = None) -> dict[str, Any]:
        with open(os.path.join(self.data, "cluster.json"), encoding="utf-8") as file:
            cluster_id = json.load(file)["cluster_id"]
        request = {"do": action} if node is None else {"do": action, "node": _name(node)}
        try:
            return ask_supervisor(cluster_id, request, timeout_s=_ANSWER_TIMEOUT_S)
        except SupervisorError as error:
            logs = "" if node is None else self._log_tail(_name(node))
            raise BrokerFailedError(f"{error}{logs}") from None

    def _own_folder(self) -> str:
        if self._folder is None:
            raise RuntimeError("the cluster has no folder before it is started")
        return self._folder

    def _log_path(self) -> str:
        return os.path.join(self._own_folder(), "supervisor.log")

    def _log_tails(self) -> str:
        folder = os.path.join(self._own_folder(), "logs")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return "".join(self._log_tail(name.removesuffix(".log")) for name in names)

    def _log_tail(self, name: str) -> str:
        try:
            return f"\n--- the log of {name} ends with:\n{self.log(name)[-2000:]}"
        except FileNotFoundError:
            return ""


def _name(node: int | str) -> str:
    return f"broker-{node}" if isinstance(node, int) else node
