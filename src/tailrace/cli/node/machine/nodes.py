"""A cluster on one machine as it lies in a folder: `cluster.json` (the plan), `broker-1`, `controller-1`, ...

Owns that file and the formatting of nodes; whether their processes run is the supervisor's business. A cluster that is
there is taken up as it was: its id, its controllers with their ports, and the brokers that were added since.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from errno import EADDRINUSE
from functools import cached_property
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.node.machine import BROKERS_MAX
from tailrace.cli.node.machine.plan import (
    CONTROLLER_HOST,
    CONTROLLER_LISTENER,
    PLAN_FILE,
    ClusterPlan,
    NodePlan,
    controller_count,
    decide_plan,
    parse_plan,
    plan_broker,
    plan_controllers,
)
from tailrace.cli.node.storage import (
    Voter,
    format_folder,
    new_uuid_text,
    store_credentials,
    store_voters,
    unformatted_folders,
)
from tailrace.client.connection import Address
from tailrace.model.config import BrokerConfig, parse_broker_config
from tailrace.model.errors import KafkaError
from tailrace.model.ids import parse_uuid
from tailrace.real.random import RealRandom

if TYPE_CHECKING:
    from tailrace.wire.apis.stored_records import UserScramCredentialRecord

# Free ports are looked for below those that the kernel gives to outgoing connections (from 32768 on): one of these
# could take a broker's port while the broker restarts.
_FREE_PORTS = range(20_000, 32_000)
_FREE_PORTS_TRIES = 200


class Cluster:
    """Made by `open_cluster`. `common` are the settings of every node; a secure one has been prepared."""

    command = "tailrace up"
    is_loopback = True

    def __init__(
        self,
        folder: str,
        plan: ClusterPlan,
        common: Mapping[str, str],
        *,
        host: str,
        advertised_host: str,
        metrics_port: int = 0,
        is_secure: bool,
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.is_secure = is_secure
        self._common = common
        self._host = host
        self._advertised_host = advertised_host
        self._metrics_port = metrics_port

    @property
    def socket_name(self) -> str:
        return self.plan.cluster_id

    def controllers(self) -> list[Address]:
        return [Address(CONTROLLER_HOST, each.port) for each in self.plan.controllers]

    def node_plans(self) -> list[NodePlan]:
        """Controllers first: everything else needs them."""
        controllers = plan_controllers(self.plan, self.folder, self._common)
        return [
            *(self._metered(node, index) for index, node in enumerate(controllers)),
            *(self._broker_plan(node_id) for node_id in self.plan.broker_ids),
        ]

    def config_of(self, node: NodePlan) -> BrokerConfig:
        try:
            return parse_broker_config(node.settings)
        except KafkaError as error:
            raise CommandError(error.message) from None

    def format_nodes(self) -> None:
        """Those that are new. The plan is stored first: it alone tells which folders belong together."""
        self._store()
        for node in self.node_plans():
            self._format(node)

    def add_broker(self) -> NodePlan:
        if len(self.plan.broker_ids) >= BROKERS_MAX:
            raise CommandError(f"a cluster on one machine has at most {BROKERS_MAX} brokers")
        node = self._broker_plan(self.plan.next_broker_id)
        self.plan = self.plan.with_broker(node.node_id)
        self._store()
        self._format(node)
        return node

    def remove_broker(self, node: NodePlan) -> None:
        """Its folder stays; it is started no more."""
        if not node.is_broker:
            raise CommandError(f"{node.name} is no broker")
        self.plan = self.plan.without_broker(node.node_id)
        self._store()

    def read_again(self) -> None:
        """What `up` was told on its command line holds as long as it runs."""

    def _broker_plan(self, node_id: int) -> NodePlan:
        node = plan_broker(
            self.plan,
            node_id,
            self.folder,
            self._common,
            host=self._host,
            advertised_host=self._advertised_host,
            is_secure=self.is_secure,
        )
        return self._metered(node, len(self.plan.controllers) + node_id - 1)

    def _metered(self, node: NodePlan, position: int) -> NodePlan:
        """With a listener for metrics, unless all nodes are told otherwise. Controllers come first: brokers may be
        added, and no port changes then."""
        scheme = "HTTPS" if self.is_secure else "HTTP"
        port = self._metrics_port + position if self._metrics_port else 0
        return node._replace(settings={"metrics.listeners": f"{scheme}://127.0.0.1:{port}", **node.settings})

    def _format(self, node: NodePlan) -> None:
        for folder in unformatted_folders(self.config_of(node)):
            if not node.is_broker:
                store_voters(folder, self._voters())
            if not node.is_broker and self.is_secure:
                store_credentials(folder, [self._admin])
            format_folder(folder, cluster_id=self.plan.cluster_id, node_id=node.node_id, directory_id=node.directory_id)

    def _voters(self) -> list[Voter]:
        return [
            Voter(
                controller.node_id,
                parse_uuid(controller.directory_id),
                CONTROLLER_LISTENER,
                CONTROLLER_HOST,
                controller.port,
            )
            for controller in self.plan.controllers
        ]

    @cached_property
    def _admin(self) -> UserScramCredentialRecord:
        """The same on each controller, whichever becomes active first."""
        from tailrace.cli.secure.setup import admin_credential

        return admin_credential(self.folder)

    def _store(self) -> None:
        path = f"{self.folder}/{PLAN_FILE}"
        try:
            os.makedirs(self.folder, exist_ok=True)
            with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                file.write(self.plan.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.tmp", path)
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror}") from None


def open_cluster(
    folder: str,
    common: Mapping[str, str],
    *,
    brokers: int | None,
    is_replicated: bool = True,
    host: str,
    advertised_host: str,
    port: int,
    metrics_port: int = 0,
    is_secure: bool = False,
) -> Cluster:
    """The cluster in the folder, or a new one, which has several controllers only if it is replicated. More brokers
    than it has are added; none are left out."""
    plan = read_plan(folder)
    if plan is None:
        plan = _new_plan(brokers or 1, host, port, is_replicated=is_replicated)
    else:
        plan = plan.with_port(port or plan.port)
        while brokers is not None and len(plan.broker_ids) < brokers:
            plan = plan.with_broker(plan.next_broker_id)
    cluster = Cluster(
        folder,
        plan,
        common,
        host=host,
        advertised_host=advertised_host,
        metrics_port=metrics_port,
        is_secure=is_secure,
    )
    cluster.format_nodes()
    return cluster


def read_plan(folder: str) -> ClusterPlan | None:
    path = f"{folder}/{PLAN_FILE}"
    try:
        with open(path, encoding="utf-8") as file:
            return parse_plan(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is damaged ({error}); restore it, or start with an empty folder") from None


def _new_plan(brokers: int, host: str, port: int, *, is_replicated: bool) -> ClusterPlan:
    controllers = controller_count(brokers) if is_replicated else 1
    chosen = port or _free_block(host, brokers + controllers)
    if chosen + brokers + controllers > 65536:
        raise CommandError(f"--port {port}: the cluster needs {brokers + controllers} ports from there on")
    directory_ids = [new_uuid_text() for _ in range(controllers)]
    return decide_plan(brokers, port=chosen, cluster_id=new_uuid_text(), directory_ids=directory_ids)


def _free_block(host: str, count: int) -> int:
    """The first of so many free ports in a row."""
    random = RealRandom()
    for _ in range(_FREE_PORTS_TRIES):
        first = _FREE_PORTS.start + random.randrange(len(_FREE_PORTS) - count)
        if all(_is_free(host, port) for port in range(first, first + count)):
            return first
    raise CommandError(f"found no {count} free ports in a row; choose them with --port")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == EADDRINUSE:
                return False
            why = f"cannot listen on {host}: {error.strerror}. Choose an address of this machine"
            raise CommandError(why) from None
    return True
