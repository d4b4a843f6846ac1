"""Apache Kafka from the time of ZooKeeper, for tests of what is mirrored from there: a broker with its ZooKeeper, and
further ones, so that somebody is left to notice that a broker has died."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.apache_kafka import JAVA, SMALL, START_DEADLINE_S, ApacheKafka
from tests.nodes import free_ports

SESSION_MS = 2000


class KafkaWithZooKeeper(ApacheKafka):
    """`controller` is the address of its ZooKeeper: with another one's it is a broker of that cluster."""

    def __init__(
        self,
        class_path: str,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        controller: str | None = None,
    ) -> None:
        port, keeper_port = free_ports(2)
        self.addresses = {"PLAINTEXT": f"127.0.0.1:{port}"}
        self.controller = controller or f"127.0.0.1:{keeper_port}"
        self._keeper = None if controller else _start_keeper(class_path, folder, keeper_port)
        chosen = SMALL | {
            "broker.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": self.controller,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "log.dirs": os.fspath(folder / "data"),
        }
        config = folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in (chosen | dict(settings or {})).items()))
        self._log = folder / "log"
        self._words = [*JAVA, "-cp", class_path, "kafka.Kafka", os.fspath(config)]
        self._process = self._start()

    def restart(self) -> None:
        time.sleep(1.5 * SESSION_MS / 1000)  # Until ZooKeeper has forgotten who died: two cannot have the same id.
        super().restart()

    def close(self) -> None:
        self.kill()
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()


def _start_keeper(class_path: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Returns when it can be connected to."""
    config = folder / "zookeeper.properties"
    config.write_text(
        f"dataDir={folder / 'zookeeper'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "tickTime=500\nadmin.enableServer=false\n"
    )
    with (folder / "zookeeper.log").open("wb") as log:
        words = [*JAVA, "-cp", class_path, "org.apache.zookeeper.server.ZooKeeperServerMain", os.fspath(config)]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    deadline = time.monotonic() + START_DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return process
    process.kill()
    process.wait()
    raise AssertionError("ZooKeeper does not answer")
