"""How large a cluster has to be: pure arithmetic over a workload, the machine of one broker, and measured costs.

The load is taken as spread evenly over all brokers. A broker is one process with one busy thread, so its processor time
is that of one core; a larger machine runs several brokers, which are lost with it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tailrace.cli.plan.figures import Figures
from tailrace.cli.plan.units import DAY, duration_text, rate_text, size_text

# The loop of a broker, and the kernel's network and write-back work beside it with the helper threads.
CORES_PER_BROKER = 2
CONTROLLERS = 3


class Workload(NamedTuple):
    messages_per_s: float
    message_bytes: float
    retention_s: float
    replication: int = 3
    fanout: int = 1  # groups of consumers, each of which reads everything
    batch_bytes: float = 65_536.0
    compression: float = 1.0  # how many bytes of messages become one that is sent and stored
    clients: int = 1_000
    lag_s: float = 300.0  # how far behind a consumer may be and still read from memory

    @property
    def ingress(self) -> float:
        """Bytes a second that producers send."""
        return self.messages_per_s * self.message_bytes / self.compression


class Machine(NamedTuple):
    """What one broker has, and how much of it is planned to be used."""

    cores: int = CORES_PER_BROKER  # of the machine, which all its brokers share
    disk_bytes: float = 16e12
    network_bytes_per_s: float = 1.25e9  # each way
    busy: float = 0.5
    disk_full: float = 0.8
    spare: int = 1  # machines that may be down while the rest carries the load
    partition_bytes: float = 500e9  # larger ones take too long to move
    partition_bytes_per_s: float = 10e6  # what one consumer is trusted to work off
    replicas: int = 4_000

    @property
    def brokers(self) -> int:
        return max(1, self.cores // CORES_PER_BROKER)


class Need(NamedTuple):
    """How many brokers one resource asks for."""

    resource: str
    total: float
    unit: str
    brokers: int
    reason: str


class Plan(NamedTuple):
    workload: Workload
    machine: Machine
    figures: Figures
    needs: tuple[Need, ...]
    brokers: int
    partitions: int
    memory_bytes: float  # for each broker, with what the page cache should hold
    process_bytes: float  # the broker's own part of it

    @property
    def decided_by(self) -> str:
        return max(self.needs, key=lambda need: need.brokers).resource

    @property
    def machines(self) -> int:
        return self.brokers // self.machine.brokers

    @property
    def cores(self) -> int:
        return self.brokers * CORES_PER_BROKER

    @property
    def stored_per_day(self) -> float:
        return self.workload.ingress * self.workload.replication * DAY

    @property
    def stored(self) -> float:
        return self.workload.ingress * self.workload.replication * self.workload.retention_s

    @property
    def network_in(self) -> float:
        return self.workload.ingress * self.workload.replication

    @property
    def network_out(self) -> float:
        return self.workload.ingress * (self.workload.replication - 1 + self.workload.fanout)

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload._asdict() | {"ingress_bytes_per_s": self.workload.ingress},
            "machine": self.machine._asdict(),
            "machines": self.machines,
            "brokers_on_each_machine": self.machine.brokers,
            "brokers": self.brokers,
            "decided_by": self.decided_by,
            "controllers": CONTROLLERS,
            "cores": self.cores,
            "partitions": self.partitions,
            "replicas_per_broker": math.ceil(self.partitions * self.workload.replication / self.brokers),
            "memory_bytes_per_broker": self.memory_bytes,
            "process_bytes_per_broker": self.process_bytes,
            "stored_bytes_per_day": self.stored_per_day,
            "stored_bytes": self.stored,
            "network_in_bytes_per_s": self.network_in,
            "network_out_bytes_per_s": self.network_out,
            "needs": [need._asdict() for need in self.needs],
            "assumptions": assumptions(self),
            "figures": self.figures.to_json(),
        }


def decide_plan(workload: Workload, machine: Machine, figures: Figures) -> Plan:
    ingress, copies = workload.ingress, workload.replication
    stored = ingress * copies * workload.retention_s
    incoming, outgoing = ingress * copies, ingress * (copies - 1 + workload.fanout)
    cpu = _cpu_seconds_per_second(workload, figures)
    disk_speed = figures.disk_mb_per_s.value * 1e6
    least_partitions = max(
        math.ceil(ingress * workload.retention_s / machine.partition_bytes),
        math.ceil(ingress / machine.partition_bytes_per_s),
    )

    def carrying(load: float, capacity: float) -> int:
        """The rest has to carry the load while the spare ones are down."""
        return math.ceil(load / (capacity * machine.busy)) + machine.spare * machine.brokers

    needs = (
        Need("replication", copies, "copies", copies * machine.brokers, "each copy on a machine of its own"),
        Need("processor", cpu, "cores", carrying(cpu, 1.0), f"one core of each broker, {machine.busy:.0%} busy"),
        Need(
            "network",
            max(incoming, outgoing),
            "B/s",
            carrying(max(incoming, outgoing), machine.network_bytes_per_s),
            f"{size_text(machine.network_bytes_per_s)}/s each way, {machine.busy:.0%} used",
        ),
        Need(
            "disk space",
            stored,
            "B",
            math.ceil(stored / (machine.disk_bytes * machine.disk_full)),
            f"{size_text(machine.disk_bytes)} in each broker, {machine.disk_full:.0%} full",
        ),
        Need(
            "disk speed",
            incoming,
            "B/s",
            carrying(incoming, disk_speed),
            f"{size_text(disk_speed)}/s each, {machine.busy:.0%} used",
        ),
        Need(
            "partitions",
            least_partitions * copies,
            "replicas",
            math.ceil(least_partitions * copies / machine.replicas),
            f"{machine.replicas:,} replicas in each broker",
        ),
    )
    # All machines are alike.
    brokers = math.ceil(max(need.brokers for need in needs) / machine.brokers) * machine.brokers
    # As many for each broker, so that each leads as much as the others.
    partitions = math.ceil(least_partitions / brokers) * brokers
    process = _process_bytes(workload, figures, partitions * copies / brokers)
    hot = incoming * min(workload.lag_s, workload.retention_s) / brokers
    return Plan(workload, machine, figures, needs, brokers, partitions, process + hot, process)


def _cpu_seconds_per_second(workload: Workload, figures: Figures) -> float:
    """The processor time of all brokers together: cores that would be busy all the time."""
    gigabytes = workload.ingress / 1e9
    # A batch never holds less than one message, nor more than it is allowed to.
    requests = workload.ingress / max(workload.batch_bytes, workload.message_bytes / workload.compression)
    return (
        gigabytes * figures.produce_s_per_gb.value
        + requests * figures.produce_us_per_request.value / 1e6
        + gigabytes * (workload.replication - 1) * figures.replicate_s_per_gb.value
        + gigabytes * workload.fanout * figures.fetch_s_per_gb.value
        + requests * workload.fanout * figures.fetch_us_per_request.value / 1e6
    )


def _process_bytes(workload: Workload, figures: Figures, replicas: float) -> float:
    return (
        figures.broker_mb.value * 1e6
        + replicas * figures.partition_kb.value * 1e3
        + workload.clients * figures.connection_kb.value * 1e3
    )


def assumptions(plan: Plan) -> list[str]:
    """Everything that was taken for granted, in sentences."""
    workload, machine = plan.workload, plan.machine
    compressed = f", and 1/{workload.compression:g} of it compressed" if workload.compression > 1 else ""
    message = f"{size_text(workload.message_bytes)} with its key, headers and framing (10 to 20 bytes){compressed}"
    partition = f"{size_text(machine.partition_bytes)}, so that it can be moved"
    return [
        f"{rate_text(workload.messages_per_s)} come all the time; peaks take of the {1 - machine.busy:.0%} left free.",
        f"A message takes {message}.",
        f"Producers send batches of {size_text(workload.batch_bytes)} (their batch.size), and a Fetch brings as much.",
        f"Groups that read everything: {workload.fanout}, each at most {duration_text(workload.lag_s)} behind.",
        "What they read is in memory; whoever reads older records takes disk speed on top.",
        f"Load is spread evenly. Machines that may be down while the rest carries it: {machine.spare}.",
        f"A broker is one process with one busy core, and is given {CORES_PER_BROKER}.",
        f"Brokers on each machine: {machine.brokers}, each with a disk and a share of the network of its own.",
        f"A partition holds at most {partition}.",
        f"It takes at most {size_text(machine.partition_bytes_per_s)}/s, which one consumer has to work off.",
        f"{workload.clients:,} clients are connected to every broker.",
        "No TLS, no transactions, no compacted topics: each costs more.",
        f"{CONTROLLERS} controllers beside the brokers, with a core and 1 GB each.",
        *(f"{each.meaning}: {each.value:,.4g} {each.unit} ({each.source})." for each in plan.figures),
    ]
