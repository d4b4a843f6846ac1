"""Several brokers on one machine as one unit: what `--processes N` makes of one file of settings.

A broker has one thread of logic, so a machine with many cores runs several. The first process is the node of the file
with its roles; each further one is a broker alone, with the next id, the next ports and folders of its own. They lie in
the folders of the file, as `broker-1`, `broker-2`, ...: what a single process has left there is never taken over.

With several listeners ports go up in steps, the smallest at which no two meet: of 9092 and 9093 the second process has
9094 and 9095.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, count
from typing import Any

from tailrace.cli import CommandError
from tailrace.cli.node.machine.plan import NodePlan
from tailrace.cli.node.storage import data_in, properties_of
from tailrace.client.connection import Address
from tailrace.client.metadata import parse_bootstrap
from tailrace.model.config import BrokerConfig, Endpoint, parse_broker_config
from tailrace.model.errors import KafkaError
from tailrace.model.listeners import is_secured

# What says in other words what a process has for itself.
_SYNONYMS = ("broker.id", "log.dir")


def plan_unit(given: Mapping[str, str], processes: int) -> list[NodePlan]:
    """One for each process, the first one first; `given` are the settings of the file. Raises CommandError."""
    config = _parse(given)
    if "broker" not in config.process_roles:
        raise CommandError("--processes is for brokers: a controller is one process (process.roles)")
    step = _port_step(config, processes)
    return [_plan_process(given, config, index, step) for index in range(processes)]


class Unit:
    """What a supervisor needs to know of it. Its folders have been formatted."""

    command = "tailrace broker --processes"
    is_loopback = False

    def __init__(self, read: Callable[[], Mapping[str, str]], processes: int) -> None:
        """`read` gives the settings of the file, again and again. Raises CommandError."""
        self._read = read
        self._processes = processes
        self.read_again()
        first = self._configs[self._plans[0].name]
        self.folder = os.path.dirname(first.log_dirs[0])
        self.is_secure = is_secured(first)
        properties = properties_of(first.log_dirs[0])
        assert properties is not None, "it was formatted"
        # Two units of a cluster may be tried on one machine: each supervisor has a socket of its own.
        self.socket_name = f"{properties['cluster.id']} {first.node_id}"

    def read_again(self) -> None:
        plans = plan_unit(self._read(), self._processes)
        configs = {plan.name: _parse(plan.settings) for plan in plans}
        self._plans, self._configs = plans, configs

    def node_plans(self) -> list[NodePlan]:
        return self._plans

    def config_of(self, node: NodePlan) -> BrokerConfig:
        return self._configs[node.name]

    def controllers(self) -> list[Address]:
        config = self._configs[self._plans[0].name]
        if config.controller_quorum_bootstrap_servers:
            return list(parse_bootstrap(",".join(config.controller_quorum_bootstrap_servers)))
        return [Address(each.host, each.port) for each in config.controller_quorum_voters]

    def add_broker(self) -> NodePlan:
        raise CommandError(
            "the brokers of a unit are as many as --processes says: stop it, format more, start it again"
        )

    def remove_broker(self, node: NodePlan) -> None:
        raise CommandError(f"{node.name} is one of the processes that --processes asks for: stop them, and start fewer")


def configs_of(given: Mapping[str, str], processes: int) -> list[BrokerConfig]:
    """Of the processes of a unit, or of the one node that stands in the file."""
    if processes == 1:
        return [_parse(given)]
    plans = plan_unit(given, processes)
    if stranger := find_stranger(plans):
        raise CommandError(stranger)
    return [_parse(plan.settings) for plan in plans]


def find_stranger(plans: Sequence[NodePlan]) -> str | None:
    """Why these processes must not be started here: data of a broker that would stay away."""
    for folder in plans[0].settings["log.dirs"].split(","):
        base = os.path.dirname(folder)
        found = sorted(os.listdir(base)) if os.path.isdir(base) else []
        brokers = [name for name in found if name.startswith("broker-") and properties_of(f"{base}/{name}") is not None]
        # The folder of a partition may have such a name, too.
        if properties_of(base) is not None or (not brokers and data_in(base) is not None):
            return (
                f"{base} holds the data of a single process: start it without --processes, or, while nothing runs, "
                f"move all that is in it to {folder}"
            )
        for name in brokers:
            if name not in [plan.name for plan in plans]:
                return (
                    f"{base}/{name} holds the data of one more broker: start as many --processes as before, or "
                    "decommission it first and move its folder away"
                )
    return None


def _plan_process(given: Mapping[str, str], config: BrokerConfig, index: int, step: int) -> NodePlan:
    node_id = config.node_id + index
    name = f"broker-{node_id}"
    own = {"node.id": str(node_id), "log.dirs": ",".join(f"{folder}/{name}" for folder in config.log_dirs)}
    if config.metadata_log_dir is not None:
        own["metadata.log.dir"] = f"{config.metadata_log_dir}/{name}"
    own |= _quorum_of(config)
    own["process.roles"] = "broker" if index else ",".join(config.process_roles)
    for setting, endpoints in (
        ("listeners", config.listeners),
        ("advertised.listeners", config.advertised_listeners),
        ("metrics.listeners", config.metrics_listeners),
    ):
        kept = [each for each in endpoints if not index or each.listener_name not in config.controller_listener_names]
        if kept:
            own[setting] = ",".join(str(_shifted(each, index * step)) for each in kept)
    left = {key: value for key, value in given.items() if key not in _SYNONYMS and not (index and key in _ENDPOINTS)}
    plan = NodePlan(name, node_id, True, f"{config.log_dirs[0]}/{name}", {**left, **own}, None)
    _parse(plan.settings)
    return plan


_ENDPOINTS = ("listeners", "advertised.listeners")


def _quorum_of(config: BrokerConfig) -> dict[str, str]:
    """Where the further processes find the controllers: a file of one node need not say it."""
    if config.controller_quorum_bootstrap_servers or config.controller_quorum_voters:
        return {}
    names = config.controller_listener_names
    found = [each for each in (*config.advertised_listeners, *config.listeners) if each.listener_name in names]
    if not found:
        raise CommandError(
            "with --processes other brokers have to reach the controller of this node: give it a listener, such as "
            'CONTROLLER://127.0.0.1:9093 among listeners, and controller.listener.names = ["CONTROLLER"]'
        )
    host = f"[{found[0].host}]" if ":" in found[0].host else found[0].host or "127.0.0.1"
    return {"controller.quorum.bootstrap.servers": f"{host}:{found[0].port}"}


def _port_step(config: BrokerConfig, processes: int) -> int:
    endpoints = (*config.listeners, *config.metrics_listeners)
    ports = sorted({each.port for each in endpoints if each.port})
    distances = {high - low for low, high in combinations(ports, 2)}
    return next(step for step in count(1) if distances.isdisjoint(range(step, step * processes, step)))


def _shifted(endpoint: Endpoint, distance: int) -> Endpoint:
    """Port 0, any free one, stays what it is."""
    if not endpoint.port:
        return endpoint
    if endpoint.port + distance > 65535:
        raise CommandError(f"{endpoint}: so many processes need ports above 65535; choose lower ones")
    return endpoint._replace(port=endpoint.port + distance)


def _parse(settings: Mapping[str, Any]) -> BrokerConfig:
    try:
        return parse_broker_config(settings)
    except KafkaError as error:
        raise CommandError(error.message) from None
