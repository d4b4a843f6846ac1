"""`Broker`: a real broker for the length of a test.

By default it is a child process, as close to production as it gets: it can be killed, paused and restarted on the same
port and data. With `in_process=True` it runs on the caller's own event loop (`async with` only), where a debugger can
follow a request from the client into the log.

It leaves nothing behind: no process and no temporary folder, even if the test process itself is killed.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from tailrace.real.metrics.targets import read_targets
from tailrace.testing.child import Child, Guard
from tailrace.testing.metrics import Metrics, scrape
from tailrace.testing.scoped import Scoped
from tailrace.testing.users import ClientSettings, admin_settings, create_user

if TYPE_CHECKING:
    from typing import Self

    from tailrace.testing.in_process import InProcess


class Broker(Scoped):
    """A broker on a free port. `settings` are Kafka's, by their own names: `Broker({"log.segment.bytes": 1 << 20})`.

    `data` is a folder to keep; without it the data lives in a temporary folder for the life of this object, across
    `kill` and `restart`. `port` 0 picks a free one, which `restart` takes again.

    With `secure=True` it is a broker as `tailrace up --secure` starts it: TLS, SCRAM and ACLs. `client_settings` let
    its admin in, and `user` makes others. It needs the extra `security`.

    With `registry=True` a schema registry is started beside it, and `registry_url` is where it is. It needs the extra
    `registry`.
    """

    def __init__(
        self,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: str | os.PathLike[str] | None = None,
        in_process: bool = False,
        secure: bool = False,
        registry: bool = False,
        log_level: str = "info",
        start_timeout_s: float = 15.0,
    ) -> None:
        self.host = host
        self.port = port
        self.settings = {name: setting_text(value) for name, value in (settings or {}).items()}
        self._data = None if data is None else os.fspath(data)
        if secure and in_process:
            raise ValueError("a secure broker is a process of its own: leave in_process out")
        self._in_process = in_process
        if registry and in_process:
            raise ValueError("a registry is a process of its own, and needs a broker that is one: leave in_process out")
        self._secure = secure
        self._registry_port: int | None = 0 if registry else None
        self._registry_url: str | None = None
        self._log_level = log_level
        self._start_timeout_s = start_timeout_s
        self._folder: str | None = None
        self._guard: Guard | None = None
        self._child: Child | None = None
        self._inner: InProcess | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def registry_url(self) -> str:
        """Of the schema registry, for a client's `schema.registry.url`."""
        if self._registry_url is None:
            raise RuntimeError("there is no registry: start the broker with Broker(registry=True)")
        return self._registry_url

    @property
    def client_settings(self) -> ClientSettings:
        """How the admin of a secure broker comes in."""
        return admin_settings(self.bootstrap, self.data, is_secure=self._secure)

    def user(self, name: str, acls: Sequence[str] = ()) -> ClientSettings:
        """A new user of a secure broker, or a new password of one that is there; `acls` say what it may do, each like
        "write topic:orders", "read group:*", or "read topic:orders-*" for all names that begin so."""
        return create_user(self.client_settings, name, acls)

    @property
    def metrics_url(self) -> str:
        """Where /metrics and /health are."""
        if self._inner is not None:
            return self._inner.metrics_url
        return read_targets(self.data)[f"broker-{self.settings.get('node.id', 1)}"]

    def metrics(self) -> Metrics:
        """What the broker counts, as it is now."""
        return scrape(self.metrics_url, self.client_settings if self._secure else None)

    @property
    def data(self) -> str:
        """The folder that holds the broker's data."""
        if self._data is not None:
            return self._data
        if self._inner is not None:
            return self._inner.data
        if self._folder is None:
            raise RuntimeError("the broker has no data folder before it is started")
        return os.path.join(self._folder, "data")

    @property
    def process_id(self) -> int:
        return self._running_child().process_id

    @property
    def is_running(self) -> bool:
        return self._inner is not None or (self._child is not None and self._child.is_running)

    def log(self) -> str:
        """What the child process has logged so far, over all its restarts."""
        with open(self._log_path(), encoding="utf-8", errors="replace") as file:
            return file.read()

    def start(self) -> None:
        """Returns when clients can connect."""
        if self._in_process:
            raise RuntimeError(
                "a broker in this process needs a running loop: use `async with Broker(in_process=True)`"
            )
        if self._child is not None:
            raise RuntimeError("the broker was started already")
        if self._guard is None:
            self._folder = tempfile.mkdtemp(prefix="tailrace-test-")
            self._guard = Guard(self._folder)
        self._child = Child(self._arguments(), self._log_path(), self._guard)
        try:
            bootstrap = self._child.wait_ready(self._start_timeout_s)
            if self._registry_port is not None:
                self._registry_url = self._child.wait_registry(self._start_timeout_s)
                self._registry_port = int(self._registry_url.rpartition(":")[2])
        except BaseException:
            self.close()
            raise
        self.port = int(bootstrap.rpartition(":")[2])

    def stop(self) -> None:
        """SIGTERM: answers are sent, logs closed with the clean mark. The data stays until `close`."""
        if self._child is not None:
            child, self._child = self._child, None
            child.stop()

    def kill(self) -> None:
        """SIGKILL: whatever was acknowledged must be there after `start`."""
        child, self._child = self._running_child(), None
        child.kill()

    def pause(self) -> None:
        """SIGSTOP: the process is there, its connections stay open, and nothing answers."""
        self._running_child().signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running_child().signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stops it if it runs, then starts it on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends the process, if it still runs, and removes the temporary folder."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
        if self._guard is not None:
            guard, self._guard = self._guard, None
            guard.close()

    async def __aenter__(self) -> Self:
        if self._in_process:
            from tailrace.testing.in_process import InProcess

            inner = InProcess(self.host, self.port, self._data, self.settings)
            self.port = await inner.start()
            self._inner = inner
            return self
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            inner, self._inner = self._inner, None
            await inner.stop()
        else:
            await super().__aexit__(kind, error, trace)

    def _arguments(self) -> list[str]:
        words = ["--host", self.host, "--port", str(self.port), "--data", self.data, "--log-level", self._log_level]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        if self._registry_port is not None:
            words += ["--registry-port", str(self._registry_port)]
        return [*words, "--secure"] if self._secure else words

    def _log_path(self) -> str:
        if self._folder is None:
            raise RuntimeError("the broker has no log: it was never started as a child process")
        return os.path.join(self._folder, "broker.log")

    def _running_child(self) -> Child:
        if self._child is None:
            raise RuntimeError("the broker does not run as a child process now")
        return self._child


def setting_text(value: str | float | bool) -> str:
    """As a properties file would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
