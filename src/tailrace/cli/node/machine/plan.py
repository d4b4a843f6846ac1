"""The plan of a cluster on one machine: which nodes there are, their ids, ports, folders and settings.

Pure: nothing is opened or written here. Brokers have the ids 1, 2, ... and controllers 1001, 1002, ..., so that a new
broker never meets a controller's id. Brokers listen on PORT, PORT + 1, ...; controllers above them, on the loopback
address alone, and always on the same ports: the voters of a quorum are stored with their addresses, and could not find
each other on new ones. A broker that is added later takes the next port that no controller has.

In a secure cluster brokers have another listener for each other, on the loopback address and on any free port: they
find it in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PLAN_FILE = "cluster.json"
CONTROLLER_LISTENER = "CONTROLLER"
NODES_LISTENER = "NODES"
OPEN_LISTENER, SECURE_LISTENER = "PLAINTEXT", "SASL_SSL"
CONTROLLER_HOST = "127.0.0.1"
FIRST_CONTROLLER_ID = 1001
# With three brokers a cluster keeps everything through the loss of one; with fewer there is nothing to elect from.
BROKERS_FOR_REPLICATION = 3
# All voters are on this machine, and the first election is part of the start: a second of waiting would be half of it.
ELECTION_TIMEOUT_MS = 250

# What makes a node itself cannot be the same for all.
SETTINGS_OF_ONE_NODE = frozenset(
    {
        "node.id",
        "process.roles",
        "cluster.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)


class ControllerPlan(NamedTuple):
    node_id: int
    port: int
    directory_id: str


class ClusterPlan(NamedTuple):
    cluster_id: str
    port: int
    controllers: tuple[ControllerPlan, ...]
    broker_ids: tuple[int, ...]

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{CONTROLLER_HOST}:{controller.port}" for controller in self.controllers)

    @property
    def next_broker_id(self) -> int:
        return max(self.broker_ids) + 1

    def broker_port(self, node_id: int) -> int:
        """The n-th port from PORT on that is no controller's."""
        taken = sorted(controller.port for controller in self.controllers)
        port = self.port + node_id - 1
        for controller_port in taken:
            if self.port <= controller_port <= port:
                port += 1
        return port

    def with_port(self, port: int) -> ClusterPlan:
        return self._replace(port=port)

    def with_broker(self, node_id: int) -> ClusterPlan:
        return self._replace(broker_ids=tuple(sorted({*self.broker_ids, node_id})))

    def without_broker(self, node_id: int) -> ClusterPlan:
        return self._replace(broker_ids=tuple(each for each in self.broker_ids if each != node_id))

    def to_json(self) -> str:
        facts = {**self._asdict(), "controllers": [controller._asdict() for controller in self.controllers]}
        return json.dumps(facts, indent=2) + "\n"


def parse_plan(text: str) -> ClusterPlan:
    """Raises ValueError or KeyError or TypeError if it is not what `to_json` wrote."""
    facts = json.loads(text)
    return ClusterPlan(
        str(facts["cluster_id"]),
        int(facts["port"]),
        tuple(ControllerPlan(**controller) for controller in facts["controllers"]),
        tuple(map(int, facts["broker_ids"])),
    )


def controller_count(brokers: int) -> int:
    """Three outlive the loss of one; fewer brokers are for trying things out."""
    return 3 if brokers >= BROKERS_FOR_REPLICATION else 1


def decide_plan(brokers: int, *, port: int, cluster_id: str, directory_ids: Sequence[str]) -> ClusterPlan:
    """A new cluster; `directory_ids` has one for each controller."""
    controllers = tuple(
        ControllerPlan(FIRST_CONTROLLER_ID + index, port + brokers + index, directory_id)
        for index, directory_id in enumerate(directory_ids)
    )
    return ClusterPlan(cluster_id, port, controllers, tuple(range(1, brokers + 1)))


class NodePlan(NamedTuple):
    """One process: `settings` by Kafka's names."""

    name: str
    node_id: int
    is_broker: bool
    folder: str
    settings: Mapping[str, str]
    directory_id: str | None

    @property
    def is_controller(self) -> bool:
        return "controller" in self.settings["process.roles"]


def plan_controllers(plan: ClusterPlan, folder: str, common: Mapping[str, str]) -> list[NodePlan]:
    nodes = []
    for index, controller in enumerate(plan.controllers, 1):
        name = f"controller-{index}"
        settings = {
            **_settings_of_all(plan),
            **common,
            "node.id": str(controller.node_id),
            "process.roles": "controller",
            "listeners": f"{CONTROLLER_LISTENER}://{CONTROLLER_HOST}:{controller.port}",
            "log.dirs": f"{folder}/{name}",
        }
        nodes.append(NodePlan(name, controller.node_id, False, f"{folder}/{name}", settings, controller.directory_id))
    return nodes


def plan_broker(
    plan: ClusterPlan,
    node_id: int,
    folder: str,
    common: Mapping[str, str],
    *,
    host: str,
    advertised_host: str,
    is_secure: bool = False,
) -> NodePlan:
    name = f"broker-{node_id}"
    port = plan.broker_port(node_id)
    listener = SECURE_LISTENER if is_secure else OPEN_LISTENER
    # That for clients first: its address is what they are told once the broker is ready.
    others = f",{NODES_LISTENER}://{CONTROLLER_HOST}:0" if is_secure else ""
    settings = {
        **_settings_of_all(plan),
        **common,
        "node.id": str(node_id),
        "process.roles": "broker",
        "listeners": f"{listener}://{_bracketed(host)}:{port}{others}",
        "advertised.listeners": f"{listener}://{_bracketed(advertised_host)}:{port}{others}",
        "log.dirs": f"{folder}/{name}",
    }
    return NodePlan(name, node_id, True, f"{folder}/{name}", settings, None)


def _settings_of_all(plan: ClusterPlan) -> dict[str, str]:
    # By the controllers, not the brokers: a cluster that grows from two brokers to three keeps what its topics have.
    is_replicated = len(plan.controllers) > 1
    replicas, in_sync = ("3", "2") if is_replicated else ("1", "1")
    return {
        "cluster.id": plan.cluster_id,
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": plan.bootstrap_controllers,
        "controller.quorum.election.timeout.ms": str(ELECTION_TIMEOUT_MS),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
