"""What a node is by its settings: which roles it has, which listener serves whom, and whether it has peers at all.

Pure. A node without controller.listener.names and controller.quorum.bootstrap.servers is a cluster by itself: both
roles, one voter, no connection to anyone.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.model.config import BrokerConfig, Endpoint
from tailrace.model.listeners import protocol_of


class Roles(NamedTuple):
    is_broker: bool
    is_controller: bool
    is_alone: bool
    # As bound, in the order of the settings; a listener serves clients and brokers, or the metadata quorum.
    client_listeners: tuple[Endpoint, ...]
    controller_listeners: tuple[Endpoint, ...]
    # Which listener of other brokers to call.
    inter_broker_listener_name: str

    def serves_clients(self, endpoint: Endpoint) -> bool:
        return any(endpoint.listener_name == each.listener_name for each in self.client_listeners)


def decide_roles(config: BrokerConfig) -> Roles:
    controller_names = frozenset(config.controller_listener_names)
    is_broker, is_controller = "broker" in config.process_roles, "controller" in config.process_roles
    clients = tuple(each for each in config.listeners if each.listener_name not in controller_names)
    inter_broker = config.inter_broker_listener_name or _first_listener(config, clients)
    return Roles(
        is_broker=is_broker,
        is_controller=is_controller,
        is_alone=is_controller and not controller_names and not config.controller_quorum_bootstrap_servers,
        client_listeners=clients if is_broker else (),
        controller_listeners=tuple(each for each in config.listeners if each.listener_name in controller_names)
        if is_controller
        else (),
        inter_broker_listener_name=inter_broker.upper(),
    )


def _first_listener(config: BrokerConfig, clients: tuple[Endpoint, ...]) -> str:
    """The first of them, or the first with the protocol that is set for brokers."""
    if "security_inter_broker_protocol" not in config.given:
        return clients[0].listener_name if clients else ""
    names = (each.listener_name for each in clients)
    return next((name for name in names if protocol_of(config, name) == config.security_inter_broker_protocol), "")
