"""Brokers that share a machine as one unit: they live and die, restart and stop as one, and nothing is lost."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.real.random import RealRandom
from tests.nodes import free_ports

from .observe import create_topic, partitions_of, wait_in_sync
from .traffic import Traffic

DEADLINE_S = 60.0


class Unit:
    """`tailrace broker --processes N` in a process group of its own."""

    def __init__(self, folder: Path, processes: int, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._processes = str(processes)
        self._config = folder / "node.toml"
        folder.mkdir()
        self.write(settings)

    def write(self, settings: Mapping[str, str]) -> None:
        lines = [f"{name} = {value!r}" for name, value in (settings | {"log.dirs": str(self.folder / "data")}).items()]
        self._config.write_text("\n".join(lines) + "\n")

    def format(self, *words: str) -> None:
        self.tailrace("format", "--config", str(self._config), "--processes", self._processes, *words)

    def tailrace(self, *words: str) -> None:
        command = [sys.executable, "-m", "tailrace", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr

    def start(self, **environment: str) -> None:
        command = [sys.executable, "-m", "tailrace", "broker", "--config", str(self._config)]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*command, "--processes", self._processes],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=os.environ | environment,
            )

    def wait_ready(self) -> str:
        timer = threading.Timer(DEADLINE_S, self.kill)
        timer.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        timer.cancel()
        assert line.startswith("ready: "), self.log()
        return line.removeprefix("ready: ").strip()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def children(self) -> list[int]:
        """In the order of their start."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(word) for word in Path(path).read_text().split()]

    def wait_logged(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.log().count(text) < times:
            assert time.monotonic() < deadline, self.log()[-3000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """All of it at once, as a machine dies."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.communicate()


def combined_settings(node_id: int, host: str, ports: Sequence[int]) -> dict[str, str]:
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host}:{ports[0]},CONTROLLER://{host}:{ports[1]}",
        "controller.listener.names": "CONTROLLER",
    }


def spaced_ports(count: int) -> list[int]:
    """Above each of them so many are free that the processes of a unit find theirs."""
    return [port - port % 16 for port in free_ports(count)]


def test_a_unit_from_its_format_to_its_end(tmp_path: Path):
    port = spaced_ports(1)[0]
    one = combined_settings(1, "127.0.0.1", (port, port + 1)) | {"default.replication.factor": "3"}
    with Unit(tmp_path / "unit", 3, one) as unit:
        unit.format()
        unit.start()
        bootstrap = unit.wait_ready()
        assert bootstrap == ",".join(f"127.0.0.1:{port + step}" for step in (0, 2, 4))
        create_topic(bootstrap, "orders", 3)
        wait_in_sync(bootstrap, "orders")
        traffic = Traffic(bootstrap, "orders", 3, records_per_second=500)
        traffic.wait_acked(200)
        os.kill(unit.children()[1], signal.SIGKILL)
        unit.wait_logged("a node was killed by SIGKILL")
        wait_in_sync(bootstrap, "orders")
        traffic.wait_acked(200)
        before = set(unit.children())
        unit.write(one | {"message.max.bytes": "nonsense"})
        unit.process.send_signal(signal.SIGHUP)
        unit.wait_logged("nothing is restarted: the settings are wrong")
        assert set(unit.children()) == before
        unit.write(one | {"message.max.bytes": "2000000"})
        unit.process.send_signal(signal.SIGHUP)
        unit.wait_logged("all nodes were restarted")
        assert before.isdisjoint(unit.children())
        traffic.wait_acked(200)
        traffic.finish()
        traffic.check()
        unit.process.terminate()
        assert unit.process.wait(DEADLINE_S) == 0, unit.log()[-3000:]
        assert unit.log().count("stopped node=") == 6, "three at the restart, and three at the end"


def test_a_unit_with_certificates_for_other_names_than_the_loopback_address(tmp_path: Path):
    """The names are those by which other machines reach it. Brokers of the unit call each other by them, too."""
    port = spaced_ports(1)[0]
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"SSL://localhost:{port}",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol": "SSL",
        "controller.listener.names": "CONTROLLER",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "node.pem"),
        "ssl.truststore.location": str(tmp_path / "authority.pem"),
        "offsets.topic.replication.factor": "1",
        "default.replication.factor": "2",
    }
    with Unit(tmp_path / "unit", 2, settings) as unit:
        unit.tailrace("certificate", "create", "node", "--name", "localhost", "--folder", str(tmp_path))
        unit.format()
        unit.start()
        bootstrap = unit.wait_ready()
        assert bootstrap == f"localhost:{port},localhost:{port + 2}"
        client = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "authority.pem"),
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic("orders", 2, 2)])["orders"].result(DEADLINE_S)
        producer = Producer({**client, "acks": "all"})
        delivered: list[object] = []
        for partition in (0, 1):
            producer.produce(
                "orders", b"value", partition=partition, on_delivery=lambda error, _: delivered.append(error)
            )
        assert producer.flush(DEADLINE_S) == 0
        assert delivered == [None, None]


def test_a_service_manager_hears_of_the_unit_as_of_one_process(tmp_path: Path):
    port = spaced_ports(1)[0]
    with (
        Unit(tmp_path / "unit", 2, combined_settings(1, "127.0.0.1", (port, port + 1))) as unit,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard,
    ):
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(DEADLINE_S)
        unit.format()
        unit.start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="400000")
        bootstrap = unit.wait_ready()
        assert heard.recv(200).decode() == f"READY=1\nSTATUS=2 nodes at {bootstrap}"
        # At once, and again as long as the supervisor's loop turns.
        assert [heard.recv(200) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        unit.process.terminate()
        said = heard.recv(200)
        while said == b"WATCHDOG=1":
            said = heard.recv(200)
        assert said.startswith(b"STOPPING=1")
        assert unit.process.wait(DEADLINE_S) == 0


@pytest.mark.long
def test_a_machine_dies_with_all_its_brokers(tmp_path: Path):
    """Three units on hosts of their own (all of them loopback), two brokers each, and one after the other dies."""
    ports = spaced_ports(2)
    hosts = {1: "127.0.0.1", 3: "127.0.0.2", 5: "127.0.0.3"}
    random = RealRandom()
    voters = ",".join(f"{node}@{host}:{ports[1]}:{_id(random)}" for node, host in hosts.items())
    common = {
        "controller.quorum.bootstrap.servers": ",".join(f"{host}:{ports[1]}" for host in hosts.values()),
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
    }
    units = [
        Unit(tmp_path / f"unit-{node}", 2, combined_settings(node, host, ports) | common)
        for node, host in hosts.items()
    ]
    cluster_id = _id(random)
    try:
        for unit in units:
            unit.format("--cluster-id", cluster_id, "--initial-controllers", voters)
            unit.start()
        bootstrap = ",".join(unit.wait_ready() for unit in units)
        create_topic(bootstrap, "orders", 12)
        wait_in_sync(bootstrap, "orders")
        for partition in partitions_of(bootstrap, "orders").values():
            assert {(node - 1) // 2 for node in partition.replicas} == {0, 1, 2}, partition
        traffic = Traffic(bootstrap, "orders", 12, records_per_second=500)
        for unit in units:
            traffic.wait_acked(300)
            unit.kill()
            unit.process.communicate()
            traffic.wait_acked(300)
            unit.start()
            unit.wait_ready()
            wait_in_sync(bootstrap, "orders")
        traffic.finish()
        traffic.check()
    finally:
        for unit in units:
            unit.__exit__()


def _id(random: RealRandom) -> str:
    from tailrace.model.ids import Uuid, uuid_text

    return uuid_text(Uuid(random.uuid()))
