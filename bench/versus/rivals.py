"""What is compared: a rival starts brokers in a folder, and says where they listen and which processes they are.

Each is started as its documentation says, with its data in a temporary folder of the same disk. What differs from its
defaults is in the tables below, and is the same for all where it can be.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 90.0
KAFKA_VERSION = "4.3.0"
# Kafka's own start script gives these.
KAFKA_HEAP = ("-Xmx1G", "-Xms1G")
_KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# What a cluster of one needs for groups and transactions to work at all: Kafka's own example files set it too.
_ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
_KAFKA_LOG_SETTINGS = """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
"""
# Both look for dead brokers as often, in rows that say "the same timeouts": Tailrace's own defaults.
SAME_TIMEOUTS = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "2500"}
# Warm topics give their memory back soon; both look for old segments as often.
_WARM_CHECKS = {"log.retention.check.interval.ms": "100"}
_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
_ROOT = Path(__file__).parents[2]


@dataclass
class Process:
    """One broker. `start` may be called again after `kill`."""

    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    popen: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=os.environ | self.environment, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def kill(self) -> None:
        assert self.popen is not None
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> None:
        if self.popen is None or self.popen.poll() is not None:
            return
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


class Usage(NamedTuple):
    cpu_s: float
    resident_bytes: int


@dataclass
class Running:
    """Brokers at work."""

    name: str
    addresses: dict[int, str]  # by node id
    brokers: dict[int, Process]
    ready_after_s: float
    folder: Path

    @property
    def data(self) -> list[Path]:
        return [self.folder / f"data-{node}" for node in self.brokers]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def port(self) -> int:
        return int(next(iter(self.addresses.values())).rpartition(":")[2])

    def usage(self) -> Usage:
        """Of all its processes together."""
        processes = self.brokers.values()
        return Usage(sum(map(_cpu_s, processes)), sum(map(_resident_bytes, processes)))


class Rival(NamedTuple):
    name: str
    # (number of brokers, settings on top, folder) -> running brokers
    start: "Callable[[int, dict[str, str], Path], Running]"

    @contextmanager
    def running(self, brokers: int = 1, settings: dict[str, str] | None = None) -> Iterator[Running]:
        with tempfile.TemporaryDirectory(prefix="versus-", ignore_cleanup_errors=True) as folder:
            found = self.start(brokers, _WARM_CHECKS | (settings or {}), Path(folder))
            try:
                yield found
            finally:
                for process in found.brokers.values():
                    process.stop()


def _start_tailrace(brokers: int, settings: dict[str, str], folder: Path) -> Running:
    nodes = _Nodes(brokers, folder)
    tailrace = [sys.executable, "-m", "tailrace"]
    ids = [_output([*tailrace, "format", "--new-id"]) for _ in range(brokers)]
    voters = ",".join(f"{node}@{nodes.controllers[node]}:{ids[node - 1]}" for node in nodes.addresses)
    processes = {}
    for node in nodes.addresses:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(nodes.controllers.values())}
        file = folder / f"node-{node}.toml"
        chosen = nodes.settings(node) | quorum | {"log.initial.task.delay.ms": "0"} | settings
        file.write_text("".join(f"{name} = {value!r}\n" for name, value in chosen.items()))
        words = ["--config", str(file), "--cluster-id", _CLUSTER_ID, "--initial-controllers", voters]
        _output([*tailrace, "format", *words])
        processes[node] = Process([*tailrace, "broker", "--config", str(file)], folder / f"log-{node}")
    return _ready("Tailrace", processes, nodes.addresses, folder)


def _start_kafka(brokers: int, settings: dict[str, str], folder: Path) -> Running:
    nodes = _Nodes(brokers, folder)
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_KAFKA_LOG_SETTINGS)
    java = ["-cp", kafka_class_path(), f"-Dlog4j2.configurationFile={log_settings}"]
    processes = {}
    for node in nodes.addresses:
        quorum = {"controller.quorum.voters": ",".join(f"{n}@{where}" for n, where in nodes.controllers.items())}
        chosen = nodes.settings(node) | quorum | settings
        file = folder / f"server-{node}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        _output(["java", *java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file)])
        command = ["java", *KAFKA_HEAP, *_KAFKA_JVM, *java, "kafka.Kafka", str(file)]
        processes[node] = Process(command, folder / f"log-{node}")
    return _ready(f"Apache Kafka {KAFKA_VERSION}", processes, nodes.addresses, folder)


class _Nodes:
    """Combined nodes, each broker and controller: the fewest processes that make a cluster, for both alike."""

    def __init__(self, brokers: int, folder: Path) -> None:
        self._folder = folder
        ports = _free_ports(2 * brokers)
        numbers = range(1, brokers + 1)
        self.addresses = {node: f"127.0.0.1:{ports[node - 1]}" for node in numbers}
        self.controllers = {node: f"127.0.0.1:{ports[brokers + node - 1]}" for node in numbers}

    def settings(self, node: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{self.addresses[node]},CONTROLLER://{self.controllers[node]}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / f"data-{node}"),
            **(_REPLICATED if len(self.addresses) > 1 else _ALONE),
        }


TAILRACE = Rival("Tailrace", _start_tailrace)
KAFKA = Rival("Apache Kafka", _start_kafka)


def kafka_class_path() -> str:
    """Brought by Maven, once, into a folder that git ignores."""
    pom = Path(__file__).with_name("pom.xml")
    jars = _ROOT / ".cache" / "bench-kafka"
    installed = jars / "pom.xml"
    if not installed.exists() or installed.read_bytes() != pom.read_bytes():
        for tool in ("mvn", "java"):
            if shutil.which(tool) is None:
                raise RuntimeError(f"Apache Kafka is brought by Maven and runs on Java; there is no {tool} on PATH")
        shutil.rmtree(jars, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(command, check=True, timeout=600)
        shutil.copy(pom, installed)
    return f"{jars}/*"


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout.strip()


def _ready(name: str, brokers: dict[int, Process], addresses: dict[int, str], folder: Path) -> Running:
    """Started, and each broker answers Metadata with all brokers in it: what a client needs to begin."""
    begun = time.perf_counter()
    for process in brokers.values():
        process.start()
    try:
        for address in addresses.values():
            _wait_answers(address, len(addresses), begun + DEADLINE_S, brokers)
    except BaseException:
        for process in brokers.values():
            process.stop()
        raise
    return Running(name, addresses, brokers, time.perf_counter() - begun, folder)


def _wait_answers(address: str, brokers: int, deadline: float, processes: dict[int, Process]) -> None:
    while time.perf_counter() < deadline:
        if brokers_known(address) == brokers:
            return
        for process in processes.values():
            if process.popen is not None and process.popen.poll() is not None:
                raise RuntimeError(f"a broker ended; its log ends with:\n{process.log.read_text()[-2000:]}")
        time.sleep(0.01)
    raise TimeoutError(f"{address} did not get ready in {DEADLINE_S} s")


def brokers_known(address: str) -> int:
    """How many brokers this one tells of, 0 if it does not answer: one Metadata request of version 1, by hand, since a
    client library would wait and retry in its own rhythm."""
    host, _, port = address.rpartition(":")
    body = b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff\x00\x00\x00\x00"
    try:
        with socket.create_connection((host, int(port)), 1.0) as connection:
            connection.settimeout(5.0)
            connection.sendall(len(body).to_bytes(4, "big") + body)
            head = _receive(connection, 4)
            answer = _receive(connection, int.from_bytes(head, "big"))
    except (OSError, EOFError):
        return 0
    return int.from_bytes(answer[4:8], "big")


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _cpu_s(process: Process) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(process: Process) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
