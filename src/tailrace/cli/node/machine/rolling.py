"""A rolling restart: one node after the other is stopped and started, each once all are in sync again.

It only looks at the nodes and says who is to stop: the supervisor does it, and starts again who has stopped. Brokers
come first, controllers last. A node that does not come back in sync holds it up: the next one would be one too many.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.cli.node.machine.supervised import Node
from tailrace.model import events

_log = events.logger("supervisor")


class Rolling:
    def __init__(self, nodes: Iterable[Node]) -> None:
        """Nodes that somebody holds back are left as they are."""
        self._waiting = sorted((node for node in nodes if not node.is_held), key=lambda node: node.plan.is_controller)
        self._stopped: Node | None = None
        self._count = len(self._waiting)
        _log.info("restarts all nodes, one after the other", nodes=self._count)

    def decide_stop(self, nodes: Iterable[Node]) -> Node | None:
        """Who is to stop now, if anybody is. Each is named once."""
        if not all(node.is_in_sync or node.is_held for node in nodes):
            return None
        if self._stopped is not None:
            _log.info("a node is in sync again after its restart", node=self._stopped.name)
            self._stopped = None
        if not self._waiting:
            return None
        self._stopped = self._waiting.pop(0)
        return self._stopped

    @property
    def is_over(self) -> bool:
        return not self._waiting and self._stopped is None

    def is_restarting(self, node: Node) -> bool:
        return node is self._stopped
