"""This process as a broker: limits, signals, the ready line, and what to say when it cannot start.

SIGINT and SIGTERM stop it cleanly; a second one does not wait. Everything that `up` and `broker` share is here; they
differ only in where their settings come from.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import resource
import signal

from tailrace.broker.broker import Broker
from tailrace.cli import CommandError
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import KafkaError, StorageError
from tailrace.real.ports import real_ports

# A partition holds several files open, a client one socket. The hard limit may be "unlimited", which setrlimit refuses.
OPEN_FILES_MAX = 1 << 20

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_broker(config: BrokerConfig) -> int:
    """Returns the exit code once the broker was told to stop and has stopped."""
    _raise_open_files_limit()
    try:
        asyncio.run(_serve(config))
    except (KafkaError, StorageError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(_explain(error, config)) from None
    return 0


async def _serve(config: BrokerConfig) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    broker = Broker(config, real_ports())
    await broker.start()
    # What was built so far lives as long as the process. Walking it takes the collector 3 ms, and the loop waits.
    gc.freeze()
    print(f"ready: {broker.bootstrap}", flush=True)
    await _wait_end(broker, stop)
    for number in _STOP_SIGNALS:
        loop.remove_signal_handler(number)
    await broker.stop()


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


def _raise_open_files_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
