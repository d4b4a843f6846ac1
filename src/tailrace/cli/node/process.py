"""This process as a node: limits, signals, the ready line, and what to say when it cannot start.

SIGINT and SIGTERM stop it cleanly; a second one does not wait. Everything that `up` and `broker` share is here; they
differ only in where their settings come from. A node of a supervised cluster tells its supervisor when it is ready, and
ends at once when the supervisor is gone: a crash is safe, and a forgotten process would keep its ports. systemd is told
of a process that it has started (`real.systemd`). Once a node is ready it can be looked into (`cli.debug`).
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.broker import Broker
from tailrace.cli import CommandError
from tailrace.model import events
from tailrace.model.config import SETTINGS, BrokerConfig
from tailrace.model.errors import KafkaError, StorageError
from tailrace.real.metrics.targets import write_targets
from tailrace.real.ports import real_ports

if TYPE_CHECKING:
    from tailrace.real.systemd import ServiceManager

_log = events.logger("settings")
_metrics_log = events.logger("metrics")

# A partition holds several files open, a client one socket. The hard limit may be "unlimited", which setrlimit refuses.
OPEN_FILES_MAX = 1 << 20

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_ORPHANED = 3
_SYNC_LOOK_S = 0.5
_TOPICS_A_STEP = 100


# Told the bootstrap servers, and where metrics are served.
OnReady = Callable[[str, Sequence[str]], None]


def print_ready(bootstrap: str, metrics: Sequence[str] = ()) -> None:
    for url in metrics:
        _metrics_log.info("metrics are served", url=f"{url}/metrics")
    print(f"ready: {bootstrap}", flush=True)


def list_metrics(folder: str, urls: Mapping[str, str], *, is_told: bool) -> None:
    """Where each node tells its metrics, by its name: in the data folder and, if it is to be told, in the log; whoever
    has started this reads the one line of stdout."""
    try:
        path = write_targets(folder, urls)
    except OSError as error:
        _log.error("the list of metrics listeners cannot be written", folder=folder, cause=error)
        return
    if is_told:
        for name, url in urls.items():
            _metrics_log.info("metrics are served", node=name, url=f"{url}/metrics", listed_in=path)


def run_broker(
    config: BrokerConfig,
    *,
    on_ready: OnReady = print_ready,
    on_stop: Callable[[], None] | None = None,
    on_in_sync: Callable[[], None] | None = None,
    stop_signals: tuple[signal.Signals, ...] = _STOP_SIGNALS,
    supervisor: int | None = None,
) -> int:
    """Returns the exit code once the broker was told to stop and has stopped; `on_stop` is called while it still
    serves, `on_in_sync` when all its partitions have it in sync. `supervisor` is a pipe that ends with the
    supervisor."""
    _raise_open_files_limit()
    _warn_of_ignored(config)
    try:
        asyncio.run(_serve(config, _Told(on_ready, on_stop, on_in_sync), stop_signals, supervisor))
    except (KafkaError, StorageError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(_explain(error, config)) from None
    return 0


class _Told(NamedTuple):
    """Who is told of what becomes of the node."""

    on_ready: OnReady
    on_stop: Callable[[], None] | None
    on_in_sync: Callable[[], None] | None


async def _serve(
    config: BrokerConfig,
    told: _Told,
    stop_signals: tuple[signal.Signals, ...],
    supervisor: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    if supervisor is not None:
        loop.add_reader(supervisor, os._exit, _EXIT_ORPHANED)
    for number in stop_signals:
        loop.add_signal_handler(number, stop.set)
    manager = _service_manager() if supervisor is None else None
    broker = Broker(config, real_ports())
    if not await _start(broker, stop):
        return
    # What was built so far lives as long as the process. Walking it takes the collector 3 ms, and the loop waits.
    gc.freeze()
    told.on_ready(broker.bootstrap, [] if broker.metrics is None else broker.metrics.urls)
    if manager is not None:
        manager.tell_ready(f"node {broker.node_id} at {broker.bootstrap}")
    from tailrace.cli.debug.server import DebugServer  # Not on the way to ready.

    debug = DebugServer(broker, config.metadata_folder)
    await debug.open()
    watching = None if told.on_in_sync is None else asyncio.ensure_future(_watch_sync(broker, told.on_in_sync))
    balancer = None
    if config.tailrace_balancer_enable and broker.bootstrap:
        from tailrace.cli.balance.always import BalancerProcess

        balancer = BalancerProcess(config, broker.bootstrap)
    await _wait_end(broker, stop)
    if watching is not None:
        watching.cancel()
    if balancer is not None:
        await balancer.stop()
    if told.on_stop is not None:
        await asyncio.to_thread(told.on_stop)
    if manager is not None:
        manager.tell_stopping()
    for number in stop_signals:
        loop.remove_signal_handler(number)
    await broker.stop()
    debug.close()
    if manager is not None:
        manager.close()


async def _watch_sync(broker: Broker, tell: Callable[[], None]) -> None:
    """What this node has fetched since its start has to be known to the controller, and come back as metadata."""
    while True:
        if await _is_in_sync(broker):
            break
        await asyncio.sleep(_SYNC_LOOK_S)
    tell()


async def _is_in_sync(broker: Broker) -> bool:
    for number, topic in enumerate(list(broker.image.topics.values())):
        if any(
            broker.node_id in each.replicas and broker.node_id not in each.isr for each in topic.partitions.values()
        ):
            return False
        if number % _TOPICS_A_STEP == 0:
            await asyncio.sleep(0)
    return True


def _service_manager() -> ServiceManager | None:
    if "NOTIFY_SOCKET" not in os.environ:
        return None
    from tailrace.real.systemd import ServiceManager

    return ServiceManager.connect(os.environ)


async def _start(broker: Broker, stop: asyncio.Event) -> bool:
    """Whether it came up; a broker that still looks for its cluster is told to stop like any other."""
    starting = asyncio.ensure_future(broker.start())
    told = asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if not starting.done():
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True


async def _wait_end(broker: Broker, stop: asyncio.Event) -> None:
    """Returns when the broker is to stop. Raises if it found its own state wrong: then only a crash is safe."""
    told = asyncio.ensure_future(stop.wait())
    failed = asyncio.ensure_future(broker.wait_failed())
    await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        failed.result()
    failed.cancel()


def _explain(error: OSError, config: BrokerConfig) -> str:
    where = ",".join(str(endpoint) for endpoint in config.listeners)
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use: another process listens there. Stop it, or choose another port (--port, listeners)"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) and error.filename is None:
        return f"cannot listen on {where}: {error.strerror}. Choose an address and port of this machine"
    about = f"{error.filename}: " if error.filename else ""
    return f"cannot start: {about}{error.strerror or error}. Check the data folder ({', '.join(config.log_dirs)})"


def _warn_of_ignored(config: BrokerConfig) -> None:
    """Files that were written for Kafka may be used as they are, but nobody is to believe that all of it counts."""
    ignored = sorted(row.name for row in SETTINGS.values() if row.inert and row.attribute in config.given)
    if ignored:
        _log.warning("settings that have no effect here are ignored", names=",".join(ignored))


def _raise_open_files_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
