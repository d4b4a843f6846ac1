"""The registry beside the brokers of `tailrace up`: a process of its own, started when they are ready and told to stop
before they do, since it says goodbye to them. It ends with the process that started it, however that ends: the pipe to
its standard input ends then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

_STOP_TIMEOUT_S = 10.0


class RegistryCompanion:
    def __init__(self, *, host: str, port: int, secured_by: str | None, log_options: Sequence[str]) -> None:
        """`secured_by` is the folder that `up --secure` has made."""
        self._host = host
        self._port = port
        self._secured_by = secured_by
        self._log_options = log_options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str) -> None:
        words = ["--bootstrap", bootstrap, "--host", self._host, "--port", str(self._port), "--keep"]
        if self._secured_by is not None:
            from tailrace.cli.secure.setup import CLIENT_FILE, write_registry_tls

            words += ["--command-config", os.path.join(self._secured_by, CLIENT_FILE)]
            words += ["--tls-config", write_registry_tls(self._secured_by)]
        # Its lines on stdout come after the `ready:` of the brokers.
        sys.stdout.flush()
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            [sys.executable, "-m", "tailrace", "registry", *words, *self._log_options], stdin=subprocess.PIPE
        )

    def stop(self) -> None:
        """Returns when it has ended, which takes a moment: it leaves its group."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None, "it was opened so"
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            process.stdin.close()
