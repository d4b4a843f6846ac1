"""What the handlers of requests may use of their node. Made once, when all of it is there, and never changed.

node           who it is, its metadata and settings, its replicas, and the way to other nodes
coordination   the coordinators of groups and transactions
the others     what requests share: fetch sessions, refused batches, data folders and moves between them
"""

from __future__ import annotations

from asyncio import Semaphore
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.broker.cluster.forwarding import Forwarding
    from tailrace.broker.coordinators.coordination import Coordination
    from tailrace.broker.node import JudgeBug, Node
    from tailrace.broker.quorum.quorum import Quorum
    from tailrace.broker.refused_batches import RefusedBatches
    from tailrace.broker.sessions import FetchSessions
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Ports
    from tailrace.replica.directories import LogDirectories
    from tailrace.replica.future_logs import FutureLogs
    from tailrace.replica.manager import ReplicaManager

# Produced batches that are checked in slices at one time; the others wait. Each takes half a millisecond of every turn
# of the loop and the memory of its unpacked records, and more at once would not end sooner: they share one core.
_SLOW_CHECKS_MAX = 2


class LanesVersion:
    """Whoever changes what the short way of small produces relies on raises the number: then lanes are learned anew."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def raise_number(self) -> None:
        self.number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    node: Node
    # The node's, and fields of their own since every request asks for them, and a property is a call.
    ports: Ports
    replicas: ReplicaManager
    coordination: Coordination
    sessions: FetchSessions
    refused_batches: RefusedBatches
    directories: LogDirectories
    future_logs: FutureLogs
    slow_checks: Semaphore = field(default_factory=lambda: Semaphore(_SLOW_CHECKS_MAX))
    lanes: LanesVersion = field(default_factory=LanesVersion)

    # ---- of the node

    @property
    def node_id(self) -> int:
        return self.node.node_id

    @property
    def image(self) -> MetadataImage:
        return self.node.quorum.image

    @property
    def config(self) -> BrokerConfig:
        return self.replicas.config

    @property
    def quorum(self) -> Quorum:
        return self.node.quorum

    @property
    def forwarding(self) -> Forwarding:
        return self.node.forwarding

    @property
    def judge_bug(self) -> JudgeBug:
        return self.node.judge_bug
