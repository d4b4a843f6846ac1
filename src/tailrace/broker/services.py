"""What the handlers of requests may use of their node. Made once, when all of it is there, and never changed.

node           who it is, its metadata and settings, its replicas, and the way to other nodes
coordination   the coordinators of groups and transactions
access         what those who ask may do, where there is an authorizer
check_stores   whether this node could go on with other certificates
schema_ids     whether records name a schema that is registered, for topics that ask it
share_groups   which records of share groups are with whom
link_mirrors   the links to other clusters, and what is pulled from there
audit_trail    what was asked for lately; roster, who is connected
request_meters what requests have taken, where somebody may ask for it; lag_watch, how far behind groups are
the others     what requests share: fetch sessions, refused batches, data folders and moves between them, what clients
               have used of their quotas
"""

from __future__ import annotations

from asyncio import Semaphore
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from tailrace.broker.coordinators.coordination import Coordination
from tailrace.broker.departures import Departures
from tailrace.broker.logs.trail import AuditTrail
from tailrace.broker.quotas.meters import follow_quotas
from tailrace.broker.refused_batches import RefusedBatches
from tailrace.broker.roster import Roster
from tailrace.broker.schema_ids.checks import SchemaIds
from tailrace.broker.sessions import FetchSessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from tailrace.broker.access.access import Access
    from tailrace.broker.cluster.forwarding import Forwarding
    from tailrace.broker.logs.requests import RequestLog
    from tailrace.broker.metrics.lag.watch import LagWatch
    from tailrace.broker.metrics.requests import RequestMeters
    from tailrace.broker.mirrors.mirrors import Mirrors
    from tailrace.broker.node import JudgeBug, Node
    from tailrace.broker.quorum.quorum import Quorum
    from tailrace.broker.quotas.meters import Meters
    from tailrace.broker.roster import Door
    from tailrace.broker.shares.groups import ShareGroups
    from tailrace.broker.telemetry.telemetry import Telemetry
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Ports
    from tailrace.replica.directories import LogDirectories
    from tailrace.replica.future_logs import FutureLogs
    from tailrace.replica.manager import ReplicaManager

# Produced batches that are checked in slices at one time; the others wait. Each takes half a millisecond of every turn
# of the loop and the memory of its unpacked records, and more at once would not end sooner: they share one core.
_SLOW_CHECKS_MAX = 2


# Told the dynamic settings that a node would have; raises KafkaError INVALID_CONFIG.
CheckStores: TypeAlias = "Callable[[Mapping[str, str]], Awaitable[None]]"
# Of each listener: what ends, and when.
Endings: TypeAlias = "Callable[[], Iterable[tuple[str, str, int]]]"


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
    meters: Meters
    request_log: RequestLog
    schema_ids: SchemaIds
    audit_trail: AuditTrail
    roster: Roster
    slow_checks: Semaphore = field(default_factory=lambda: Semaphore(_SLOW_CHECKS_MAX))
    large_answers: Semaphore = field(default_factory=lambda: Semaphore(1))  # One is put together at a time.
    lanes: LanesVersion = field(default_factory=LanesVersion)
    access: Access | None = None  # None where everyone may do everything.
    check_stores: CheckStores | None = None  # None where all listeners are PLAINTEXT.
    endings: Endings | None = None  # When certificates end; None where all listeners are PLAINTEXT.
    request_meters: RequestMeters | None = None  # None where nobody can ask for metrics.
    lag_watch: Callable[[], LagWatch] | None = None  # Made when it is first called. None there, too.
    share_groups: Callable[[], ShareGroups]  # Made when it is first called.
    link_mirrors: Callable[[], Mirrors]  # Made when it is first called.
    departures: Departures = field(default_factory=Departures)
    telemetry: Telemetry | None = None  # None where nobody receives what clients tell of themselves.

    def has(self, part: str) -> bool:
        """Whether there is the part that a row of the catalogue names; an empty name needs none."""
        return not part or getattr(self, part) is not None

    @property
    def shares(self) -> ShareGroups:
        return self.share_groups()

    @property
    def mirrors(self) -> Mirrors:
        return self.link_mirrors()

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


def make_services(
    node: Node,
    directories: LogDirectories,
    future_logs: FutureLogs,
    doors: Sequence[Door],
    *,
    check_stores: CheckStores | None = None,
    request_meters: RequestMeters | None = None,
    endings: Endings | None = None,
) -> Services:
    config, ports = node.quorum.static_config, node.ports
    sessions = FetchSessions(
        ports.clock,
        ports.random,
        slots_max=config.max_incremental_fetch_session_cache_slots,
        partitions_max=config.max_incremental_fetch_session_partitions,
    )
    lanes = LanesVersion()
    coordination = Coordination(node)
    services = Services(
        node=node,
        lanes=lanes,
        request_log=_make_request_log(node, lanes),
        ports=ports,
        replicas=node.replicas,
        coordination=coordination,
        sessions=sessions,
        refused_batches=RefusedBatches(ports.clock),
        directories=directories,
        future_logs=future_logs,
        meters=follow_quotas(config, ports.clock, node.quorum.subscribe),
        schema_ids=SchemaIds(config, ports),
        audit_trail=AuditTrail(lambda: node.config.audit_log_kept_lines),
        roster=Roster(doors),
        check_stores=check_stores,
        endings=endings,
        request_meters=request_meters,
        lag_watch=None if request_meters is None else _make_lag_watch(node, coordination),
        telemetry=_make_telemetry(node),
        share_groups=_make_share_groups(node, coordination),
        link_mirrors=_make_mirrors(node, coordination),
    )
    return _secured(services)


def _make_request_log(node: Node, lanes: LanesVersion) -> RequestLog:
    from tailrace.broker.logs.requests import RequestLog

    request_log = RequestLog(node.quorum.static_config, node.ports.clock, lanes.raise_number)
    node.quorum.subscribe(request_log.follow_image)
    return request_log


def _make_lag_watch(node: Node, coordination: Coordination) -> Callable[[], LagWatch]:
    @cache
    def make() -> LagWatch:
        from tailrace.broker.metrics.lag.watch import LagWatch

        return LagWatch(node, coordination)

    return make


def _make_share_groups(node: Node, coordination: Coordination) -> Callable[[], ShareGroups]:
    @cache
    def make() -> ShareGroups:
        from tailrace.broker.shares.groups import ShareGroups

        return ShareGroups(node, coordination)

    return make


def _make_mirrors(node: Node, coordination: Coordination) -> Callable[[], Mirrors]:
    @cache
    def make() -> Mirrors:
        from tailrace.broker.mirrors.mirrors import Mirrors

        return Mirrors(node, coordination)

    return make


def _make_telemetry(node: Node) -> Telemetry | None:
    if not node.quorum.static_config.client_telemetry_receivers:
        return None
    from tailrace.broker.telemetry.telemetry import Telemetry

    telemetry = Telemetry(node.quorum.static_config, node.ports)
    node.quorum.subscribe(telemetry.follow_image)
    return telemetry


def _secured(services: Services) -> Services:
    """With the authorizer that the node's settings name; without one, as they are."""
    config, quorum, lanes = services.quorum.static_config, services.quorum, services.lanes
    if not config.authorizer_class_name:
        return services
    from tailrace.broker.access.access import Access
    from tailrace.broker.access.audit import AuditLog
    from tailrace.controller.security.authorizer import Authorizer
    from tailrace.model.config import split_principals

    def follow_image(old: MetadataImage, new: MetadataImage) -> None:
        if old.acls is not new.acls:
            lanes.raise_number()

    quorum.subscribe(follow_image)
    access = Access(
        Authorizer(split_principals(config.super_users), allows_without_acl=config.allow_everyone_if_no_acl_found),
        quorum,
        AuditLog(interval_ms=config.authorizer_log_interval_ms, lines_max=config.authorizer_log_max_lines),
        cache_max_entries=config.authorizer_cache_max_entries,
    )
    return replace(services, access=access)
