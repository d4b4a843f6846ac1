"""What a supervisor has under it: which nodes there are (`Supervised`), and the process of each (`Node`)."""

from __future__ import annotations

from typing import Any, Protocol

from tailrace.cli.node.machine.plan import NodePlan
from tailrace.cli.node.machine.requests import Reply
from tailrace.client.connection import Address
from tailrace.model.config import BrokerConfig

# Before a node that has died is started again; it grows while the node dies early.
RESTART_PAUSE_S = 0.5


class Supervised(Protocol):
    """Which nodes there are."""

    command: str  # What runs them.
    folder: str  # Here lies the list of where they tell their metrics.
    is_secure: bool
    # They call each other by the loopback address, and their certificates have to say so.
    is_loopback: bool

    @property
    def socket_name(self) -> str: ...

    def node_plans(self) -> list[NodePlan]: ...

    def config_of(self, node: NodePlan) -> BrokerConfig: ...

    def controllers(self) -> list[Address]:
        """Who is told of deaths."""

    def add_broker(self) -> NodePlan:
        """Raises CommandError if that cannot be."""

    def remove_broker(self, node: NodePlan) -> None:
        """Raises CommandError if that cannot be."""

    def read_again(self) -> None:
        """The settings of nodes that start from here on, where they stand in a file. Raises CommandError if it is bad;
        then the old ones hold."""


class Node:
    """One node and its present process, if it has one."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.process_id: int | None = None
        self.is_ready = False
        # Whether all partitions have it among their in-sync replicas, in its present life.
        self.is_in_sync = False
        # A held node stays dead until it is asked for.
        self.is_held = False
        # No part of the cluster any more, once it is dead.
        self.is_removed = False
        self.bootstrap = ""
        self.metrics = ""  # Where its present or last process tells its metrics.
        self.started = 0.0
        self.restart_at: float | None = None
        self.kill_at: float | None = None
        self.pause_s = RESTART_PAUSE_S
        self.ready_pipe: int | None = None
        # Who waits for it to be ready, or to be dead.
        self.waiting_ready: list[Reply] = []
        self.waiting_dead: list[Reply] = []

    @property
    def name(self) -> str:
        return self.plan.name

    def facts(self) -> dict[str, Any]:
        state = "ready" if self.is_ready else "dead" if self.process_id is None else "starting"
        return {
            "name": self.name,
            "node_id": self.plan.node_id,
            "state": state,
            "process_id": self.process_id,
            "bootstrap": self.bootstrap,
            "metrics": self.metrics,
        }
