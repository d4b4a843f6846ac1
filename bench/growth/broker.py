"""The broker that is measured, and what it has used so far."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Broker

_DEADLINE_S = 120.0
_SETTINGS = {"log.retention.check.interval.ms": 100, "log.initial.task.delay.ms": 0}
# What a whole topic keeps: what is written next takes the memory of what was deleted.
_WARM_BYTES = 768 << 20


class Measured(NamedTuple):
    """A running broker."""

    broker: Broker

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def port(self) -> int:
        return self.broker.port

    @property
    def servers(self) -> dict[str, str]:
        """As `bench.librdkafka` takes it."""
        return {"bootstrap_servers": self.bootstrap}

    @property
    def client(self) -> dict[str, str | int]:
        """As confluent-kafka takes it; what it says as it closes is of no interest."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 2}

    def create_topics(self, names: list[str], partitions: int = 1, *, warm: bool = True) -> None:
        """In one request, or in as many as the number of partitions in one allows. Warm topics delete old segments."""
        kept = max(1 << 20, _WARM_BYTES // (partitions * len(names)))
        settings = {
            "segment.bytes": str(max(1 << 20, kept // 2)),
            "retention.bytes": str(kept),
            "file.delete.delay.ms": "0",
        }
        admin = AdminClient(self.client)
        new = [NewTopic(name, partitions, 1, config=settings if warm else {}) for name in names]
        for created in admin.create_topics(new, operation_timeout=_DEADLINE_S).values():
            created.result(_DEADLINE_S)

    def cpu_s(self) -> float:
        with open(f"/proc/{self.broker.process_id}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        with open(f"/proc/{self.broker.process_id}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running() -> Iterator[Measured]:
    """A new one."""
    with Broker(_SETTINGS, log_level="warning", start_timeout_s=60.0) as broker:
        yield Measured(broker)
