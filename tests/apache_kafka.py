"""A node of Apache Kafka 4.3, broker and controller in one or a further broker, for tests of our clients against it."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.nodes import free_ports

# A second or two of start, and no more memory than it needs: several run on two cores.
JAVA = ("java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_DEADLINE_S = 90.0
# Internal topics for one broker.
SMALL = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "2000000",
}
# While the node starts, the client that looks for it would complain.
_SILENT = logging.getLogger("tests.apache_kafka.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class ApacheKafka:
    """`listeners` maps names to security protocols; a plain one, PLAINTEXT, is always there. `class_path` as the
    fixture kafka_class_path gives it; `scram` are options of StorageTool's --add-scram."""

    def __init__(
        self,
        class_path: str,
        folder: Path,
        *,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        scram: Iterable[str] = (),
        node_id: int = 1,
        controller: str | None = None,
        java_options: Iterable[str] = (),
    ) -> None:
        """With the address of another node's `controller` it is a broker of that one's cluster."""
        protocols = {"PLAINTEXT": "PLAINTEXT"} | dict(listeners or {})
        ports = free_ports(len(protocols) + 1)
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(protocols, ports, strict=False)}
        self.controller = controller or f"127.0.0.1:{ports[-1]}"
        bound = self.addresses | ({} if controller else {"CONTROLLER": self.controller})
        chosen = (
            SMALL
            | {
                "process.roles": "broker" if controller else "broker,controller",
                "node.id": str(node_id),
                "listeners": ",".join(f"{name}://{address}" for name, address in bound.items()),
                "listener.security.protocol.map": ",".join(
                    f"{name}:{protocol}" for name, protocol in (protocols | {"CONTROLLER": "PLAINTEXT"}).items()
                ),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@{self.controller}",
                "log.dirs": os.fspath(folder / "data"),
            }
            | dict(settings or {})
        )
        config = folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        java = [*JAVA, "-cp", class_path]
        added = [word for each in scram for word in ("--add-scram", each)]
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config, *added],
            capture_output=True,
            text=True,
            timeout=START_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        self._log = folder / "log"
        self._words = [*JAVA, *java_options, "-cp", class_path, "kafka.Kafka", os.fspath(config)]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._words, stdout=log, stderr=log)

    def restart(self) -> None:
        """After it was killed; returns when it answers."""
        self._process = self._start()
        self.wait_answering()

    @property
    def bootstrap(self) -> str:
        return self.addresses["PLAINTEXT"]

    def __enter__(self) -> Self:
        try:
            self.wait_answering()
        except BaseException:
            self.close()
            raise
        return self

    def wait_answering(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "Apache Kafka does not answer"
            with contextlib.suppress(KafkaException):
                admin = AdminClient({"bootstrap.servers": self.bootstrap}, logger=_SILENT)
                if admin.list_topics(timeout=1).brokers:  # Else it is still fenced.
                    return
            time.sleep(0.2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
