"""Three production nodes, each broker and controller: `tailrace format` and `tailrace broker`, with proxies between.

Clients reach every node directly; replication and the metadata quorum have listeners of their own, behind proxies.
"""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tailrace.real.random import RealRandom

from .proxy import Network

WAIT_S = 30.0
LISTENERS = ("PLAINTEXT", "REPLICATION", "CONTROLLER")


class Production:
    """A context manager. Nodes are 1, 2 and 3."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self.folder = folder
        self.nodes = [1, 2, 3]
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._ports = _free_ports(5 * len(self.nodes))
        self.network = Network(
            self._owner_of,
            lambda: [process.pid for process in self._processes.values()],
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._port(node, 'PLAINTEXT')}" for node in self.nodes)

    def __enter__(self) -> "Production":
        for node in self.nodes:
            for listener in LISTENERS[1:]:
                self.network.proxy(node, self._proxy_port(node, listener), self._port(node, listener))
        self._format()
        for node in self.nodes:
            self._start(node)
        for node in self.nodes:
            self._wait_ready(node)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
        for process in self._processes.values():
            process.communicate()
        self.network.close()

    def _owner_of(self, process_id: int) -> int | None:
        return next((node for node, process in self._processes.items() if process.pid == process_id), None)

    def _port(self, node: int, listener: str) -> int:
        return self._ports[(node - 1) * 5 + LISTENERS.index(listener)]

    def _proxy_port(self, node: int, listener: str) -> int:
        return self._ports[(node - 1) * 5 + 2 + LISTENERS.index(listener)]

    def _format(self) -> None:
        ids = [_tailrace("format", "--new-id").strip() for _ in range(len(self.nodes) + 1)]
        controllers = [f"127.0.0.1:{self._proxy_port(node, 'CONTROLLER')}" for node in self.nodes]
        voters = ",".join(
            f"{node}@{address}:{directory_id}"
            for node, address, directory_id in zip(self.nodes, controllers, ids[1:], strict=True)
        )
        for node in self.nodes:
            addresses = {name: f"{name}://127.0.0.1:{self._port(node, name)}" for name in LISTENERS}
            advertised = {
                name: f"{name}://127.0.0.1:{self._proxy_port(node, name)}" for name in ("REPLICATION", "CONTROLLER")
            }
            settings: dict[str, object] = {
                "node.id": node,
                "process.roles": ["broker", "controller"],
                "listeners": list(addresses.values()),
                "advertised.listeners": list((addresses | advertised).values()),
                "inter.broker.listener.name": "REPLICATION",
                "controller.listener.names": ["CONTROLLER"],
                "controller.quorum.bootstrap.servers": controllers,
                "log.dirs": [str(self.folder / f"broker-{node}")],
                "default.replication.factor": 3,
                "min.insync.replicas": 2,
                **self._settings,
            }
            lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
            self._config(node).write_text("\n".join(lines) + "\n")
            _tailrace(
                "format", "--config", str(self._config(node)), "--cluster-id", ids[0], "--initial-controllers", voters
            )

    def _config(self, node: int) -> Path:
        return self.folder / f"node-{node}.toml"

    def _start(self, node: int) -> None:
        with open(self.folder / f"node-{node}.log", "ab") as log:
            self._processes[node] = subprocess.Popen(
                [sys.executable, "-m", "tailrace", "broker", "--config", str(self._config(node))],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _wait_ready(self, node: int) -> None:
        process = self._processes[node]
        # A node that never gets ready is killed, which ends the line.
        timer = threading.Timer(WAIT_S, process.kill)
        timer.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        timer.cancel()
        assert line.startswith("ready: "), (self.folder / f"node-{node}.log").read_text()[-4000:]


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool | int | float) else f'"{value}"'


def _tailrace(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _free_ports(count: int) -> list[int]:
    """Below those of outgoing connections, one of which could take a port while its node restarts."""
    ports: list[int] = []
    random = RealRandom()
    while len(ports) < count:
        port = 20_000 + random.randrange(12_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports
