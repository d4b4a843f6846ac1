"""What is compared: Tailrace, and Apache Kafka as its documentation says to start it.

The data of each is in a temporary folder of the same disk. What differs from the defaults is in the tables below, and
is the same for both where it can be.
"""

import socket
import sys
from importlib.metadata import version
from pathlib import Path

from bench.maven import bring_jars
from bench.versus.processes import Process, Rival, Running, free_ports, output, ready, receive

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
# Warm topics give their memory back soon: both look for old segments as often, and from the beginning. With thousands
# of partitions that would be all they do.
WARM_CHECKS = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
# Both look for dead brokers as often, in rows that say "the same timeouts": Tailrace's own defaults.
SAME_TIMEOUTS = {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "2500"}
_KAFKA_LOG_SETTINGS = """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
"""
_UNIT_PROCESSES = 2
_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


def _start_tailrace(brokers: int, settings: dict[str, str], folder: Path) -> Running:
    nodes = _Nodes(brokers, folder)
    tailrace = [sys.executable, "-m", "tailrace"]
    ids = [output([*tailrace, "format", "--new-id"]) for _ in range(brokers)]
    voters = ",".join(f"{node}@{nodes.controllers[node]}:{ids[node - 1]}" for node in nodes.addresses)
    processes = {}
    for node in nodes.addresses:
        quorum = {"controller.quorum.bootstrap.servers": ",".join(nodes.controllers.values())}
        file = folder / f"node-{node}.toml"
        chosen = nodes.settings(node, settings) | quorum
        file.write_text("".join(f"{name} = {value!r}\n" for name, value in chosen.items()))
        words = ["--config", str(file), "--cluster-id", _CLUSTER_ID, "--initial-controllers", voters]
        output([*tailrace, "format", *words])
        processes[node] = Process([*tailrace, "broker", "--config", str(file)], folder / f"log-{node}")
    return ready(TAILRACE.name, processes, nodes.addresses, folder, nodes.all_known)


def _start_unit(_brokers: int, settings: dict[str, str], folder: Path) -> Running:
    """One broker of Kafka's has as many threads as it likes; ours has one, so here it is two processes of one file."""
    nodes = _Nodes(1, folder)
    port = _ports_in_a_row(_UNIT_PROCESSES)
    nodes.addresses = {1: f"127.0.0.1:{port}"}
    addresses = {node: f"127.0.0.1:{port + node - 1}" for node in range(1, _UNIT_PROCESSES + 1)}
    tailrace, file = [sys.executable, "-m", "tailrace"], folder / "node.toml"
    controller_id = output([*tailrace, "format", "--new-id"])
    chosen = nodes.settings(1, settings) | {"controller.quorum.bootstrap.servers": nodes.controllers[1]}
    file.write_text("".join(f"{name} = {value!r}\n" for name, value in chosen.items()))
    words = ["--config", str(file), "--processes", str(_UNIT_PROCESSES)]
    voter = f"1@{nodes.controllers[1]}:{controller_id}"
    output([*tailrace, "format", *words, "--cluster-id", _CLUSTER_ID, "--initial-controllers", voter])
    supervisor = Process([*tailrace, "broker", *words], folder / "log")
    return ready(TAILRACE.name, {1: supervisor}, addresses, folder, lambda at: brokers_known(at) == _UNIT_PROCESSES)


def _ports_in_a_row(count: int) -> int:
    """The first of them."""
    while True:
        first = free_ports(1)[0]
        try:
            for port in range(first, first + count):
                with socket.socket() as each:
                    each.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def _start_kafka(brokers: int, settings: dict[str, str], folder: Path) -> Running:
    nodes = _Nodes(brokers, folder)
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_KAFKA_LOG_SETTINGS)
    java = ["-cp", kafka_class_path(), f"-Dlog4j2.configurationFile={log_settings}"]
    processes = {}
    for node in nodes.addresses:
        quorum = {"controller.quorum.voters": ",".join(f"{n}@{where}" for n, where in nodes.controllers.items())}
        chosen = nodes.settings(node, settings) | quorum
        file = folder / f"server-{node}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        output(["java", *java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file)])
        command = ["java", *KAFKA_HEAP, *_KAFKA_JVM, *java, "kafka.Kafka", str(file)]
        processes[node] = Process(command, folder / f"log-{node}")
    return ready(KAFKA.name, processes, nodes.addresses, folder, nodes.all_known)


class _Nodes:
    """Combined nodes, each broker and controller: the fewest processes that make a cluster, for both alike."""

    def __init__(self, brokers: int, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(2 * brokers)
        numbers = range(1, brokers + 1)
        self.addresses = {node: f"127.0.0.1:{ports[node - 1]}" for node in numbers}
        self.controllers = {node: f"127.0.0.1:{ports[brokers + node - 1]}" for node in numbers}

    def settings(self, node: int, given: dict[str, str]) -> dict[str, str]:
        """With those that a row gives; its listeners come beside these."""
        own = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "listeners": f"PLAINTEXT://{self.addresses[node]},CONTROLLER://{self.controllers[node]}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / f"data-{node}"),
            **(_REPLICATED if len(self.addresses) > 1 else _ALONE),
        }
        listeners = ",".join(each["listeners"] for each in (own, given) if "listeners" in each)
        return own | given | {"listeners": listeners}

    def all_known(self, address: str) -> bool:
        return brokers_known(address) == len(self.addresses)


TAILRACE = Rival("Tailrace", version("tailrace"), _start_tailrace)
TWO_PROCESSES = Rival(TAILRACE.name, TAILRACE.setting, _start_unit)
KAFKA = Rival(
    "Apache Kafka",
    f"{KAFKA_VERSION}, heap {' '.join(KAFKA_HEAP)}",
    _start_kafka,
    ("java", "mvn"),
    "Apache Kafka is brought by Maven and runs on Java 17",
    ("java", "--version"),
)


def kafka_class_path() -> str:
    return f"{bring_jars(Path(__file__).with_name('pom.xml'), 'bench-kafka')}/*"


def brokers_known(address: str) -> int:
    """How many brokers this one tells of, 0 if it does not answer: one Metadata request of version 1, by hand, since a
    client library would wait and retry in its own rhythm."""
    host, _, port = address.rpartition(":")
    body = b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff\x00\x00\x00\x00"
    try:
        with socket.create_connection((host, int(port)), 1.0) as connection:
            connection.settimeout(5.0)
            connection.sendall(len(body).to_bytes(4, "big") + body)
            head = receive(connection, 4)
            answer = receive(connection, int.from_bytes(head, "big"))
    except (OSError, EOFError):
        return 0
    return int.from_bytes(answer[4:8], "big")
