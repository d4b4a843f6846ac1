"""`Broker(config, ports)`: joins the layers and owns their life.

    start   binds the listeners, locks and opens the data folders, starts the metadata quorum, registers the node with
            the endpoints that clients are told, lets the replicas follow the image, takes requests, and is unfenced
    stop    lets the controller move leaderships away, takes no new requests, sends the answers, ends the waits, leaves
            the quorum, closes the logs and marks them as clean

Everything runs on the loop that `start` was called on. A failed assertion about one partition takes that partition
offline on this broker (`log.log_files`), one about the metadata log this node's part in the quorum; any other one in
the layers that keep data ends the broker through `wait_failed`: a crash is safe, wrong data is not.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from tailrace.broker.bugs import is_about_data
from tailrace.broker.cluster.forwarding import Forwarding
from tailrace.broker.cluster.leads import scrub
from tailrace.broker.cluster.lifecycle import BrokerIdentity, Lifecycle
from tailrace.broker.cluster.producer_ids import ProducerIds
from tailrace.broker.cluster.proof import find_epoch
from tailrace.broker.cluster.replica_reports import ReplicaReports
from tailrace.broker.cluster.roles import decide_roles
from tailrace.broker.context import BoundListener
from tailrace.broker.loop_lag import LoopLag
from tailrace.broker.node import Node
from tailrace.broker.quorum.quorum import Quorum
from tailrace.broker.services import Services, make_services
from tailrace.broker.serving.acceptor import Acceptor
from tailrace.broker.serving.dispatch import Dispatcher
from tailrace.broker.serving.kafka import KafkaProtocol
from tailrace.catalogue import Audience
from tailrace.controller.features import SUPPORTED_FEATURES, broker_features
from tailrace.controller.image import MetadataImage
from tailrace.model import events
from tailrace.model.config import BrokerConfig, Endpoint, decide_advertised
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NodeId, Uuid, uuid_text
from tailrace.model.listeners import is_secured
from tailrace.model.ports import Ports
from tailrace.replica.directories import LogDirectories
from tailrace.replica.future_logs import FutureLogs
from tailrace.replica.lease import NO_LEASE_YET
from tailrace.replica.maintenance import Maintenance
from tailrace.replica.manager import ReplicaManager

if TYPE_CHECKING:
    from tailrace.broker.auth.security import Security
    from tailrace.broker.cluster.assignments import DirectoryAssignments
    from tailrace.broker.cluster.peers import Peers
    from tailrace.broker.cluster.registration import ControllerRegistration
    from tailrace.broker.metrics.server import MetricsServer
    from tailrace.broker.tier.tier import Tier
    from tailrace.log.directory import LogDirectory
    from tailrace.replica.partition import Partition

_log = events.logger("broker")

_FEATURES = tuple((name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items())
# How long a clean stop waits for answers that are under way.
_ANSWERS_TIMEOUT_MS = 5000.0


class Broker:
    """One node, in the roles that its settings give it: broker, controller or both. A node without the broker role has
    no partitions and serves no clients."""

    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        self.ports, self.roles = ports, decide_roles(config)
        self.listeners: tuple[BoundListener, ...] = ()
        self.advertised: tuple[Endpoint, ...] = ()
        self.directories: LogDirectories
        self.quorum: Quorum
        self.forwarding: Forwarding
        self.lifecycle: Lifecycle | None = None  # Set on a node with the broker role, once it registers.
        self.replicas: ReplicaManager
        self.future_logs: FutureLogs
        self.node: Node
        self.services: Services
        self._static_config = config
        self.acceptors: list[Acceptor] = []  # That for clients first, then that for the metadata quorum.
        self.protocols: list[KafkaProtocol] = []  # One for each of them, once it is opened.
        self._security: Security | None = None  # Where a listener is more than PLAINTEXT.
        self._peers: Peers | None = None
        self._registration: ControllerRegistration | None = None  # Set on a controller with peers.
        self._maintenance: Maintenance | None = None
        self._assignments: DirectoryAssignments | None = None
        self._reports: ReplicaReports | None = None
        self.lag = LoopLag(ports.clock, config)
        self.metrics: MetricsServer | None = None  # Where metrics.listeners is set.
        self.tier: Tier | None = None  # Where there is remote storage.
        self._failure: asyncio.Future[None] | None = None
        self._is_started = self.is_running = False  # The first image was applied; all of it has started.
        self._cluster_id = ""

    @property
    def config(self) -> BrokerConfig:
        return self.replicas.config if self._is_started else self._static_config

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def node_id(self) -> int:
        return self._static_config.node_id

    @property
    def broker_epoch(self) -> int:
        return -1 if self.lifecycle is None else self.lifecycle.broker_epoch

    @property
    def port(self) -> int:
        """The port of the first listener, as it was really bound."""
        return self.listeners[0].port

    @property
    def bootstrap(self) -> str:
        """What clients start from: host:port of the advertised listeners; of the quorum's if there are no others."""
        endpoints = [each for each in self.advertised if self.roles.serves_clients(each)] or self.advertised
        return ",".join(
            f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"
            for endpoint in endpoints
        )

    @property
    def _controller_endpoints(self) -> tuple[Endpoint, ...]:
        names = {endpoint.listener_name for endpoint in self.roles.controller_listeners}
        return tuple(each for each in self.advertised if each.listener_name in names)

    # ---- life

    async def start(self) -> None:
        """Raises OSError, StorageError or KafkaError with cause and remedy; nothing is left behind then."""
        self._failure = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as undo:
            self.lag.start()
            undo.callback(self.lag.stop)
            await self._bind(undo)
            self._open_directories(undo)
            await self._join_quorum(undo)
            if self.roles.is_broker:
                await self._join_as_broker(undo)
            undo.pop_all()
        self.is_running = self.lag.is_serving = True
        _log.info("ready", node=self.node_id, bootstrap=self.bootstrap, cluster=self.image.cluster_id)

    async def _bind(self, undo: AsyncExitStack) -> None:
        """All listeners or none. Whoever connects waits until its server is opened."""
        if is_secured(self._static_config):
            from tailrace.broker.auth.security import Security

            self._security = Security(self._static_config, self.ports, self.roles, image=lambda: self.quorum.image)
            undo.callback(self._security.close)
            await self._security.open()
        doors = None if self._security is None else self._security.doors
        for endpoints, is_controller in ((self.roles.client_listeners, False), (self.roles.controller_listeners, True)):
            if endpoints:
                acceptor = Acceptor(lambda: self.config, self.ports, is_controller=is_controller, doors=doors)
                undo.push_async_callback(acceptor.close, answers_timeout_ms=0)
                self.listeners += await acceptor.listen(endpoints)
                self.acceptors.append(acceptor)
        if self._static_config.metrics_listeners:
            from tailrace.broker.metrics.server import MetricsServer

            self.metrics = MetricsServer(self._static_config, self.ports, doors)
            undo.push_async_callback(self.metrics.close)
            await self.metrics.bind()
        self.advertised = decide_advertised(
            self._static_config, {listener.name: listener.port for listener in self.listeners}
        )

    def _open_directories(self, undo: AsyncExitStack) -> None:
        config, ports = self._static_config, self.ports
        cluster_id = config.cluster_id or LogDirectories.stored_cluster_id(ports.disk, config.log_dirs)
        if cluster_id is None:
            if not self.roles.is_alone:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    "This node does not know which cluster it belongs to. Set cluster.id, or prepare its data folders "
                    "with: tailrace format --cluster-id",
                )
            cluster_id = uuid_text(Uuid(ports.random.uuid()))
        self._cluster_id = cluster_id
        self.directories = LogDirectories.open(
            ports.disk,
            ports.clock,
            ports.random,
            config.log_dirs,
            node_id=config.node_id,
            cluster_id=cluster_id,
            required=config.metadata_folder,
        )
        for directory in self.directories:
            undo.callback(directory.close, clean=False)
        if not self.roles.is_alone:
            self.directories.fail_as_whole()

    async def _join_quorum(self, undo: AsyncExitStack) -> None:
        config, ports = self._static_config, self.ports
        self._peers = self._make_peers()
        if self._peers is not None:
            undo.callback(self._peers.close)
        self.replicas = ReplicaManager(
            config,
            self.directories,
            background=ports.background,
            clock=ports.clock,
            leaders=self._peers,
            alter_partition=None if self.roles.is_alone else lambda each: self.forwarding.alter_partition(each),  # noqa: PLW0108 - made later
            ask_leave=None if self.roles.is_alone else lambda each: self.forwarding.allow_truncation(each),  # noqa: PLW0108 - made later
        )
        self.replicas.on_bug = self.judge_bug
        undo.callback(self.replicas.close)
        if not self.roles.is_alone:
            # Until the controller has let it in it leads and follows nothing, whatever an old image says.
            self.replicas.lease.ends_ms = NO_LEASE_YET
        self.quorum = Quorum(
            config,
            ports,
            cluster_id=self._cluster_id,
            directory_id=self._metadata_directory_id(),
            peers=self._peers,
            endpoints=self._controller_endpoints,
        )
        self.quorum.on_bug = self.judge_bug
        if not self.roles.is_alone:
            self.quorum.on_failure = lambda reason: self._fail(StorageError(reason))
        self.forwarding = Forwarding(
            self.quorum, self._peers, ports.clock, request_timeout_ms=config.request_timeout_ms
        )
        self.node, self.services = self._make_services()
        if self.metrics is not None:
            self.metrics.open(self)
        await self.quorum.start()
        undo.push_async_callback(self.quorum.close)
        if self.roles.controller_listeners:
            self._open(Audience.CONTROLLERS)
            self._registration = self._make_registration()
            self._registration.start()
            undo.push_async_callback(self._registration.close)

    def _make_registration(self) -> ControllerRegistration:
        from tailrace.broker.cluster.registration import ControllerRegistration

        return ControllerRegistration(
            self.node_id,
            self.forwarding,
            incarnation_id=Uuid(self.ports.random.uuid()),
            endpoints=self._controller_endpoints,
            features=_FEATURES,
            image=lambda: self.quorum.image,
        )

    def _metadata_directory_id(self) -> Uuid:
        """A voter is known by it, so it is that of the folder in which votes are kept."""
        path = self._static_config.metadata_folder
        found = next((each for each in self.directories if each.path == path), self.directories[0])
        return found.directory_id

    def _make_peers(self) -> Peers | None:
        if self.roles.is_alone:
            return None
        from tailrace.broker.cluster.peers import Peers

        return Peers(
            self._static_config,
            self.ports,
            image=lambda: self.quorum.image,
            listener_name=self.roles.inter_broker_listener_name,
            ways=None if self._security is None else self._security.ways,
        )

    async def _join_as_broker(self, undo: AsyncExitStack) -> None:
        """Registers, and opens the logs by an image that holds the registration: by an older one, topics that were made
        while this broker was away would be missing, and their logs would look like strays."""
        lifecycle = self.lifecycle = self._make_lifecycle()
        undo.push_async_callback(lifecycle.close)
        await lifecycle.register()
        lifecycle.start()
        if not self.roles.is_alone:
            await self.quorum.wait_offset(lifecycle.broker_epoch + 1)
        if self._static_config.remote_log_storage_system_enable:
            from tailrace.broker.tier.tier import open_tier

            self.tier = await open_tier(self.node, self.directories, self._cluster_id, self.services.coordination)
            undo.push_async_callback(self.tier.close)
        await self.replicas.open_logs(lambda: self.quorum.image)
        self._is_started = True
        self.directories.report_recovery()
        coordination, mirrors = self.services.coordination, self.services.mirrors
        for follow_image in (self.replicas.follow_image, coordination.follow_image, mirrors.follow_image):
            self.quorum.subscribe(follow_image)
        self.quorum.subscribe(self._help_shutdowns)
        if self._security is not None:
            self.quorum.subscribe(self._security.follow_image)
            await self._security.take_up()
        self._maintenance = Maintenance(self.replicas, self.ports)
        self._tend_folders(lifecycle, undo)
        reports = self._reports = self._make_reports(lifecycle)
        undo.push_async_callback(reports.close)
        self.quorum.subscribe(reports.follow_image)
        await reports.tell_start()
        reports.start()
        self._open(Audience.CLIENTS)
        await lifecycle.unfence()
        if not self.roles.is_alone:
            self.node.producer_ids.fetch_if_few()
        self._maintenance.start()
        self._maintenance.adopt(scrub(self.node, self._maintenance))
        coordination.open()
        mirrors.open()
        if self.tier is not None:
            self.tier.start()

    def _make_services(self) -> tuple[Node, Services]:
        node = Node(
            node_id=self.node_id,
            ports=self.ports,
            quorum=self.quorum,
            forwarding=self.forwarding,
            replicas=self.replicas,
            producer_ids=ProducerIds(self.forwarding, node_id=self.node_id, broker_epoch=lambda: self.broker_epoch),
            peers=self._peers,
            broker_epoch=lambda: self.broker_epoch,
            judge_bug=self.judge_bug,
        )
        self.future_logs = FutureLogs(self.replicas, self.directories, background=self.ports.background)
        check, ends = (None, None) if (it := self._security) is None else (it.check_stores, it.endings)
        meters, logs = None if self.metrics is None else self.metrics.meters, (self.directories, self.future_logs)
        return node, make_services(node, *logs, self.acceptors, check_stores=check, request_meters=meters, endings=ends)

    def _make_reports(self, lifecycle: Lifecycle) -> ReplicaReports:
        return ReplicaReports(
            self.replicas,
            self.forwarding,
            self.ports.background,
            image=lambda: self.quorum.image,
            controller=lambda: (self.quorum.leadership.leader_id, self.quorum.leadership.epoch),
            broker_epoch=lambda: lifecycle.broker_epoch,
        )

    def _tend_folders(self, lifecycle: Lifecycle, undo: AsyncExitStack) -> None:
        """Where each replica lies is the controller's to know, once there are several folders or brokers."""
        undo.push_async_callback(self.future_logs.close)
        if self.roles.is_alone and len(self.directories) == 1:
            return
        from tailrace.broker.cluster.assignments import DirectoryAssignments

        assignments = self._assignments = DirectoryAssignments(
            NodeId(self.node_id),
            self.directories,
            self.forwarding,
            image=lambda: self.quorum.image,
            broker_epoch=lambda: lifecycle.broker_epoch,
        )
        undo.push_async_callback(assignments.close)
        assignments.is_moving, self.future_logs.assign = self.future_logs.is_moving, assignments.assign
        assignments.start()
        self.quorum.subscribe(assignments.follow_image)
        self.future_logs.resume()

    def _make_lifecycle(self) -> Lifecycle:
        identity = BrokerIdentity(
            cluster_id=self._cluster_id,
            incarnation_id=Uuid(self.ports.random.uuid()),
            endpoints=[each for each in self.advertised if self.roles.serves_clients(each)],
            features=broker_features(self._static_config),
        )
        lifecycle = Lifecycle(
            self._static_config,
            self.ports,
            self.forwarding,
            identity,
            self.directories,
            metadata_offset=lambda: self.replicas.late.followed_offset(self.quorum.image),
            find_epoch=lambda incarnation: find_epoch(self.quorum, self.forwarding, self.node_id, incarnation),
            on_epoch=self._take_epoch,
            on_lease=self._take_lease,
            on_lease_end=self.replicas.on_lease_end,
            on_failure=self._fail,
        )
        self.directories.on_offline.append(self._on_directory_offline)
        self.replicas.late.on_followed = lifecycle.hurry
        return lifecycle

    def _on_directory_offline(self, directory: LogDirectory) -> None:
        if self.directories.are_all_offline:
            self._fail(StorageError(f"All data folders have failed, {directory.path} as the last of them."))
        elif self.lifecycle is not None:
            self.lifecycle.hurry()

    def _help_shutdowns(self, old: MetadataImage, new: MetadataImage) -> None:
        """A broker that stops waits until the others have heard of its leaders' move: they say so at once."""
        if old.brokers is new.brokers or self.lifecycle is None:
            return
        changed = (node for node_id, node in new.brokers.items() if old.brokers.get(node_id) is not node)
        if any(node.in_controlled_shutdown for node in changed):
            self.lifecycle.hurry()

    def _take_epoch(self, broker_epoch: int) -> None:
        self.replicas.broker_epoch = broker_epoch

    def _take_lease(self, lease_ends_ms: float) -> None:
        if not self.roles.is_alone:
            self.replicas.lease.grant(lease_ends_ms)

    async def stop(self) -> None:
        """A clean stop: leaderships go to others first, and the next start need not look for what was acknowledged."""
        if not self.is_running:
            return
        self.is_running = self.lag.is_serving = False
        if self.lifecycle is not None and not self.roles.is_alone:
            await self.lifecycle.shut_down()
        await self.services.mirrors.close()
        await self.services.coordination.close()
        if self.tier is not None:
            await self.tier.close()
        await self._close(Audience.CLIENTS)
        if self._maintenance is not None:
            await self._maintenance.stop()
            await self.future_logs.close()
        for teller in (self._assignments, self._reports):
            if teller is not None:
                await teller.close()
        self.replicas.close()
        await self.replicas.flusher.wait_idle()
        if self.lifecycle is not None:
            await self.lifecycle.close()
        if self._registration is not None:
            await self._registration.close()
        # The quorum stays reachable until it has handed its leadership on.
        await self.quorum.close()
        await self._close(Audience.CONTROLLERS)
        if self._peers is not None:
            self._peers.close()
        if self._security is not None:
            self._security.close()
        if self.metrics is not None:
            await self.metrics.close()
        self.lag.stop()
        background = self.ports.background
        for directory in self.directories:
            await asyncio.gather(*map(background.run, directory.begin_storing()))
            await background.run(lambda each=directory: each.close(broker_epoch=self.broker_epoch))  # type: ignore[misc]
        _log.info("stopped", node=self.node_id)

    def _open(self, audience: Audience) -> None:
        for acceptor in self._acceptors_of(audience):
            protocol = KafkaProtocol(self.services, Dispatcher(self.services, audience))
            self.protocols.append(protocol)
            acceptor.open(protocol)

    async def _close(self, audience: Audience) -> None:
        for acceptor in self._acceptors_of(audience):
            await acceptor.close(answers_timeout_ms=_ANSWERS_TIMEOUT_MS)

    def _acceptors_of(self, audience: Audience) -> list[Acceptor]:
        return [each for each in self.acceptors if each.is_controller == (audience is Audience.CONTROLLERS)]

    # ---- failures

    def judge_bug(self, error: BaseException, partition: Partition | None = None) -> None:
        """A bug of ours was met, and logged. An assertion that failed below the shell means that data cannot be trusted
        any more: those of `partition`, which goes offline here; if nobody can tell, all: whoever runs the broker must
        end the process."""
        if not is_about_data(error):
            return
        if partition is None:
            self._fail(error)
        else:
            partition.log.give_up(error)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # A broker that fails while it starts has told its caller; nobody else will ask.

    async def wait_failed(self) -> None:
        """Never returns; raises the assertion, or the failure of all disks, after which the process has to end."""
        assert self._failure is not None, "the broker was not started"
        await asyncio.shield(self._failure)

    def statistics(self) -> dict[str, float]:
        """A few numbers about the state of the broker, for people and tests."""
        assert self.is_running, "the broker is not running"
        return {
            "connections": sum(len(each.connections) for each in self.acceptors),
            "refused_connections": sum(each.refused_count for each in self.acceptors),
            "request_buffer_bytes": sum(each.buffers.lent_bytes for each in self.protocols),
            "partitions": len(self.replicas.partitions),
            "fetch_sessions": len(self.services.sessions),
            "loop_lag_ms": self.lag.last_ms,
            "loop_lag_max_ms": self.lag.max_ms,
        }
