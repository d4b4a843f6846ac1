"""`Broker(config, ports)`: joins the layers and owns their life.

    start   binds the listeners, locks and opens the data folders, starts the metadata quorum, lets the replicas follow
            its image, registers the node with the endpoints that clients are told, then takes requests
    stop    takes no new requests, sends the answers, ends the waits, closes the logs and marks them as clean

Everything runs on the loop that `start` was called on. A failed assertion in the layers that keep data ends the broker
through `wait_failed`: a crash is safe, wrong data is not.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from tailrace.broker.quorum import Quorum
from tailrace.broker.server import BoundListener, Server
from tailrace.broker.sessions import FetchSessions
from tailrace.controller.image import MetadataImage
from tailrace.log.directory import LogDirectory
from tailrace.model import events
from tailrace.model.config import BrokerConfig, Endpoint, decide_advertised
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.model.ports import Ports
from tailrace.replica.maintenance import Maintenance
from tailrace.replica.manager import ReplicaManager
from tailrace.wire.apis.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse

_log = events.logger("broker")

# How long a clean stop waits for answers that are under way.
_ANSWERS_TIMEOUT_MS = 5000.0
_LAG_PROBE_SECONDS = 0.1
# Produced batches that are checked in slices at one time; the others wait. Each takes half a millisecond of every turn
# of the loop and the memory of its unpacked records, and more at once would not end sooner: they share one core.
_SLOW_CHECKS_MAX = 2
# Layers whose failed assertions stop the broker: a crash is safe, wrong data is not.
_TRUSTED_LAYERS = ("tailrace.log.", "tailrace.raft.", "tailrace.controller.")


class ProducerIds:
    """Producer ids out of blocks that the controller hands out; each id is given once in the life of the cluster."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum = quorum
        self._node_id = node_id
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()  # One request for a block at a time.

    async def take(self) -> int:
        async with self._lock:
            if self._next == self._end:
                await self._fetch_block()
            self._next += 1
            return self._next - 1

    async def _fetch_block(self) -> None:
        registration = self._quorum.image.brokers.get(self._node_id)
        answer = await self._quorum.submit(
            AllocateProducerIdsRequest(
                broker_id=self._node_id, broker_epoch=-1 if registration is None else registration.epoch
            )
        )
        assert isinstance(answer, AllocateProducerIdsResponse), f"{type(answer).__name__} answers no allocation"
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "The controller gave no producer ids")
        self._next = answer.producer_id_start
        self._end = self._next + answer.producer_id_len


class LoopLag:
    """How late timers fire: what every connection waits for when one of them, or the kernel, holds the loop."""

    def __init__(self, warning_ms: int) -> None:
        self._warning_seconds = warning_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.last_ms = 0.0
        self.max_ms = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + _LAG_PROBE_SECONDS
        self._timer = loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        late = asyncio.get_running_loop().time() - self._due
        self.last_ms = late * 1000
        self.max_ms = max(self.max_ms, self.last_ms)
        if late > self._warning_seconds:
            _log.warning("the event loop was held up", lag_ms=int(self.last_ms))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Broker:
    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        self.ports = ports
        self.listeners: tuple[BoundListener, ...] = ()
        self.advertised: tuple[Endpoint, ...] = ()
        self.directories: list[LogDirectory] = []
        self.quorum: Quorum
        self.replicas: ReplicaManager
        self.sessions = FetchSessions(
            ports.clock,
            ports.random,
            slots_max=config.max_incremental_fetch_session_cache_slots,
            partitions_max=config.max_incremental_fetch_session_partitions,
        )
        self.producer_ids: ProducerIds
        self.slow_checks = asyncio.Semaphore(_SLOW_CHECKS_MAX)
        self._static_config = config
        self._server: Server | None = None
        self._maintenance: Maintenance | None = None
        self._lag = LoopLag(config.loop_lag_warning_ms)
        self._failure: asyncio.Future[None] | None = None
        self._is_started = False
        self._cluster_id = ""
        self._broker_epoch = -1

    @property
    def config(self) -> BrokerConfig:
        """With the dynamic settings of the cluster applied, once they are known."""
        return self.replicas.config if self._is_started else self._static_config

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def node_id(self) -> int:
        return self._static_config.node_id

    @property
    def port(self) -> int:
        """Of the first listener, as it was really bound."""
        return self.listeners[0].port

    @property
    def bootstrap(self) -> str:
        """What clients start from: host:port of the advertised listeners."""
        return ",".join(
            f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"
            for endpoint in self.advertised
        )

    # ---- life

    async def start(self) -> None:
        """Raises OSError, StorageError or KafkaError with cause and remedy; nothing is left behind then."""
        self._failure = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as undo:
            server = Server(self)
            undo.push_async_callback(server.close, answers_timeout_ms=0)
            self.listeners = await server.listen(self._static_config.listeners)
            self.advertised = decide_advertised(
                self._static_config, {listener.name: listener.port for listener in self.listeners}
            )
            self._open_directories(undo)
            await self._join_cluster(undo)
            self._maintenance = Maintenance(self.replicas, self.ports)
            undo.pop_all()
        self._server = server
        self._maintenance.start()
        server.open()
        self._lag.start()
        _log.info("ready", node=self.node_id, bootstrap=self.bootstrap, cluster=self.image.cluster_id)

    def _open_directories(self, undo: AsyncExitStack) -> None:
        config, ports = self._static_config, self.ports
        cluster_id = config.cluster_id or self._stored_cluster_id() or uuid_text(Uuid(ports.random.uuid()))
        for path in config.log_dirs:
            directory = LogDirectory.open(
                ports.disk, ports.clock, ports.random, path, node_id=config.node_id, cluster_id=cluster_id
            )
            undo.callback(directory.close, clean=False)
            self.directories.append(directory)
        self._cluster_id = cluster_id

    def _stored_cluster_id(self) -> str | None:
        for path in self._static_config.log_dirs:
            stored = LogDirectory.stored_cluster_id(self.ports.disk, path)
            if stored is not None:
                return stored
        return None

    async def _join_cluster(self, undo: AsyncExitStack) -> None:
        config, ports = self._static_config, self.ports
        self.quorum = Quorum(config, ports, cluster_id=self._cluster_id, directory_id=self.directories[0].directory_id)
        await self.quorum.start()
        undo.push_async_callback(self.quorum.close)
        self.replicas = ReplicaManager(config, self.directories, background=ports.background)
        undo.callback(self.replicas.close)
        self.replicas.follow_image(None, self.quorum.image)
        for directory in self.directories:
            directory.report_recovery()
        self._is_started = True
        self.quorum.subscribe(self.replicas.follow_image)
        was_clean = all(directory.was_clean for directory in self.directories)
        self._broker_epoch = await self.quorum.register_broker(
            self.advertised,
            directories=[directory.directory_id for directory in self.directories],
            previous_broker_epoch=self.directories[0].previous_broker_epoch if was_clean else -1,
        )
        self.producer_ids = ProducerIds(self.quorum, self.node_id)

    async def stop(self) -> None:
        """A clean stop: whatever was acknowledged is stored, and the next start need not look for it."""
        if self._server is None:
            return
        self._lag.stop()
        await self._server.close(answers_timeout_ms=_ANSWERS_TIMEOUT_MS)
        if self._maintenance is not None:
            await self._maintenance.stop()
        self.replicas.close()
        await self.replicas.flusher.wait_idle()
        await self.quorum.close()
        background = self.ports.background
        for directory in self.directories:
            await asyncio.gather(*map(background.run, directory.begin_storing()))
            await background.run(lambda each=directory: each.close(broker_epoch=self._broker_epoch))  # type: ignore[misc]
        self._server = None
        _log.info("stopped", node=self.node_id)

    def judge_bug(self, error: BaseException) -> None:
        """A request met a bug of ours, which has been logged. An assertion that failed below the shell means that the
        data cannot be trusted any more: whoever runs the broker must end the process."""
        is_promise = isinstance(error, AssertionError) and _raised_in(error).startswith(_TRUSTED_LAYERS)
        if is_promise and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def wait_failed(self) -> None:
        """Never returns; raises the assertion after which the process has to end."""
        assert self._failure is not None, "the broker was not started"
        await asyncio.shield(self._failure)

    def statistics(self) -> dict[str, float]:
        """A few numbers about the state of the broker, for people and tests."""
        assert self._server is not None, "the broker is not running"
        return {
            "connections": len(self._server.connections),
            "refused_connections": self._server.refused_count,
            "request_buffer_bytes": self._server.buffers.lent_bytes,
            "partitions": len(self.replicas.partitions),
            "fetch_sessions": len(self.sessions),
            "loop_lag_ms": self._lag.last_ms,
            "loop_lag_max_ms": self._lag.max_ms,
        }


def _raised_in(error: BaseException) -> str:
    """The name of the module that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
