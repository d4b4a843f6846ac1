"""The apps beside the brokers of `tailrace up`: processes of their own, started when the brokers are ready and told to
stop before they do, since some say goodbye to them. Those that serve say on stdout where, after the `ready:` of the
brokers.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from tailrace.cli import CommandError
from tailrace.real.runs.folder import runs_folder

_STOP_TIMEOUT_S = 10.0
# What the alerts tell the console and whoever watches after them, in the data folder.
_ALERTS_FILE = "alerts-status.json"
# Each option of `up`, the extra that its app needs, and a package of it that cannot be missing then.
_APPS = {
    "registry_port": ("registry", "httptools"),
    "console_port": ("console", "jinja2"),
    "gateway_port": ("gateway", "websockets"),
}


def add_companion_options(parser: argparse.ArgumentParser) -> None:
    for words, what in (
        ("--registry-port", "a schema registry"),
        ("--console-port", "a console for browsers"),
        ("--gateway-port", "a gateway for HTTP"),
    ):
        parser.add_argument(
            words, type=int, metavar="PORT", help=f"start {what} beside it, on this port, 0 for a free one"
        )
    parser.add_argument(
        "--alerts",
        nargs="?",
        const="",
        metavar="FILE",
        help="also start `tailrace alerts`, with the shipped rules or those of a file; it tells on stderr, too",
    )


def check_companions(options: argparse.Namespace) -> None:
    """Before anything starts: whoever asks for an app is not to learn later that there is none."""
    for option, (extra, package) in _APPS.items():
        port = getattr(options, option)
        if port is None:
            continue
        words = f"--{option.replace('_', '-')}"
        if not 0 <= port <= 65535:
            raise CommandError(f"{words} {port}: a port is a number from 0 (a free one) to 65535")
        if missing := [name for name in ("starlette", "uvicorn", package) if find_spec(name) is None]:
            raise CommandError(f"{words} needs {missing[0]}: pip install 'tailrace[{extra}]'")
    if options.alerts:
        from tailrace.apps.alerts.defaults import DEFAULT_RULES
        from tailrace.apps.alerts.rules import RulesError, read_rules

        try:
            read_rules(options.alerts, DEFAULT_RULES)
        except RulesError as error:
            raise CommandError(f"--alerts {error}") from None


@contextmanager
def companions(
    options: argparse.Namespace, folder: str
) -> Iterator[tuple[Callable[[str], None], Callable[[], None] | None]]:
    """What is to be done when the brokers are ready, and before they stop."""
    if options.registry_port == 0 and options.console_port is not None:
        # The console has to know it before the registry says it.
        options.registry_port = _free_port(options.host)
    found = [
        Companion(command, words)
        for command, asked, words in (
            (["registry"], options.registry_port, lambda: _registry_words(options, folder)),
            (["console"], options.console_port, lambda: _console_words(options, folder)),
            (["gateway"], options.gateway_port, lambda: _gateway_words(options, folder)),
            (["alerts", "run"], options.alerts, lambda: _alerts_words(options, folder)),
        )
        if asked is not None
    ]
    if not found:
        yield lambda _: None, None
        return

    def start(bootstrap: str) -> None:
        for each in found:
            each.start(bootstrap)

    def stop() -> None:
        for each in found:
            each.stop()

    try:
        yield start, stop
    finally:
        stop()


class Companion:
    def __init__(self, command: Sequence[str], words: Callable[[], Sequence[str]]) -> None:
        self._command = command
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str) -> None:
        sys.stdout.flush()
        command = [sys.executable, "-m", "tailrace", *self._command, "--bootstrap", bootstrap]
        command += ["--keep", *self._words()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 (our own command)

    def stop(self) -> None:
        """Returns when it has ended, which may take a moment."""
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


def _registry_words(options: argparse.Namespace, folder: str) -> list[str]:
    words = ["--host", options.host, "--port", str(options.registry_port)]
    words += ["--log-level", options.log_level, "--log-format", options.log_format]
    if options.secure:
        from tailrace.cli.secure.setup import write_app_tls

        words += [*_credential(folder), "--tls-config", write_app_tls(folder, "registry")]
    return words


def _gateway_words(options: argparse.Namespace, folder: str) -> list[str]:
    words = ["--host", options.host, "--port", str(options.gateway_port)]
    words += ["--log-level", options.log_level, "--log-format", options.log_format]
    for name in options.name:
        words += ["--name", name]
    if options.registry_port:  # A free one is not known yet.
        scheme = "https" if options.secure else "http"
        words += ["--schema-registry", f"{scheme}://{options.host}:{options.registry_port}"]
    if options.secure:
        from tailrace.cli.secure.setup import authority_certificate, write_app_tls

        words += [*_credential(folder), "--tls-config", write_app_tls(folder, "gateway")]
        if options.registry_port:
            words += ["--schema-registry-ca", authority_certificate(folder)]
    return words


def _console_words(options: argparse.Namespace, folder: str) -> list[str]:
    words = ["--host", options.host, "--port", str(options.console_port), "--pipelines", str(runs_folder())]
    if options.alerts is not None:
        words += ["--alerts", os.path.join(folder, _ALERTS_FILE)]
    if options.registry_port is not None:
        host = "127.0.0.1" if options.host in ("", "0.0.0.0", "::") else options.host  # noqa: S104 (compared)
        scheme = "https" if options.secure else "http"
        words += ["--schema-registry", f"{scheme}://{f'[{host}]' if ':' in host else host}:{options.registry_port}"]
    for name in options.name:
        words += ["--name", name]
    if options.secure:
        from tailrace.cli.secure.setup import authority_certificate, broker_certificate

        words += [*_credential(folder), "--tls-certificate", broker_certificate(folder)]
        words += ["--ca", authority_certificate(folder)]
    return words


def _alerts_words(options: argparse.Namespace, folder: str) -> list[str]:
    words = ["--data", folder, "--log-level", options.log_level, "--log-format", options.log_format]
    words += ["--status", os.path.join(folder, _ALERTS_FILE)]
    if options.alerts:
        words += ["--rules", options.alerts]
    if options.secure:
        from tailrace.cli.secure.setup import authority_certificate

        words += [*_credential(folder), "--ca", authority_certificate(folder)]
    return words


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _credential(folder: str) -> list[str]:
    """Of the admin whom `up --secure` has made."""
    from tailrace.cli.secure.setup import CLIENT_FILE

    return ["--command-config", os.path.join(folder, CLIENT_FILE)]
