"""Three nodes as an operator sets them up: `tailrace format` and `tailrace broker`, each broker and controller.

For tests that need what `tailrace up` decides for itself: racks, data folders, listeners, the addresses of the quorum.
"""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tailrace.real.random import RealRandom

NODE_IDS = (1, 2, 3)
DEADLINE_S = 30.0


class Nodes:
    """A context manager. `settings_of` gives a node's own settings, by Kafka's names, beside those that make it one."""

    listeners: tuple[str, ...] = ("PLAINTEXT", "CONTROLLER")

    def __init__(self, folder: Path, settings_of: Callable[[int], Mapping[str, str]]) -> None:
        self.folder = folder
        self._settings_of = settings_of
        places = [(node_id, listener) for node_id in NODE_IDS for listener in self.listeners]
        self._ports = dict(zip(places, free_ports(len(places)), strict=True))
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self.cluster_id, *ids = (_tailrace("format", "--new-id").strip() for _ in range(len(NODE_IDS) + 1))
        self.directory_ids = dict(zip(NODE_IDS, ids, strict=True))

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, NODE_IDS))

    @property
    def controllers(self) -> str:
        """What controller.quorum.bootstrap.servers of another node has to say."""
        return ",".join(map(self.controller_address, NODE_IDS))

    def address(self, node_id: int) -> str:
        return self.advertised(node_id, "PLAINTEXT")

    def controller_address(self, node_id: int) -> str:
        return self.advertised(node_id, "CONTROLLER")

    def bound(self, node_id: int, listener: str) -> str:
        """Where a node listens."""
        return f"127.0.0.1:{self._ports[node_id, listener]}"

    def advertised(self, node_id: int, listener: str) -> str:
        """Where others are told to connect to."""
        return self.bound(node_id, listener)

    def launcher(self, _node_id: int) -> list[str]:
        """What stands before a node's command: a program that becomes it."""
        return []

    def data(self, node_id: int) -> Path:
        return self.folder / f"broker-{node_id}"

    def settings(self, node_id: int) -> dict[str, str]:
        """All of a node's settings; a comma parts the items of a list."""
        return {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": ",".join(f"{name}://{self.bound(node_id, name)}" for name in self.listeners),
            "advertised.listeners": ",".join(f"{name}://{self.advertised(node_id, name)}" for name in self.listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controllers,
            "log.dirs": str(self.data(node_id)),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self._settings_of(node_id),
        }

    def __enter__(self) -> Self:
        voters = ",".join(
            f"{node_id}@{self.controller_address(node_id)}:{directory_id}"
            for node_id, directory_id in self.directory_ids.items()
        )
        for node_id in NODE_IDS:
            words = ("--cluster-id", self.cluster_id, "--initial-controllers", voters)
            _tailrace("format", "--config", self._write_settings(node_id), *words)
            self._start(node_id)
        try:
            for node_id in NODE_IDS:
                self._wait_ready(node_id)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.communicate()

    def kill(self, node_id: int) -> None:
        self._processes[node_id].kill()

    def restart(self, node_id: int) -> None:
        """A clean stop, and a start with the settings that it has by then."""
        process = self._processes[node_id]
        process.terminate()
        assert process.wait(DEADLINE_S) == 0, self._log(node_id).read_text()[-4000:]
        process.communicate()
        self._write_settings(node_id)
        self._start(node_id)
        self._wait_ready(node_id)

    def _write_settings(self, node_id: int) -> str:
        """The path of the file."""
        lines = [f"{name} = {value!r}" for name, value in self.settings(node_id).items()]
        config = self.folder / f"node-{node_id}.toml"
        config.write_text("\n".join(lines) + "\n")
        return str(config)

    def _log(self, node_id: int) -> Path:
        return self.folder / f"node-{node_id}.log"

    def _start(self, node_id: int) -> None:
        config = str(self.folder / f"node-{node_id}.toml")
        command = [*self.launcher(node_id), sys.executable, "-m", "tailrace", "broker", "--config", config]
        with open(self._log(node_id), "ab") as log:
            self._processes[node_id] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def _wait_ready(self, node_id: int) -> None:
        process = self._processes[node_id]
        # A node that never gets ready is killed, which ends the line.
        timer = threading.Timer(DEADLINE_S, process.kill)
        timer.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        timer.cancel()
        assert line.startswith("ready: "), self._log(node_id).read_text()[-4000:]


def _tailrace(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Below those of outgoing connections, one of which could take a port before its node does.

    Other tests that look for ports at the same time are told by the UDP port of that number, which stays taken as long
    as this process lives.
    """
    ports: list[int] = []
    random = RealRandom()
    while len(ports) < count:
        port = 20_000 + random.randrange(12_000)
        mark = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                mark.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                mark.close()
                continue
        mark.detach()
        ports.append(port)
    return ports
