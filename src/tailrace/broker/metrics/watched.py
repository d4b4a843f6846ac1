"""What is looked at of a node when somebody asks. Nothing here changes anything of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tailrace.broker.cluster.lifecycle import Lifecycle
    from tailrace.broker.cluster.roles import Roles
    from tailrace.broker.loop_lag import LoopLag
    from tailrace.broker.metrics.elections import Elections
    from tailrace.broker.metrics.requests import RequestMeters
    from tailrace.broker.services import Services
    from tailrace.broker.serving.acceptor import Acceptor
    from tailrace.broker.serving.kafka import KafkaProtocol
    from tailrace.broker.tier.tier import Tier


class WatchedNode(Protocol):
    """A `Broker`, once its services are made."""

    @property
    def roles(self) -> Roles: ...

    @property
    def services(self) -> Services: ...

    @property
    def acceptors(self) -> Sequence[Acceptor]:
        """Those that speak Kafka's protocol."""

    @property
    def protocols(self) -> Sequence[KafkaProtocol]:
        """One for each of them, once it is opened."""

    @property
    def lag(self) -> LoopLag: ...

    @property
    def lifecycle(self) -> Lifecycle | None: ...

    @property
    def tier(self) -> Tier | None:
        """Where there is remote storage."""

    @property
    def is_running(self) -> bool:
        """It was ready, and has not begun to stop."""


class Watched(NamedTuple):
    node: WatchedNode
    services: Services
    roles: Roles
    meters: RequestMeters
    elections: Elections
    started_ms: int  # By the wall clock.
