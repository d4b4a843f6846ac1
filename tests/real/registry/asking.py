"""Requests to a registry, as plain as they can be; and registries as processes of their own."""

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DEADLINE_S = 60.0
V1_JSON = "application/vnd.schemaregistry.v1+json"


class Answer(NamedTuple):
    status: int
    content: Any
    headers: Any

    @property
    def code(self) -> int:
        return self.content["error_code"]


def ask(
    url: str,
    method: str,
    path: str,
    content: Any = None,
    *,
    login: tuple[str, str] | None = None,
    headers: dict[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> Answer:
    sent = {"Content-Type": V1_JSON, **(headers or {})}
    if login is not None:
        sent["Authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    data = content if isinstance(content, bytes | None) else json.dumps(content).encode()
    request = urllib.request.Request(url + path, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=context) as response:
            return Answer(response.status, _read(response), response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _read(error), error.headers)


def _read(response: Any) -> Any:
    data = response.read()
    return json.loads(data) if data else None


def avro(*fields: str) -> dict[str, Any]:
    listed = [{"name": name, "type": "string", "default": ""} for name in fields]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": listed})}


class RegistryProcess:
    """`tailrace registry` on a free port, which it keeps when it is started again."""

    def __init__(self, bootstrap: str, log: Path, *settings: str, port: int = 0, options: tuple[str, ...] = ()) -> None:
        self._bootstrap = bootstrap
        self._log = log
        self._settings = settings
        self._options = options
        self._port = port
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RegistryProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.kill()

    def start(self) -> None:
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        words = ["registry", "--bootstrap", self._bootstrap, "--port", str(self._port), *self._options]
        for each in self._settings:
            words += ["--set", each]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", *words], stdout=subprocess.PIPE, stderr=log
            )

    def wait_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("registry: "), self._log.read_text()[-4000:]
        self.url = line.split()[1]
        self._port = int(self.url.rpartition(":")[2])

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        os.kill(process.pid, number)
        code = process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()
        return code


def wait_until(condition: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
    """The first value that is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)
